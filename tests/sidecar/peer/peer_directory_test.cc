// Two whole sidecars over real sockets: what one registers, the other maps, uses and lets go of.
#include "sidecar/peer/link/peer_directory.h"

#include <dirent.h>
#include <sys/stat.h>

#include <atomic>
#include <future>

#include "sidecar/memory/host_memory.h"
#include "tests/sidecar/peer/peer_directory_fixture.h"

namespace gantry::testing {
namespace {

using engine::PeerState;
using RemoteBuffers = std::vector<std::shared_ptr<const engine::RemoteBuffer>>;

int OpenDescriptors() {
  int count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

TEST_F(PeerDirectoryTest, SaysWhoThePeerIsAndWhichPathLeadsThere) {
  const auto info = initiator_.directory().Get("prefill");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->generation, owner_->generation());
  EXPECT_EQ(info->node_id, *peer::ReadNodeId());
  EXPECT_EQ(info->version, "test");
  EXPECT_GT(info->rtt_us, 0u);
  EXPECT_EQ(info->paths.size(), static_cast<size_t>(wire::kPathCount));
  EXPECT_TRUE(Eventually(
      1'000, [&] { return initiator_.HasEvent(engine::EventType::kPeerUp, "prefill"); }));
  EXPECT_EQ(initiator_.directory().List().size(), 1u);
}

TEST_F(PeerDirectoryTest, AnOfferThatThereIsNothingForHereIsNoPath) {
  owner_->StopServer();
  owner_->OfferPaths({{wire::Path::kRdma, true, ""}, {wire::Path::kTcp, false, "it has none"}});
  owner_->StartServer();
  initiator_.DoWithoutRdma("--no-rdma turns it off");
  initiator_.ConnectTo(node_, "prefill");
  const auto info = initiator_.directory().Get("prefill");
  ASSERT_TRUE(info);
  const wire::PathReport& rdma = info->paths.at(static_cast<size_t>(wire::Path::kRdma));
  EXPECT_FALSE(rdma.available);
  EXPECT_EQ(rdma.reason, "not on this side: --no-rdma turns it off");
  EXPECT_FALSE(info->path) << "the path that transfers would take";
  EXPECT_EQ(info->paths.at(static_cast<size_t>(wire::Path::kTcp)).reason, "it has none");
}

TEST_F(PeerDirectoryTest, AcquireDescribesAndMaps) {
  const auto registered =
      owner_->Register({&arena_}, {{"k.0", {{0, 4096, 8192}, {0, 65536, 4096}}, {true, false}}});
  const auto handles = initiator_.Acquire("prefill", {"k.0"});
  ASSERT_TRUE(handles) << handles.error().message;
  const engine::RemoteBuffer& buffer = *handles->front();
  EXPECT_EQ(buffer.reference.generation, registered.front()->description().generation);
  EXPECT_EQ(buffer.length, 12288u);
  EXPECT_EQ(buffer.pieces.Locate(8192, 1).offset, 65536u);
  ASSERT_NE(buffer.allocations.front().mapped, nullptr);
  EXPECT_EQ(buffer.allocations.front().mapped->size(), arena_.size());
  EXPECT_FALSE(buffer.allocations.front().mapped->writable());
  auto mapping = memory::HostMapping::Create(buffer.allocations.front().mapped->fd()->get(),
                                             arena_.size(), false);
  ASSERT_TRUE(mapping);
  EXPECT_EQ(std::memcmp(mapping->data(), arena_.data(), arena_.size()), 0);
}

TEST_F(PeerDirectoryTest, OneMappingOfAnAllocationForEachAccess) {
  std::vector<TestSidecar::View> views;
  std::vector<std::string> names;
  for (uint64_t i = 0; i < 100; ++i) {
    names.push_back("k." + std::to_string(i));
    views.push_back({names.back(), {{0, i * 4096, 4096}}, {true, false}});
  }
  views.push_back({"writable", {{0, 0, 8192}}, {true, true}});
  names.push_back("writable");
  owner_->Register({&arena_}, views);
  ASSERT_TRUE(initiator_.Acquire("prefill", names));
  EXPECT_EQ(mapper_.maps(), 2);
}

TEST_F(PeerDirectoryTest, ManyAllocationsTakeSeveralTickets) {
  std::vector<std::unique_ptr<TestArena>> arenas;
  std::vector<const TestArena*> pointers;
  std::vector<wire::Piece> pieces;
  for (uint32_t i = 0; i < 600; ++i) {
    arenas.push_back(std::make_unique<TestArena>(4096, i));
    pointers.push_back(arenas.back().get());
    pieces.push_back({i, 0, 4096});
  }
  owner_->Register(pointers, {{"vmm", pieces}});
  const auto handles = initiator_.Acquire("prefill", {"vmm"});
  ASSERT_TRUE(handles) << handles.error().message;
  for (size_t i : {0u, 252u, 253u, 599u}) {
    auto mapping = memory::HostMapping::Create(handles->front()->allocations[i].mapped->fd()->get(),
                                               4096, false);
    ASSERT_TRUE(mapping);
    EXPECT_EQ(std::memcmp(mapping->data(), arenas[i]->data(), 4096), 0) << i;
  }
}

TEST_F(PeerDirectoryTest, DescriptorsOfPeersAreLimited) {
  CountingMapper mapper;
  TestSidecar small(node_, "small", mapper);
  small.SetFdsMax(3);
  small.ConnectTo(node_, "prefill");
  TestArena second(4096), third(4096);
  owner_->Register({&arena_, &second}, {{"two", {{0, 0, 4096}, {1, 0, 4096}}}});
  owner_->Register({&third, &arena_}, {{"others", {{0, 0, 4096}, {1, 0, 4096}}, {true, false}}});
  auto handles = small.Acquire("prefill", {"two"});
  ASSERT_TRUE(handles) << handles.error().message;
  EXPECT_EQ(small.directory().fds_held(), 2u);
  const auto over = small.Acquire("prefill", {"others"});
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(over.error().hint.empty());
  EXPECT_EQ(small.directory().fds_held(), 2u);
  handles = RemoteBuffers();
  ASSERT_TRUE(small.directory().Remove("prefill", In(5'000)));
  EXPECT_EQ(small.directory().fds_held(), 0u);
  small.ConnectTo(node_, "prefill");
  EXPECT_TRUE(small.Acquire("prefill", {"others"}));
}

TEST_F(PeerDirectoryTest, ManyCallersMapOnce) {
  mapper_.SetMapTime(milliseconds(30));
  owner_->Register(arena_, "k.0");
  std::vector<std::future<bool>> callers;
  for (int i = 0; i < 8; ++i) {
    callers.push_back(std::async(
        std::launch::async, [&] { return initiator_.Acquire("prefill", {"k.0"}).has_value(); }));
  }
  for (auto& caller : callers) EXPECT_TRUE(caller.get());
  EXPECT_EQ(mapper_.maps(), 1);
}

TEST_F(PeerDirectoryTest, CachedBuffersCostNoCall) {
  std::vector<TestSidecar::View> views;
  std::vector<wire::BufferReference> references;
  for (uint64_t i = 0; i < 64; ++i) {
    views.push_back({"model.layers." + std::to_string(i) + ".kv", {{0, i * 4096, 4096}}});
    references.push_back({"prefill", "engine", views.back().name, 0});
  }
  owner_->Register({&arena_}, views);
  const RemoteBuffers kept =
      *initiator_.directory().Acquire("prefill", references, engine::RemoteUse::kMove, In(5'000));
  constexpr int kRounds = 1'000;
  const TimePoint begin = Clock::now();
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(
        initiator_.directory().Acquire("prefill", references, engine::RemoteUse::kMove, In(5'000)));
  }
  const double nanoseconds =
      SecondsBetween(begin, Clock::now()) * 1e9 / kRounds / static_cast<double>(references.size());
  RecordProperty("nanoseconds_per_buffer", static_cast<int>(nanoseconds));
  EXPECT_LT(nanoseconds, 50'000) << "a call would take longer";
}

TEST_F(PeerDirectoryTest, AllOrNone) {
  owner_->Register(arena_, "k.0");
  const auto handles = initiator_.Acquire("prefill", {"k.0", "k.1"});
  ASSERT_FALSE(handles);
  EXPECT_EQ(handles.error().code, ErrorCode::kUnregistered);
  EXPECT_NE(handles.error().message.find("k.1"), std::string::npos);
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(PeerDirectoryTest, AMappingThatFailsLeavesNothing) {
  TestArena second(4096);
  owner_->Register(arena_, "k.0");
  owner_->Register(second, "k.1");
  mapper_.FailMap(2);
  EXPECT_FALSE(initiator_.Acquire("prefill", {"k.0", "k.1"}));
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_TRUE(initiator_.Acquire("prefill", {"k.0", "k.1"}));
}

TEST_F(PeerDirectoryTest, ABufferRegisteredAnewIsDescribedAnew) {
  const auto old = owner_->Register(arena_, "k.0");
  const uint64_t old_generation = old->description().generation;
  ASSERT_TRUE(initiator_.Acquire("prefill", {"k.0"}, old_generation));
  ASSERT_TRUE(owner_->registry().Remove(old->description().id, In(5'000)));
  const auto anew = owner_->Register(arena_, "k.0");
  const auto stale = initiator_.Acquire("prefill", {"k.0"}, old_generation);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, ErrorCode::kStaleGeneration);
  const auto fresh = initiator_.Acquire("prefill", {"k.0"}, anew->description().generation);
  ASSERT_TRUE(fresh) << fresh.error().message;
}

TEST_F(PeerDirectoryTest, ARestartedPeerIsNeverReadThroughAnOldMapping) {
  const uint64_t old_generation = owner_->Register(arena_, "k.0")->description().generation;
  auto handles = *initiator_.Acquire("prefill", {"k.0"});
  const memory::MappingId old_mapping = handles.front()->allocations.front().mapped->mapping();
  const uint64_t old_peer = owner_->generation();
  handles.clear();
  RestartOwner();
  TestArena other(1 << 20, 7);
  owner_->Register(other, "k.0");
  ASSERT_TRUE(Eventually(5'000, [&] {
    const auto info = initiator_.directory().Get("prefill");
    return info->state == PeerState::kUp && info->generation != old_peer;
  }));
  EXPECT_FALSE(mapper_.IsLive(old_mapping));
  EXPECT_EQ(initiator_.Acquire("prefill", {"k.0"}, old_generation).error().code,
            ErrorCode::kStaleGeneration);
  const auto fresh = initiator_.Acquire("prefill", {"k.0"});
  ASSERT_TRUE(fresh) << fresh.error().message;
  EXPECT_NE(fresh->front()->allocations.front().mapped->mapping(), old_mapping);
  EXPECT_TRUE(Eventually(
      1'000, [&] { return initiator_.HasEvent(engine::EventType::kPeerDown, "prefill"); }));
}

TEST_F(PeerDirectoryTest, ALostPeersTransfersAreStoppedAndItsMemoryStaysUntilTheyAreQuiet) {
  owner_->Register(arena_, "k.0");
  auto handles = *initiator_.Acquire("prefill", {"k.0"});
  owner_->StopServer();
  ASSERT_TRUE(Eventually(1'000, [&] { return !initiator_.stopped().empty(); }));
  EXPECT_EQ(initiator_.stopped().front().why.code, ErrorCode::kPeerLost);
  EXPECT_EQ(initiator_.StateOf("prefill"), PeerState::kDown);
  EXPECT_EQ(initiator_.Acquire("prefill", {"k.0"}).error().code, ErrorCode::kPeerUnavailable);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(mapper_.live(), 1u) << "unmapped under a running transfer";
  handles.clear();
  EXPECT_TRUE(Eventually(1'000, [&] { return mapper_.live() == 0; }));
}

TEST_F(PeerDirectoryTest, RemoveUnmapsNow) {
  owner_->Register(arena_, "k.0");
  auto handles = *initiator_.Acquire("prefill", {"k.0"});
  const Status early = initiator_.directory().Remove("prefill", In(100));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(initiator_.stopped().empty());
  EXPECT_EQ(mapper_.live(), 1u);
  handles.clear();
  ASSERT_TRUE(initiator_.directory().Remove("prefill", In(5'000)));
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_EQ(initiator_.directory().Get("prefill").error().code, ErrorCode::kNotFound);
  initiator_.ConnectTo(node_, "prefill");
}

TEST_F(PeerDirectoryTest, AnotherAddressIsAnotherPeer) {
  TestSidecar second(node_, "prefill-2", owner_mapper_);
  second.StartServer();
  owner_->Register(arena_, "k.0");
  ASSERT_TRUE(initiator_.Acquire("prefill", {"k.0"}));
  const auto same = initiator_.directory().Put("prefill", node_.AddressOf("prefill"), In(5'000));
  EXPECT_EQ(same->generation, owner_->generation());
  EXPECT_EQ(mapper_.live(), 1u);
  const auto info = initiator_.directory().Put("prefill", node_.AddressOf("prefill-2"), In(5'000));
  ASSERT_TRUE(info);
  EXPECT_EQ(info->generation, second.generation());
  EXPECT_EQ(mapper_.live(), 0u);
  second.StopServer();
}

TEST_F(PeerDirectoryTest, AnotherAddressUnmapsTheOldPeerHoweverShortTheWaitIs) {
  owner_->Register(arena_, "k.0");
  ASSERT_TRUE(initiator_.Acquire("prefill", {"k.0"}));
  EXPECT_EQ(mapper_.live(), 1u);
  const auto info = initiator_.directory().Put("prefill", node_.AddressOf("prefill-2"), In(0));
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->state, PeerState::kConnecting);
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(PeerDirectoryTest, CloseEndsTheWaitsAndLeavesWhatIsInUse) {
  CountingMapper mapper;
  TestSidecar closing(node_, "closing", mapper);
  closing.ConnectTo(node_, "prefill");
  const auto buffer = owner_->Register(arena_, "k.0");
  auto handles = *closing.Acquire("prefill", {"k.0"});
  auto put = std::async(std::launch::async, [&] {
    return closing.directory().Put("x", "unix:/nonexistent/x.peer.sock", In(20'000)).error().code;
  });
  std::this_thread::sleep_for(milliseconds(100));
  const TimePoint begin = Clock::now();
  closing.directory().Close();
  closing.directory().Close();
  EXPECT_EQ(put.get(), ErrorCode::kShuttingDown);
  EXPECT_LT(Clock::now() - begin, milliseconds(1'000));
  EXPECT_EQ(closing.directory().Put("y", node_.AddressOf("prefill"), In(20'000)).error().code,
            ErrorCode::kShuttingDown);
  EXPECT_EQ(closing.Acquire("prefill", {"k.1"}).error().code, ErrorCode::kShuttingDown);
  EXPECT_EQ(closing.StateOf("prefill"), PeerState::kUp);
  EXPECT_TRUE(Waits(RemoveAsync(*buffer, 1'000), 250)) << "it is in use";
  EXPECT_EQ(mapper.live(), 1u);
  handles.clear();
  EXPECT_TRUE(RemoveAsync(*buffer, 5'000).get());
  EXPECT_EQ(mapper.live(), 0u);
}

TEST_F(PeerDirectoryTest, CloseEndsTheWaitForARemoval) {
  CountingMapper mapper;
  TestSidecar closing(node_, "closing", mapper);
  closing.ConnectTo(node_, "prefill");
  owner_->Register(arena_, "k.0");
  auto handles = *closing.Acquire("prefill", {"k.0"});
  auto removal = std::async(std::launch::async,
                            [&] { return closing.directory().Remove("prefill", In(20'000)); });
  std::this_thread::sleep_for(milliseconds(100));
  closing.directory().Close();
  ASSERT_EQ(removal.wait_for(milliseconds(1'000)), std::future_status::ready);
  EXPECT_EQ(removal.get().error().code, ErrorCode::kShuttingDown);
  EXPECT_EQ(mapper.live(), 1u);
}

TEST_F(PeerDirectoryTest, AddressesThatLeadNowhereSaySo) {
  auto& directory = initiator_.directory();
  EXPECT_EQ(directory.Put("x", "10.0.0.1:7000", In(0)).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(directory.Put("x", "10.0.0.1", In(0)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(directory.Put("x", "unix:relative", In(0)).error().code, ErrorCode::kInvalidArgument);
  const auto info = initiator_.Try("unix:/nonexistent/x.peer.sock", "x");
  EXPECT_EQ(info.state, PeerState::kConnecting);
  ASSERT_TRUE(info.error);
  EXPECT_EQ(info.error->code, ErrorCode::kPeerUnavailable);
  initiator_.StartServer();
  const auto self = initiator_.Try(node_.AddressOf("decode"), "self");
  ASSERT_TRUE(self.error);
  EXPECT_EQ(self.error->code, ErrorCode::kInvalidArgument);
  initiator_.StopServer();
}

TEST_F(PeerDirectoryTest, APeerThatComesLaterIsFound) {
  auto& directory = initiator_.directory();
  ASSERT_TRUE(directory.Put("late", node_.AddressOf("late"), In(0)));
  TestSidecar late(node_, "late", owner_mapper_);
  late.StartServer();
  EXPECT_TRUE(Eventually(10'000, [&] { return initiator_.StateOf("late") == PeerState::kUp; }));
  EXPECT_TRUE(directory.Remove("late", In(5'000)));
}

TEST_F(PeerDirectoryTest, RoundsLeaveNoDescriptorBehind) {
  int after_first = 0;
  for (int round = 0; round < 20; ++round) {
    const auto buffer = owner_->Register(arena_, "k.0");
    ASSERT_TRUE(initiator_.Acquire("prefill", {"k.0"}));
    if (round % 2 == 0) {
      ASSERT_TRUE(owner_->registry().Remove(buffer->description().id, In(5'000)));
    } else {
      ASSERT_TRUE(initiator_.directory().Remove("prefill", In(5'000)));
      ASSERT_TRUE(owner_->registry().Remove(buffer->description().id, In(5'000)));
      initiator_.ConnectTo(node_, "prefill");
    }
    if (round == 3) after_first = OpenDescriptors();
  }
  EXPECT_TRUE(Eventually(2'000, [&] { return OpenDescriptors() <= after_first; }))
      << OpenDescriptors() << " after " << after_first;
}

TEST_F(PeerDirectoryTest, SocketsHaveTheirMode) {
  for (const char* name : {"/prefill.peer.sock", "/prefill.fds.sock"}) {
    struct stat info = {};
    ASSERT_EQ(::stat((node_.path() + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0660u);
  }
}

}  // namespace
}  // namespace gantry::testing
