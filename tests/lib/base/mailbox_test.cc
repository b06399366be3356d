#include "lib/base/mailbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/input_wait.h"
#include "tests/lib/base/socket_pair.h"

namespace gantry {
namespace {

using std::chrono::seconds;

// Both ends take turns so often that a busy machine needs minutes for all: then fewer have to do.
constexpr seconds kTurnsMax{20};

class MailboxTest : public ::testing::Test {
 protected:
  static std::string Read(Mailbox& end) {
    std::array<char, Mailbox::kMessageBytesMax> bytes;
    const auto taken = end.Take(bytes);
    EXPECT_TRUE(taken) << taken.error().message;
    return taken ? std::string(bytes.data(), *taken) : "";
  }
  static Mailbox EndOf(const UniqueFd& memory, Mailbox::End end) {
    return Mailbox::Map(memory.get(), end).value();
  }

  UniqueFd memory_ = Mailbox::CreateMemory().value();
  Mailbox server_ = EndOf(memory_, Mailbox::End::kServer);
  Mailbox client_ = EndOf(memory_, Mailbox::End::kClient);
};

TEST_F(MailboxTest, WhoLooksGetsWhatIsOffered) {
  EXPECT_FALSE(client_.Offer("lost?")) << "nobody looks";
  EXPECT_FALSE(server_.HasMessage());
  server_.Look();
  EXPECT_TRUE(client_.IsLookedAt());
  EXPECT_FALSE(server_.IsLookedAt());
  ASSERT_TRUE(client_.Offer("one ", "message"));
  EXPECT_TRUE(server_.HasMessage());
  EXPECT_EQ(Read(server_), "one message");
  EXPECT_FALSE(server_.HasMessage());
  EXPECT_EQ(Read(server_), "");
  client_.Look();
  ASSERT_TRUE(server_.Offer("answer"));
  EXPECT_EQ(Read(client_), "answer");
  server_.StopLooking();
  EXPECT_FALSE(client_.Offer("lost?"));
  EXPECT_TRUE(server_.Offer("the other way is another one"));
}

TEST_F(MailboxTest, OneMessageAtATimeAndNoneThatDoesNotFit) {
  server_.Look();
  EXPECT_FALSE(client_.Offer("", ""));
  const std::string most(Mailbox::kMessageBytesMax, 'm');
  EXPECT_FALSE(client_.Offer(most, "1"));
  ASSERT_TRUE(client_.Offer(most.substr(1), "1"));
  EXPECT_FALSE(client_.Offer("two"));
  EXPECT_EQ(Read(server_), most.substr(1) + "1");
  EXPECT_TRUE(client_.Offer("two"));
}

TEST_F(MailboxTest, WhatWasNotReadCanBeTakenBackOnce) {
  EXPECT_FALSE(client_.TakeBack());
  server_.Look();
  ASSERT_TRUE(client_.Offer("one"));
  EXPECT_TRUE(client_.TakeBack());
  EXPECT_FALSE(client_.TakeBack());
  EXPECT_EQ(Read(server_), "");
  ASSERT_TRUE(client_.Offer("two"));
  EXPECT_EQ(Read(server_), "two");
  EXPECT_FALSE(client_.TakeBack());
}

// Whoever has the memory may write anything into it.
TEST_F(MailboxTest, LengthsFromTheOtherSideAreNotBelieved) {
  auto* const words = static_cast<uint32_t*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0));
  ASSERT_NE(static_cast<void*>(words), MAP_FAILED);
  std::array<char, Mailbox::kMessageBytesMax> bytes;
  for (const uint32_t length : {8'001U, 1U << 31, UINT32_MAX - 1, UINT32_MAX}) {
    words[16] = length;  // the second line of the first slot
    EXPECT_TRUE(server_.HasMessage());
    const auto taken = server_.Take(bytes);
    ASSERT_FALSE(taken) << length;
    EXPECT_EQ(taken.error().code, ErrorCode::kPeerLost);
  }
  words[16] = 2;
  EXPECT_FALSE(server_.Take(std::span(bytes).first(1))) << "more than the reader has room for";
  EXPECT_EQ(server_.Take(bytes).value(), 2U);
  ::munmap(words, 4096);
}

TEST_F(MailboxTest, MemoryThatCouldShrinkIsRefused) {
  EXPECT_NE(::ftruncate(memory_.get(), 0), 0);
  EXPECT_NE(::ftruncate(memory_.get(), 1 << 20), 0);
  const auto refused = [](int fd) {
    const auto end = Mailbox::Map(fd, Mailbox::End::kClient);
    return !end && end.error().code == ErrorCode::kInvalidArgument;
  };
  const UniqueFd open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const off_t size = ::lseek(memory_.get(), 0, SEEK_END);
  ASSERT_EQ(::ftruncate(open.get(), size), 0);
  EXPECT_TRUE(refused(open.get()));
  ASSERT_EQ(::fcntl(open.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(refused(open.get()));
  ASSERT_EQ(::ftruncate(open.get(), size + 4096), 0);
  EXPECT_TRUE(refused(open.get())) << "of another size";
  EXPECT_TRUE(refused(-1));
  const auto [here, there] = testing::SocketPair();
  EXPECT_TRUE(refused(here.get()));
}

// The reader stops looking again and again: what was accepted arrives once and in order, and
// nothing else does.
TEST_F(MailboxTest, NothingIsLostOrDoubledWhereTheReaderStopsLooking) {
  constexpr size_t kMessages = 5'000;
  std::vector<std::string> accepted, arrived;
  std::atomic<bool> ended = false;
  std::thread reader([&] {
    const auto take = [&] {
      if (std::string text = Read(server_); !text.empty()) arrived.push_back(std::move(text));
    };
    for (unsigned turn = 0; !ended; ++turn) {
      server_.Look();
      for (unsigned looks = 0; looks < turn % 7; ++looks) take();
      if (turn % 16 == 0) std::this_thread::yield();  // where there is one processor
      server_.StopLooking();
      take();
    }
    take();
  });
  const TimePoint late = Clock::now() + kTurnsMax;
  for (size_t i = 0; accepted.size() < kMessages && Clock::now() < late; ++i) {
    if (client_.Offer(std::to_string(i))) {
      accepted.push_back(std::to_string(i));
    } else if (i % 8 == 0) {
      std::this_thread::yield();
    }
  }
  ended = true;
  reader.join();
  EXPECT_GT(accepted.size(), 0U);
  EXPECT_EQ(arrived, accepted);
}

// The reader takes once more after it stopped looking, and then never again: what came too late for
// that was not accepted.
TEST_F(MailboxTest, WhatIsAcceptedIsThereWhenTheReaderTakesForTheLastTime) {
  constexpr int kRounds = 30'000;
  std::atomic<int> round = 0, offered = 0;
  std::atomic<bool> ended = false;
  int accepted = 0;
  std::thread writer([&] {
    for (int i = 1;; ++i) {
      while (round < i && !ended) std::this_thread::yield();
      if (ended) return;
      accepted += client_.Offer("message") ? 1 : 0;
      offered = i;
    }
  });
  int arrived = 0, left = 0;
  const TimePoint late = Clock::now() + kTurnsMax;
  for (int i = 1; i <= kRounds && Clock::now() < late; ++i) {
    server_.Look();
    round = i;
    for (volatile int wait = i % 64; wait > 0;) wait = wait - 1;
    while (i % 100 == 0 && offered < i) std::this_thread::yield();
    server_.StopLooking();
    arrived += Read(server_).empty() ? 0 : 1;
    while (offered < i) std::this_thread::yield();
    if (server_.HasMessage()) {
      ++left;
      Read(server_);
    }
  }
  ended = true;  // it waits for a round
  writer.join();
  EXPECT_EQ(left, 0);
  EXPECT_EQ(arrived, accepted);
  EXPECT_GT(arrived, 0);
}

TEST_F(MailboxTest, BetweenProcessesAMessageIsWhole) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Mailbox end = EndOf(memory_, Mailbox::End::kServer);
    std::array<char, Mailbox::kMessageBytesMax> bytes;
    end.Look();
    for (;;) {
      const size_t taken = end.Take(bytes).value_or(0);
      if (taken > 0) end.Offer(std::string_view(bytes.data(), taken));
    }
  }
  client_.Look();
  std::string expected;
  for (int i = 1; i < 3'000; ++i) {
    expected.assign(static_cast<size_t>(i), static_cast<char>('a' + i % 26));
    const TimePoint late = Clock::now() + seconds(30);
    while (!client_.Offer(expected)) ASSERT_LT(Clock::now(), late);
    while (!client_.HasMessage()) ASSERT_LT(Clock::now(), late);
    ASSERT_EQ(Read(client_), expected);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

class MailboxWaitTest : public MailboxTest {
 protected:
  std::array<UniqueFd, 2> sockets_ = testing::SocketPair();
};

TEST_F(MailboxWaitTest, AnAnswerInTheMailboxEndsAWait) {
  InputWait wait(InputWait::Patience::kShort);
  client_.Look();
  ASSERT_TRUE(server_.Offer("answer"));
  EXPECT_TRUE(wait.Await(sockets_[0].get(), Clock::now() + seconds(30), &client_));
  EXPECT_EQ(Read(client_), "answer");
}

// Nobody could wake it through the mailbox.
TEST_F(MailboxWaitTest, WhoSleepsDoesNotLook) {
  for (const auto patience : {InputWait::Patience::kShort, InputWait::Patience::kLong}) {
    InputWait wait(patience);
    for (int i = 0; i < 5; ++i) {
      client_.Look();
      std::thread answer([&] {
        std::this_thread::sleep_for(milliseconds(20));
        while (server_.IsLookedAt()) std::this_thread::yield();
        EXPECT_FALSE(server_.Offer("answer"));
        EXPECT_EQ(::send(sockets_[1].get(), "x", 1, 0), 1);
      });
      EXPECT_TRUE(wait.Await(sockets_[0].get(), Clock::now() + seconds(30), &client_));
      answer.join();
      char byte = 0;
      EXPECT_EQ(::recv(sockets_[0].get(), &byte, 1, MSG_DONTWAIT), 1);
    }
  }
}

// Also what comes in the moment in which it falls asleep, one way or the other.
TEST_F(MailboxWaitTest, EachAnswerEndsItsWaitWheneverItComes) {
  constexpr int kRounds = 3'000;
  std::atomic<int> round = 0;
  std::atomic<bool> ended = false;
  std::thread answers([&] {
    for (int i = 1;; ++i) {
      while (round < i && !ended) std::this_thread::yield();
      if (ended) return;
      const TimePoint due = Clock::now() + nanoseconds(i * 37 % 120'000);
      while (Clock::now() < due) {
      }
      if (server_.Offer("answer")) continue;
      EXPECT_EQ(::send(sockets_[1].get(), "x", 1, 0), 1);
    }
  });
  InputWait wait(InputWait::Patience::kShort);
  int by_memory = 0, late = 0;
  const TimePoint end = Clock::now() + kTurnsMax;
  for (int i = 1; i <= kRounds && late == 0 && Clock::now() < end; ++i) {
    client_.Look();
    round = i;
    for (bool mail = false, sent = false; !mail && !sent;) {
      if (!wait.Await(sockets_[0].get(), Clock::now() + seconds(10), &client_)) ++late;
      char byte = 0;
      mail = Read(client_) == "answer";
      by_memory += mail ? 1 : 0;
      sent = ::recv(sockets_[0].get(), &byte, 1, MSG_DONTWAIT) == 1;
      EXPECT_FALSE(mail && sent) << i;  // neither: it was taken back, and is about to be sent
    }
  }
  ended = true;  // it waits for a round
  answers.join();
  EXPECT_EQ(late, 0);
  EXPECT_GT(by_memory, 0);
}

}  // namespace
}  // namespace gantry
