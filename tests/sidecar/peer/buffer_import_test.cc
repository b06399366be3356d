// Descriptions that a peer should never have sent: each is refused before a number of it is used.
#include "sidecar/peer/link/buffer_import.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "lib/wire/fd_ticket_protocol.h"
#include "lib/wire/peer_messages.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/test_arena.h"

namespace gantry::peer {
namespace {

using testing::TestArena;
constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

v1::BufferDescriptor Good() {
  v1::BufferDescriptor message;
  message.set_workload("engine");
  message.set_name("k.0");
  message.set_id("1");
  message.set_generation(7);
  message.set_length(8192);
  message.set_remote_read(true);
  v1::Allocation& allocation = *message.add_allocations();
  allocation.set_id(1);
  allocation.set_size(1 << 20);
  allocation.set_kind(v1::MEMORY_KIND_HOST);
  for (const uint64_t offset : {0, 65536}) {
    v1::Piece& piece = *message.add_pieces();
    piece.set_offset(offset);
    piece.set_length(4096);
  }
  return message;
}

Result<engine::RemoteBuffer> Import(const v1::BufferDescriptor& message) {
  ASSIGN_OR_RETURN(const wire::PeerBuffer buffer, wire::FromMessage(message));
  return ImportBuffer("prefill", buffer);
}

TEST(BufferImportTest, AGoodDescriptionIsTaken) {
  const auto buffer = Import(Good());
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(buffer->length, 8192u);
  EXPECT_EQ(buffer->reference.peer, "prefill");
  EXPECT_EQ(buffer->allocations.size(), 1u);
}

v1::BufferDescriptor GoodOnGpu() {
  v1::BufferDescriptor message = Good();
  v1::Allocation& allocation = *message.mutable_allocations(0);
  allocation.set_kind(v1::MEMORY_KIND_GPU);
  allocation.set_writable(true);
  v1::GpuFacts& gpu = *allocation.mutable_gpu();
  gpu.set_device_uuid("GPU-1");
  gpu.set_buffer_id(9);
  gpu.set_exporter_pid(1);
  return message;
}

TEST(BufferImportTest, MemoryOfAGpuSurvivesTheRoundTrip) {
  for (const auto form :
       {wire::GpuExport::kHandle, wire::GpuExport::kPiece, wire::GpuExport::kDmaBuf}) {
    v1::BufferDescriptor told = GoodOnGpu();
    v1::GpuFacts& gpu = *told.mutable_allocations(0)->mutable_gpu();
    gpu.set_piece(form == wire::GpuExport::kPiece);
    gpu.set_dma_buf(form == wire::GpuExport::kDmaBuf);
    gpu.set_fd_offset(form == wire::GpuExport::kDmaBuf ? 8192 : 0);
    told.mutable_allocations(0)->set_identity_high(11);
    told.mutable_allocations(0)->set_identity_low(12);
    const auto buffer = wire::FromMessage(told);
    ASSERT_TRUE(buffer) << buffer.error().message;
    const wire::GpuFacts facts = {form, "GPU-1", 9, 1, gpu.fd_offset()};
    EXPECT_EQ(buffer->allocations[0].gpu, facts);
    EXPECT_EQ(buffer->allocations[0].identity_high, 11u);
    EXPECT_EQ(buffer->allocations[0].identity_low, 12u);
    v1::BufferDescriptor message;
    wire::ToMessage(*buffer, &message);
    EXPECT_EQ(wire::FromMessage(message)->allocations, buffer->allocations);
  }
}

TEST(BufferImportTest, MemoryOfAGpuWithoutItsFactsIsRefused) {
  v1::BufferDescriptor message = GoodOnGpu();
  message.mutable_allocations(0)->clear_gpu();
  EXPECT_EQ(Import(message).error().code, ErrorCode::kMalformedBody);
  message = GoodOnGpu();
  message.mutable_allocations(0)->mutable_gpu()->set_fd_offset(~uint64_t{0});
  EXPECT_EQ(Import(message).error().code, ErrorCode::kMalformedBody) << "it wraps around";
  message = GoodOnGpu();
  message.mutable_allocations(0)->mutable_gpu()->set_device_uuid(std::string(48, 'x'));
  EXPECT_EQ(Import(message).error().code, ErrorCode::kMalformedBody);
}

TEST(BufferImportTest, SurvivesTheRoundTrip) {
  wire::PeerBuffer buffer = *wire::FromMessage(Good());
  buffer.layout = wire::BlockLayout{1024, 2048, 4};
  v1::BufferDescriptor message;
  wire::ToMessage(buffer, &message);
  const auto again = wire::FromMessage(message);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->pieces, buffer.pieces);
  EXPECT_EQ(again->allocations, buffer.allocations);
  EXPECT_EQ(again->layout, buffer.layout);
}

struct Damage {
  const char* name;
  std::function<void(v1::BufferDescriptor&)> apply;
};

class DamagedDescription : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedDescription, IsRefused) {
  v1::BufferDescriptor message = Good();
  GetParam().apply(message);
  EXPECT_FALSE(Import(message));
}

INSTANTIATE_TEST_SUITE_P(
    BufferImportTest, DamagedDescription,
    ::testing::Values(
        Damage{"PieceOutsideOfItsAllocation",
               [](auto& m) { m.mutable_pieces(1)->set_offset((1 << 20) - 4095); }},
        Damage{"PieceThatWraps", [](auto& m) { m.mutable_pieces(1)->set_offset(kMax - 100); }},
        Damage{"PieceLongerThanAnything", [](auto& m) { m.mutable_pieces(1)->set_length(kMax); }},
        Damage{"EmptyPiece", [](auto& m) { m.mutable_pieces(1)->set_length(0); }},
        Damage{"SumThatWraps",
               [](auto& m) {
                 m.mutable_allocations(0)->set_size(kMax);
                 m.mutable_pieces(0)->set_length(kMax);
                 m.mutable_pieces(1)->set_offset(0);
                 m.mutable_pieces(1)->set_length(8193);
               }},
        Damage{"NoPieces", [](auto& m) { m.clear_pieces(); }},
        Damage{"AnotherLength", [](auto& m) { m.set_length(8193); }},
        Damage{"UnlistedAllocation", [](auto& m) { m.mutable_pieces(0)->set_allocation(1); }},
        Damage{"AllocationTwice", [](auto& m) { *m.add_allocations() = m.allocations(0); }},
        Damage{"AllocationOfNothing", [](auto& m) { m.mutable_allocations(0)->set_size(0); }},
        Damage{"UnknownMemory", [](auto& m) { m.mutable_allocations(0)->clear_kind(); }},
        Damage{"NoAccess", [](auto& m) { m.set_remote_read(false); }},
        Damage{"WritableOverReadOnly", [](auto& m) { m.set_remote_write(true); }},
        Damage{"NoGeneration", [](auto& m) { m.set_generation(0); }},
        Damage{"NameWithSlash", [](auto& m) { m.set_name("../k"); }},
        Damage{"LongId", [](auto& m) { m.set_id(std::string(129, 'x')); }},
        Damage{"LayoutThatWraps",
               [](auto& m) {
                 m.mutable_layout()->set_block_bytes(1);
                 m.mutable_layout()->set_block_stride(kMax / 2);
                 m.mutable_layout()->set_blocks(4);
               }},
        Damage{"HugePieceCount",
               [](auto& m) {
                 for (int i = 0; i < wire::kPeerPiecesMax; ++i) *m.add_pieces() = m.pieces(0);
               }},
        Damage{"HugePathCount",
               [](auto& m) {
                 for (int i = 0; i <= wire::kPeerPathsMax; ++i) m.add_paths();
               }}),
    [](const auto& damage) { return damage.param.name; });

TEST(MapDescriptorTest, ChecksWhatARegistrationChecks) {
  CountingMapper mapper;
  TestArena arena(1 << 20);
  const auto map = [&](uint64_t size, UniqueFd fd, bool writable) {
    return MapDescriptor(mapper, {1, size, writable, wire::MemoryKind::kHost},
                         std::make_shared<const UniqueFd>(std::move(fd)), writable, "owner");
  };
  EXPECT_TRUE(map(arena.size(), arena.Fd(), true));
  EXPECT_EQ(map(arena.size() + 1, arena.Fd(), true).error().code, ErrorCode::kFdTooShort);
  EXPECT_EQ(map(arena.size(), arena.ReadOnlyFd(), true).error().code, ErrorCode::kFdReadOnly);
  UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  EXPECT_EQ(map(4096, *unsealed.Duplicate(), true).error().code, ErrorCode::kFdNotSealed);
  CountingMapper taking(memory::Unsealed::kTaken);
  EXPECT_TRUE(MapDescriptor(taking, {1, 4096, true, wire::MemoryKind::kHost},
                            std::make_shared<const UniqueFd>(*unsealed.Duplicate()), true,
                            "owner"));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4095), 0);
  EXPECT_TRUE(MapDescriptor(taking, {1, 4096, true, wire::MemoryKind::kHost},
                            std::make_shared<const UniqueFd>(std::move(unsealed)), true, "owner"))
      << "it fails its own transfers, and not those of others";
  EXPECT_EQ(map(4096, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), true).error().code,
            ErrorCode::kNotExportable);
  EXPECT_EQ(mapper.live(), 0u);
}

TEST(PeerVersionTest, TheHighestThatBothSpeak) {
  EXPECT_EQ(*wire::ChoosePeerVersion({1, 1}, {1, 1}), 1u);
  EXPECT_EQ(*wire::ChoosePeerVersion({2, 3}, {1, 2}), 2u) << "N and N-1";
  EXPECT_EQ(*wire::ChoosePeerVersion({1, 2}, {2, 3}), 2u);
  EXPECT_EQ(wire::ChoosePeerVersion({1, 2}, {3, 4}).error().hint,
            "upgrade this sidecar: neighbouring releases understand each other");
  EXPECT_EQ(wire::ChoosePeerVersion({3, 4}, {1, 2}).error().hint,
            "upgrade the peer's sidecar: neighbouring releases understand each other");
  EXPECT_EQ(wire::ChoosePeerVersion({1, 1}, {0, 0}).error().code, ErrorCode::kMalformedBody);
  EXPECT_EQ(wire::ChoosePeerVersion({1, 1}, {2, 1}).error().code, ErrorCode::kMalformedBody);
}

TEST(FdTicketProtocolTest, TakesItsOwnMessagesAndNoOthers) {
  const std::string ticket(32, 'a');
  const auto request =
      wire::DecodeFdTicketRequest(wire::Encode({wire::FdTicketVerb::kFds, ticket}));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->ticket, ticket);
  for (const std::string& text :
       {std::string(), std::string("fds "), "fds " + std::string(31, 'a'), "fds " + ticket + " ",
        "lease" + ticket, "FDS " + ticket, "fds " + std::string(32, 'g')}) {
    EXPECT_FALSE(wire::DecodeFdTicketRequest(text)) << text;
  }
  EXPECT_EQ(*wire::DecodeFdTicketReply(wire::EncodeFdTicketReply(size_t{253})), 253u);
  const auto error = wire::DecodeFdTicketReply(
      wire::EncodeFdTicketReply(Fail(ErrorCode::kUnauthenticated, "no such ticket")));
  EXPECT_EQ(error.error().code, ErrorCode::kUnauthenticated);
  for (const char* text :
       {"", "ok", "ok ", "ok -1", "ok 99999999999999999999", "error", "nonsense"}) {
    EXPECT_FALSE(wire::DecodeFdTicketReply(text)) << text;
  }
}

TEST(PeerMessagesTest, SocketNamesStayInTheirDirectory) {
  EXPECT_TRUE(wire::CheckSocketName("prefill.fds.sock"));
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("a/b"),
        std::string(200, 'a'), std::string("a\0b", 3)}) {
    EXPECT_FALSE(wire::CheckSocketName(name)) << name;
  }
}

}  // namespace
}  // namespace gantry::peer
