// The owner's side against a hand-made initiator: what it tells, to whom it hands descriptors, and
// when it takes a buffer for unmapped.
#include "sidecar/peer/server/peer_server.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <future>

#include "tests/sidecar/peer/raw_initiator.h"

namespace gantry::testing {
namespace {

class PeerServerTest : public ::testing::Test {
 protected:
  void SetUp() override { owner_.StartServer(); }

  std::unique_ptr<RawInitiator> Initiator(const std::string& name = "decode") {
    auto initiator = std::make_unique<RawInitiator>(node_, "prefill", name);
    initiator->OpenSession(owner_.generation());
    return initiator;
  }

  NodeDir node_;
  CountingMapper mapper_;
  TestArena arena_{1 << 20};
  TestSidecar owner_{node_, "prefill", mapper_};
};

TEST_F(PeerServerTest, HelloSaysWhoAndWhichPathsAndWhyNot) {
  RawInitiator initiator(node_, "prefill", "decode");
  const auto reply = initiator.Hello();
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->owner().name(), "prefill");
  EXPECT_EQ(reply->owner().generation(), owner_.generation());
  const auto paths = wire::FromMessage(reply->paths());
  ASSERT_TRUE(paths);
  for (const wire::PathReport& report : *paths) {
    EXPECT_NE(report.available, !report.reason.empty()) << NameOf(report.path);
  }
}

TEST_F(PeerServerTest, VersionMismatchIsExplained) {
  RawInitiator initiator(node_, "prefill", "decode");
  const auto reply = initiator.Hello(7, 8);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kVersionMismatch);
  EXPECT_NE(reply.error().message.find("7 to 8"), std::string::npos) << reply.error().message;
  EXPECT_FALSE(reply.error().hint.empty());
}

TEST_F(PeerServerTest, DescribesTheRegisteredState) {
  owner_.Register({&arena_}, {{"k.0",
                               {{0, 4096, 8192}, {0, 65536, 4096}},
                               {true, false},
                               wire::BlockLayout{1024, 2048, 6}}});
  const auto buffer = Initiator()->Describe("k.0");
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(buffer->length(), 12288u);
  EXPECT_EQ(buffer->pieces_size(), 2);
  EXPECT_EQ(buffer->pieces(1).offset(), 65536u);
  EXPECT_EQ(buffer->allocations(0).size(), arena_.size());
  EXPECT_TRUE(buffer->remote_read());
  EXPECT_FALSE(buffer->remote_write());
  EXPECT_EQ(buffer->layout().blocks(), 6u);
}

TEST_F(PeerServerTest, ABufferThatIsNotOpenToPeersIsNotDescribed) {
  owner_.Register(arena_, "private", {false, false});
  const auto buffer = Initiator()->Describe("private");
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kPermissionDenied);
}

TEST_F(PeerServerTest, StaleGenerationsAreRefused) {
  const auto buffer = owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  EXPECT_EQ(initiator->Describe("k.0", buffer->description().generation + 1).error().code,
            ErrorCode::kStaleGeneration);
  RawInitiator late(node_, "prefill", "late");
  EXPECT_FALSE(late.Watch(owner_.generation() + 1));
}

TEST_F(PeerServerTest, ATicketIsGoodOnce) {
  owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  const std::string ticket = initiator->TicketFor(*initiator->Describe("k.0"), true);
  const auto first = initiator->Exchange(initiator->lease(), "fds " + ticket);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->fds.size(), 1u);
  const auto again = initiator->Exchange(initiator->lease(), "fds " + ticket);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUnauthenticated);
}

TEST_F(PeerServerTest, ForgedAndStolenTicketsGetNothing) {
  owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  auto thief = Initiator("thief");
  EXPECT_FALSE(thief->Exchange(thief->lease(), "fds " + RandomToken()));
  const std::string ticket = initiator->TicketFor(*initiator->Describe("k.0"), true);
  EXPECT_FALSE(thief->Exchange(thief->lease(), "fds " + ticket));
  EXPECT_FALSE(initiator->Exchange(initiator->lease(), "fds " + ticket))
      << "it was seen: it is void";
  const UniqueFd bare = initiator->ConnectFds();
  const std::string other = initiator->TicketFor(*initiator->Describe("k.0"), true);
  EXPECT_FALSE(initiator->Exchange(bare.get(), "fds " + other)) << "no lease on this connection";
  EXPECT_FALSE(thief->Exchange(bare.get(), "lease " + initiator->started().lease_ticket()));
}

TEST_F(PeerServerTest, ATicketExpires) {
  owner_.StopServer();
  owner_.server_options().ticket_ttl = milliseconds(50);
  owner_.StartServer();
  owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  const std::string ticket = initiator->TicketFor(*initiator->Describe("k.0"), true);
  std::this_thread::sleep_for(milliseconds(120));
  EXPECT_FALSE(initiator->Exchange(initiator->lease(), "fds " + ticket));
}

TEST_F(PeerServerTest, DescriptorsInTicketsAreLimited) {
  owner_.StopServer();
  owner_.server_options().fds_max = 2;
  owner_.StartServer();
  owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  const auto buffer = initiator->Describe("k.0");
  ASSERT_TRUE(buffer);
  const uint64_t allocation = buffer->allocations(0).id();
  const std::string ticket = initiator->TicketFor(*buffer, true);
  EXPECT_FALSE(initiator->Connect(*buffer, true, allocation + 1)) << "and holds no place";
  ASSERT_TRUE(initiator->Connect(*buffer, false, allocation));
  EXPECT_EQ(owner_.server().Totals().fds, 2u);
  const auto over = initiator->Connect(*buffer, false, allocation);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(over.error().hint.empty());
  ASSERT_TRUE(initiator->Exchange(initiator->lease(), "fds " + ticket));
  EXPECT_TRUE(Eventually(1'000, [&] { return owner_.server().Totals().fds == 1; }));
  EXPECT_TRUE(initiator->Connect(*buffer, true, allocation));
}

TEST_F(PeerServerTest, ConnectNeedsADescriptionALeaseAndTheBuffersOwnAllocation) {
  TestArena other(4096);
  owner_.Register(arena_, "k.0", {true, false});
  const auto secret = owner_.Register(other, "secret", {false, false});
  RawInitiator initiator(node_, "prefill", "decode");
  ASSERT_TRUE(initiator.Watch(owner_.generation()));
  const auto buffer = initiator.Describe("k.0");
  ASSERT_TRUE(buffer);
  const uint64_t allocation = buffer->allocations(0).id();
  EXPECT_EQ(initiator.Connect(*buffer, false, allocation).error().code,
            ErrorCode::kPermissionDenied)
      << "no lease connection yet";
  initiator.OpenLease();
  EXPECT_TRUE(initiator.Connect(*buffer, false, allocation));
  EXPECT_EQ(initiator.Connect(*buffer, true, allocation).error().code, ErrorCode::kPermissionDenied)
      << "not open for writing";
  EXPECT_EQ(initiator.Connect(*buffer, false, secret->description().allocation_ids[0]).error().code,
            ErrorCode::kPermissionDenied)
      << "an allocation of another buffer";
  v1::BufferDescriptor undescribed;
  undescribed.set_id(secret->description().id);
  undescribed.set_generation(secret->description().generation);
  EXPECT_EQ(
      initiator.Connect(undescribed, false, secret->description().allocation_ids[0]).error().code,
      ErrorCode::kStaleGeneration);
}

TEST_F(PeerServerTest, AReadOnlyDescriptorCannotBeMappedForWriting) {
  owner_.Register({&arena_}, {{"read", {{0, 0, 4096}}, {true, false}},
                              {"write", {{0, 4096, 4096}}, {true, true}}});
  auto initiator = Initiator();
  const auto fetch = [&](const std::string& name, bool writable) {
    const std::string ticket = initiator->TicketFor(*initiator->Describe(name), writable);
    auto reply = initiator->Exchange(initiator->lease(), "fds " + ticket);
    EXPECT_TRUE(reply);
    return std::move(reply->fds.front());
  };
  const auto map = [&](const UniqueFd& fd, int protection) {
    return ::mmap(nullptr, arena_.size(), protection, MAP_SHARED, fd.get(), 0);
  };
  const UniqueFd read_only = fetch("read", false);
  EXPECT_EQ(map(read_only, PROT_READ | PROT_WRITE), MAP_FAILED);
  void* readable = map(read_only, PROT_READ);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_NE(::mprotect(readable, 4096, PROT_READ | PROT_WRITE), 0);
  ::munmap(readable, arena_.size());
  EXPECT_EQ(map(fetch("write", false), PROT_READ | PROT_WRITE), MAP_FAILED) << "asked for reading";
  void* writable = map(fetch("write", true), PROT_READ | PROT_WRITE);
  ASSERT_NE(writable, MAP_FAILED);
  ::munmap(writable, arena_.size());
}

TEST_F(PeerServerTest, RevocationWaitsForTheAcknowledgement) {
  const auto buffer = owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  ASSERT_TRUE(initiator->Describe("k.0"));
  auto removal = std::async(std::launch::async, [&] {
    return owner_.registry().Remove(buffer->description().id, In(10'000));
  });
  const auto event = initiator->Next();
  ASSERT_TRUE(event && event->has_revoked());
  EXPECT_EQ(event->revoked().buffer_generation(), buffer->description().generation);
  EXPECT_LT(event->revoked().grace_ms(), event->revoked().deadline_ms());
  EXPECT_EQ(removal.wait_for(milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(mapper_.unmaps(), 0) << "released before the initiator confirmed";
  EXPECT_EQ(initiator->Describe("k.0").error().code, ErrorCode::kUnregistered);
  ASSERT_TRUE(initiator->Acknowledge(event->revoked().revocation()));
  EXPECT_TRUE(removal.get());
  EXPECT_EQ(mapper_.unmaps(), 1);
}

TEST_F(PeerServerTest, RevocationNamesThoseThatDoNotConfirm) {
  const auto buffer = owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  ASSERT_TRUE(initiator->Describe("k.0"));
  const TimePoint begin = Clock::now();
  const Status removed = owner_.registry().Remove(buffer->description().id, In(150));
  EXPECT_GE(Clock::now() - begin, milliseconds(145));
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(removed.error().message.find("decode"), std::string::npos) << removed.error().message;
  EXPECT_EQ(mapper_.unmaps(), 0);
}

// What an initiator was told holds: neither who asks again nor the clock shortens its time, and one
// that stands still holds no other buffer than its own.
TEST_F(PeerServerTest, AnInitiatorIsToldOnceAndHoldsOnlyItsBuffer) {
  const TestArena other(1 << 20);
  const auto held = owner_.Register(arena_, "held");
  const auto idle = owner_.Register(other, "idle");
  auto initiator = Initiator("decode-3");
  auto bystander = Initiator("decode-4");
  ASSERT_TRUE(initiator->Describe("held"));
  ASSERT_TRUE(bystander->Describe("idle"));
  const std::string id = held->description().id;
  auto removal =
      std::async(std::launch::async, [&] { return owner_.registry().Remove(id, In(20'000)); });
  const auto told = initiator->Next();
  ASSERT_TRUE(told && told->has_revoked());
  EXPECT_GE(told->revoked().grace_ms(), 14'000u);
  std::thread confirms([&] {
    const auto event = bystander->Next();
    ASSERT_TRUE(event && event->has_revoked());
    EXPECT_TRUE(bystander->Acknowledge(event->revoked().revocation()));
  });
  const Status late = owner_.registry().RemoveAll("engine", 0, In(300));
  confirms.join();
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("(decode-3)"), std::string::npos) << late.error().message;
  EXPECT_EQ(idle->state(), registry::BufferState::kGone);
  EXPECT_EQ(held->state(), registry::BufferState::kDraining);
  EXPECT_TRUE(owner_.registry().FinishRemovals(In(10)));
  // The next thing that it hears is the end of its stream, no second revocation.
  ASSERT_TRUE(initiator->Acknowledge(told->revoked().revocation()));
  EXPECT_TRUE(removal.get());
  owner_.StopServer();
  const auto next = initiator->Next();
  EXPECT_FALSE(next && next->has_revoked());
}

TEST_F(PeerServerTest, CloseEndsTheWaitForPeers) {
  const auto buffer = owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  ASSERT_TRUE(initiator->Describe("k.0"));
  const TimePoint begin = Clock::now();
  auto removal = std::async(std::launch::async, [&] {
    return owner_.registry().Remove(buffer->description().id, In(20'000));
  });
  ASSERT_TRUE(initiator->Next());
  owner_.server().Close();
  owner_.server().Close();
  const Status removed = removal.get();
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
  EXPECT_EQ(mapper_.unmaps(), 0);
  RawInitiator newcomer(node_, "prefill", "late");
  EXPECT_FALSE(newcomer.Watch(owner_.generation()));
}

// A suspended buffer may come back, and be described again, before the initiator has confirmed that
// the mapping of the first description is gone.
TEST_F(PeerServerTest, AnAcknowledgementDoesNotCoverALaterDescription) {
  const auto buffer = owner_.Register(arena_, "k.0");
  const std::string id = buffer->description().id;
  auto initiator = Initiator();
  ASSERT_TRUE(initiator->Describe("k.0"));
  auto suspension =
      std::async(std::launch::async, [&] { return owner_.registry().Suspend(id, In(5'000)); });
  const auto suspended = initiator->Next();
  ASSERT_TRUE(suspended && suspended->has_revoked());
  EXPECT_EQ(initiator->Describe("k.0").error().code, ErrorCode::kDraining);
  ASSERT_TRUE(owner_.registry().Resume(id));
  const auto again = initiator->Describe("k.0");
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_TRUE(initiator->Acknowledge(suspended->revoked().revocation()));
  suspension.get();  // returns: the first description was confirmed
  EXPECT_TRUE(initiator->Connect(*again, false, again->allocations(0).id()));
  ASSERT_FALSE(owner_.registry().Remove(id, In(100))) << "the second one was forgotten";
  EXPECT_EQ(mapper_.unmaps(), 0);
  const auto removed = initiator->Next();
  ASSERT_TRUE(removed && removed->has_revoked());
  ASSERT_TRUE(initiator->Acknowledge(removed->revoked().revocation()));
  EXPECT_TRUE(owner_.registry().Remove(id, In(5'000)));
}

// The stream may break while the process lives and copies; its memory counts as mapped until the
// lease connection ends.
TEST_F(PeerServerTest, ABrokenStreamConfirmsNothingTheEndOfTheLeaseDoes) {
  const auto buffer = owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  ASSERT_TRUE(initiator->Describe("k.0"));
  initiator->EndWatch();
  EXPECT_FALSE(owner_.registry().Remove(buffer->description().id, In(150)));
  EXPECT_EQ(mapper_.unmaps(), 0);
  initiator->CloseLease();
  EXPECT_TRUE(owner_.registry().Remove(buffer->description().id, In(5'000)));
  EXPECT_EQ(mapper_.unmaps(), 1);
}

TEST_F(PeerServerTest, RevokedTicketsAreVoid) {
  const auto buffer = owner_.Register(arena_, "k.0");
  auto initiator = Initiator();
  const std::string ticket = initiator->TicketFor(*initiator->Describe("k.0"), true);
  EXPECT_FALSE(owner_.registry().Remove(buffer->description().id, In(20)));
  EXPECT_FALSE(initiator->Exchange(initiator->lease(), "fds " + ticket));
}

TEST_F(PeerServerTest, AnInitiatorThatDoesNotReadHoldsNobodyUp) {
  owner_.Register(arena_, "k.0");
  auto slow = Initiator("slow");
  const timeval patience = {0, 50'000};  // its own sending blocks once nobody reads
  ASSERT_EQ(::setsockopt(slow->lease(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
  for (int i = 0; i < 2'000; ++i) {
    if (!SendMessage(slow->lease(), "fds " + RandomToken(), {})) break;
  }
  auto initiator = Initiator();
  const TimePoint begin = Clock::now();
  const std::string ticket = initiator->TicketFor(*initiator->Describe("k.0"), true);
  EXPECT_TRUE(initiator->Exchange(initiator->lease(), "fds " + ticket));
  EXPECT_LT(Clock::now() - begin, milliseconds(3'000));
}

TEST_F(PeerServerTest, ConnectionsOfTheDescriptorSocketAreLimited) {
  owner_.StopServer();
  owner_.server_options().connections_max = 4;
  owner_.StartServer();
  RawInitiator initiator(node_, "prefill", "decode");
  std::vector<UniqueFd> connections;
  for (int i = 0; i < 8; ++i) connections.push_back(initiator.ConnectFds());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_LE(owner_.server().Totals().connections, 4u);
  connections.clear();
  EXPECT_TRUE(Eventually(3'000, [&] { return owner_.server().Totals().connections == 0; }));
  EXPECT_TRUE(Initiator());
}

TEST_F(PeerServerTest, AStrangersUidIsTurnedAway) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to become another user";
  owner_.StopServer();
  owner_.server_options().socket_mode = 0666;
  owner_.StartServer();
  ::chmod(node_.path().c_str(), 0755);
  const std::string path = node_.path() + "/prefill.fds.sock";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(3);
    auto fd = ConnectUnix(path, SOCK_SEQPACKET);
    if (!fd) ::_exit(2);
    // Sooner than the end that awaits everybody without a lease.
    const timeval patience = {2, 0};
    ::setsockopt(fd->get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    auto reply = ReceiveMessage(fd->get(), 64);
    const bool turned_away = reply ? reply->closed : reply.error().code == ErrorCode::kPeerLost;
    ::_exit(turned_away ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the connection was not closed";
}

TEST_F(PeerServerTest, ANameIsHeldByOneLivingSidecar) {
  TestSidecar second(node_, "prefill", mapper_);
  const auto server = peer::PeerServer::Start(second.server_options(), second.registry());
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::kConflict);
  EXPECT_TRUE(RawInitiator(node_, "prefill", "decode").Hello()) << "the first one lost its socket";
}

}  // namespace
}  // namespace gantry::testing
