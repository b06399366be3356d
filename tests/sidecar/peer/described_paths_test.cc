// What the description of a buffer says of the path bounce: its chunks, or whoever stages it, or
// why it is neither.
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/peer/server/buffer_export.h"
#include "sidecar/peer/server/queue_pair_offers.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::peer {
namespace {

using testing::TestArena;
using wire::MemoryKind;
using wire::Path;

class DescribedPathsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kArena = 16 * 4096;

  std::shared_ptr<const memory::MappedAllocation> Allocation(MemoryKind kind) {
    return *memory::MappedAllocation::Create(
        world_.mapper_, kind == MemoryKind::kGpu ? arena_.gpu_source(0, kArena) : arena_.source());
  }
  // Of one allocation of each kind, all of them in the buffer.
  wire::PeerBuffer Told(const std::vector<MemoryKind>& kinds,
                        memory::NicRegistration nic_registration,
                        const WhyNotStaged& why_not = {}) {
    registry::Buffer::Description description;
    description.access = {true, true};
    registry::Buffer::Allocations allocations;
    std::vector<wire::Piece> pieces;
    for (uint32_t i = 0; i < kinds.size(); ++i) {
      allocations.push_back(Allocation(kinds[i]));
      pieces.push_back({i, 0, kArena});
      description.allocation_ids.push_back(i + 1);
    }
    description.pieces =
        *memory::PieceMap::Create(pieces, std::vector<uint64_t>(kinds.size(), kArena));
    const auto buffer = std::make_shared<registry::Buffer>(
        std::move(description), std::move(allocations), std::move(nic_registration));
    const auto told = ExportBuffer(*buffer, general_, why_not);
    EXPECT_TRUE(told) << told.error().message;
    return *told;
  }
  memory::NicRegistration Registered() {
    return world_.registrar_there_.Register({{Allocation(MemoryKind::kHost), 0, kArena}},
                                            {true, true});
  }
  static memory::NicRegistration NotRegistered() {
    return Fail(ErrorCode::kPathUnavailable, "no device reaches it");
  }
  static const wire::PathReport& Of(const wire::PeerBuffer& told, Path path) {
    return told.paths[static_cast<size_t>(path)];
  }
  static void ExpectAvailable(const wire::PathReport& report) {
    EXPECT_TRUE(report.available) << report.reason;
    EXPECT_EQ(report.reason, "");
  }
  static void ExpectRefused(const wire::PathReport& report, const std::string& reason) {
    EXPECT_FALSE(report.available);
    EXPECT_EQ(report.reason, reason);
  }
  static std::vector<wire::PathReport> AllPaths() {
    std::vector<wire::PathReport> paths;
    for (int i = 0; i < wire::kPathCount; ++i) {
      paths.push_back({static_cast<Path>(i), true, ""});
    }
    return paths;
  }

  testing::FakeFabric fabric_;
  testing::FakeVerbs here_{fabric_, {{"here0"}}};
  testing::FakeVerbs there_{fabric_, {{"there0"}}};
  const TestArena arena_{kArena};
  transport::RdmaWorld world_{here_, there_, {}, {}};
  std::vector<wire::PathReport> general_ = AllPaths();
};

TEST_F(DescribedPathsTest, WhatTheDevicesHaveIsReachedThere) {
  for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kGpu}) {
    const auto told = Told({kind}, Registered(), {"", "nobody copies"});
    ASSERT_FALSE(told.rdma_chunks.empty());
    ExpectAvailable(Of(told, Path::kBounce));
  }
}

TEST_F(DescribedPathsTest, OtherMemoryOfGpusIsStagedWhereSomebodyDoes) {
  const auto staged = Told({MemoryKind::kGpu, MemoryKind::kGpu}, NotRegistered());
  ExpectAvailable(Of(staged, Path::kBounce));
  ExpectRefused(Of(staged, Path::kRdma), "no device reaches it");
  const auto not_staged = Told({MemoryKind::kGpu}, NotRegistered(), {"", "nobody copies"});
  ExpectRefused(Of(not_staged, Path::kBounce), "the buffer is GPU memory: nobody copies");
  ExpectAvailable(Of(not_staged, Path::kTcp));
}

TEST_F(DescribedPathsTest, AFileThatCanShrinkIsOfferedOverTcpWhereItIsStaged) {
  const TestArena unsealed(kArena, TestArena::Unsealed());
  const auto told_with = [&](const WhyNotStaged& why_not) {
    registry::Buffer::Description description;
    description.access = {true, true};
    description.allocation_ids = {1};
    description.pieces = *memory::PieceMap::Create({{0, 0, kArena}}, std::vector<uint64_t>{kArena});
    const auto buffer = std::make_shared<registry::Buffer>(
        std::move(description),
        registry::Buffer::Allocations{
            *memory::MappedAllocation::Create(world_.mapper_, unsealed.source())},
        NotRegistered());
    return *ExportBuffer(*buffer, general_, why_not);
  };
  ExpectAvailable(Of(told_with({"no GPU", "no GPU"}), Path::kTcp));
  ExpectAvailable(Of(told_with({"no GPU", "no GPU"}), Path::kShm));
  ExpectRefused(Of(told_with({"", "", "no staging memory"}), Path::kTcp),
                "the buffer's file can shrink: no staging memory");
}

// The sidecar's user is not the file's: root, which opens anything, is another one meanwhile.
TEST_F(DescribedPathsTest, AFileThatTheSidecarMayNotOpenIsOfferedOverTcpAlone) {
  const TestArena unsealed(kArena, TestArena::Unsealed());
  const auto paths_with = [&](bool remote_write) {
    registry::Buffer::Description description;
    description.access = {true, remote_write};
    description.allocation_ids = {1};
    description.pieces = *memory::PieceMap::Create({{0, 0, kArena}}, std::vector<uint64_t>{kArena});
    const auto buffer = std::make_shared<registry::Buffer>(
        std::move(description),
        registry::Buffer::Allocations{
            *memory::MappedAllocation::Create(world_.mapper_, unsealed.source())},
        NotRegistered());
    ::setfsuid(65534);
    const auto told = *ExportBuffer(*buffer, general_, {});
    ::setfsuid(::geteuid());
    return told;
  };
  ExpectAvailable(Of(paths_with(false), Path::kShm));
  ASSERT_EQ(::fchmod(unsealed.Fd().get(), 0), 0);
  const auto told = paths_with(false);
  EXPECT_FALSE(Of(told, Path::kShm).available);
  EXPECT_NE(Of(told, Path::kShm).reason.find("its mode"), std::string::npos);
  ExpectAvailable(Of(told, Path::kTcp));
  ExpectAvailable(Of(paths_with(true), Path::kShm));
}

TEST_F(DescribedPathsTest, OtherMemoryOfTheHostIsNotStaged) {
  ExpectRefused(Of(Told({MemoryKind::kHost}, NotRegistered()), Path::kBounce),
                "no device reaches it");
  ExpectRefused(Of(Told({MemoryKind::kGpu, MemoryKind::kHost}, NotRegistered()), Path::kBounce),
                "no device reaches it");
}

TEST_F(DescribedPathsTest, WhereThereIsNoSuchPathItsReasonStays) {
  general_[static_cast<size_t>(Path::kBounce)] = {Path::kBounce, false, "no staging memory"};
  ExpectRefused(Of(Told({MemoryKind::kHost}, Registered()), Path::kBounce), "no staging memory");
  ExpectRefused(Of(Told({MemoryKind::kGpu}, NotRegistered(), {"", "nobody copies"}), Path::kBounce),
                "no staging memory");
}

TEST_F(DescribedPathsTest, WhoMayLessThanTheKeysIsToldNoneAndStagedForAsBefore) {
  auto with_keys = Told({MemoryKind::kGpu}, Registered());
  QueuePairOffers::Hide(&with_keys);
  EXPECT_TRUE(with_keys.rdma_chunks.empty());
  EXPECT_TRUE(with_keys.rdma_devices.empty());
  const std::string why = "the buffer's keys grant more than this peer may";
  ExpectRefused(Of(with_keys, Path::kRdma), why);
  ExpectRefused(Of(with_keys, Path::kBounce), why);
  ExpectAvailable(Of(with_keys, Path::kTcp));
  auto staged = Told({MemoryKind::kGpu}, NotRegistered());
  QueuePairOffers::Hide(&staged);
  ExpectAvailable(Of(staged, Path::kBounce));
  ExpectRefused(Of(staged, Path::kRdma), "no device reaches it");
}

}  // namespace
}  // namespace gantry::peer
