// A buffer that some of its owner's RDMA devices have, from its registration to what a peer posts
// with: each key is that of its device, and no other device has one.
#include <gtest/gtest.h>

#include "lib/wire/peer_messages.h"
#include "sidecar/peer/link/buffer_import.h"
#include "sidecar/peer/server/buffer_export.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::peer {
namespace {

using testing::FakeVerbs;
using testing::TestArena;
using transport::DeviceSet;
using transport::MemoryRegionSet;
using transport::RdmaRemoteBuffer;

class BufferChunksTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kArena = 64 * 4096;

  // As its owner tells it, over the wire.
  wire::PeerBuffer Told(DeviceSet on) {
    world_.on_there_ = on;
    auto allocation = *memory::MappedAllocation::Create(world_.mapper_, arena_.source());
    auto registered = world_.registrar_there_.Register({{allocation, 0, kArena}}, {true, true});
    EXPECT_TRUE(registered) << registered.error().message;
    set_ = std::dynamic_pointer_cast<const MemoryRegionSet>(*registered);
    registry::Buffer::Description description;
    description.id = "1";
    description.workload = "owner";
    description.name = "kv";
    description.generation = 7;
    description.access = {true, true};
    const std::vector<uint64_t> sizes = {kArena};
    description.pieces = *memory::PieceMap::Create({{0, 0, kArena}}, sizes);
    description.allocation_ids = {1};
    const auto buffer = std::make_shared<registry::Buffer>(
        std::move(description), registry::Buffer::Allocations{allocation}, *registered);
    std::vector<wire::PathReport> paths;
    for (int i = 0; i < wire::kPathCount; ++i) {
      paths.push_back({static_cast<wire::Path>(i), true, ""});
    }
    const auto exported = ExportBuffer(*buffer, paths, {});
    EXPECT_TRUE(exported) << exported.error().message;
    v1::BufferDescriptor message;
    wire::ToMessage(*exported, &message);
    const auto told = wire::FromMessage(message);
    EXPECT_TRUE(told) << told.error().message;
    return *told;
  }
  Result<engine::RemoteBuffer> Import(const wire::PeerBuffer& told) {
    ASSIGN_OR_RETURN(engine::RemoteBuffer imported, ImportBuffer("peer", told));
    RETURN_IF_ERROR(AddressFlat(told, {nullptr, world_.peer_, nullptr}, &imported));
    return imported;
  }

  testing::FakeFabric fabric_;
  FakeVerbs here_{fabric_, {{"here0"}}};
  FakeVerbs there_{fabric_, {{"there0"}, {"there1"}, {"there2"}, {"there3"}}};
  const TestArena arena_{kArena};
  static transport::RdmaOptions SmallChunks() {
    transport::RdmaOptions options;
    options.chunk_bytes = 16 * 4096;
    return options;
  }
  transport::RdmaWorld world_{here_, there_, {}, SmallChunks()};
  std::shared_ptr<const MemoryRegionSet> set_;
};

TEST_F(BufferChunksTest, KeysArriveAtTheirDevices) {
  for (const DeviceSet on : {DeviceSet{2}, DeviceSet{1, 3}, DeviceSet{0, 1, 2, 3}}) {
    const wire::PeerBuffer told = Told(on);
    EXPECT_EQ(told.rdma_devices, on.List());
    const auto imported = Import(told);
    ASSERT_TRUE(imported) << imported.error().message;
    const auto* const remote = RdmaRemoteBuffer::Of({nullptr, imported->target});
    ASSERT_NE(remote, nullptr);
    EXPECT_EQ(remote->devices(), on);
    ASSERT_EQ(remote->chunks().size(), set_->list().size());
    ASSERT_GT(remote->chunks().size(), 1u);
    for (size_t chunk = 0; chunk < remote->chunks().size(); ++chunk) {
      EXPECT_EQ(remote->chunks()[chunk].keys, set_->list()[chunk].remote_keys);
      for (const uint32_t device : on.List()) {
        EXPECT_NE(remote->chunks()[chunk].keys.at(device), 0u);
      }
    }
  }
}

TEST_F(BufferChunksTest, AnOwnerThatNamesNoDeviceHasKeysOfAll) {
  wire::PeerBuffer told = Told(DeviceSet::All());
  told.rdma_devices.clear();
  const auto imported = Import(told);
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(RdmaRemoteBuffer::Of({nullptr, imported->target})->devices(), (DeviceSet{0, 1, 2, 3}));
}

TEST_F(BufferChunksTest, KeysOfOtherDevicesThanThePeerHasAreRefused) {
  wire::PeerBuffer told = Told({1, 3});
  told.rdma_devices = {1, 4};
  EXPECT_EQ(Import(told).error().code, ErrorCode::kMalformedBody);
  told.rdma_devices.clear();  // of all four, and there are two
  EXPECT_EQ(Import(told).error().code, ErrorCode::kMalformedBody);
}

}  // namespace
}  // namespace gantry::peer
