// A client that writes into the memory of its mailbox what it likes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/fd_passing.h"
#include "tests/client/mailbox_fixture.h"

namespace gantry::client {
namespace {

using namespace std::chrono_literals;

class MailboxMisuseTest : public MailboxRequestsTest {
 protected:
  struct Guest {
    UniqueFd socket;
    UniqueFd memory;
    uint32_t* words = nullptr;  // of the memory
  };
  static constexpr size_t kBytesWord = 16;  // of the way to the server: its second line
  Guest Enter() {
    Guest guest;
    guest.socket = ConnectUnix(options_.unix_path, SOCK_STREAM).value();
    constexpr std::string_view kAsk =
        "POST /v1/mailbox HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    EXPECT_EQ(::send(guest.socket.get(), kAsk.data(), kAsk.size(), 0), std::ssize(kAsk));
    FdMessage answer = ReceiveMessage(guest.socket.get(), 4096).value();
    EXPECT_EQ(answer.fds.size(), 1U);
    guest.memory = std::move(answer.fds.at(0));
    guest.words = static_cast<uint32_t*>(
        ::mmap(nullptr, 16'384, PROT_READ | PROT_WRITE, MAP_SHARED, guest.memory.get(), 0));
    return guest;
  }
};

TEST_F(MailboxMisuseTest, LengthsThatMakeNoSenseEndThatConnectionAlone) {
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  for (const uint32_t length : {8'001U, 1U << 20, UINT32_MAX - 1, UINT32_MAX}) {
    const Guest guest = Enter();
    std::atomic_ref(guest.words[kBytesWord]).store(length);
    const std::string_view request = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    ::send(guest.socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    char byte = 0;
    EXPECT_LE(::recv(guest.socket.get(), &byte, 1, MSG_WAITALL), 0) << length;
    ::munmap(guest.words, 16'384);
    Echo(http, "lives");
  }
}

TEST_F(MailboxMisuseTest, MemoryThatChangesAllTheTimeHarmsNobodyElse) {
  options_.connection.input_spin = 500us;
  options_.connection.rehearsal_interval = 100us;
  options_.connection.mailboxes_max = 1'000;
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  std::thread guests([&] {
    unsigned seed = 1;
    for (int entered = 0; entered < 200; ++entered) {
      const Guest guest = Enter();
      for (int i = 0; i < 2'000; ++i) {
        const auto at = static_cast<size_t>(::rand_r(&seed)) % 4'064;
        const auto value = static_cast<uint32_t>(::rand_r(&seed)) % 9'000;
        std::atomic_ref(guest.words[i % 3 == 0 ? kBytesWord : at]).store(value);
        if (i % 100 == 0) ::send(guest.socket.get(), "GET ", 4, MSG_NOSIGNAL);
      }
      ::munmap(guest.words, 16'384);
    }
  });
  for (int i = 0; i < 3'000; ++i) Echo(http, std::to_string(i));
  guests.join();
  Echo(http, "lives");
}

TEST_F(MailboxMisuseTest, AConnectionHasOneOnly) {
  Start();
  const Guest guest = Enter();
  constexpr std::string_view kAsk =
      "POST /v1/mailbox HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
  ASSERT_EQ(::send(guest.socket.get(), kAsk.data(), kAsk.size(), 0), std::ssize(kAsk));
  const FdMessage answer = ReceiveMessage(guest.socket.get(), 4096).value();
  EXPECT_TRUE(answer.payload.starts_with("HTTP/1.1 409")) << answer.payload;
  EXPECT_TRUE(answer.fds.empty());
  Mailbox end = Mailbox::Map(guest.memory.get(), Mailbox::End::kClient).value();
  end.Look();
  while (!end.Offer("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")) {
    std::this_thread::yield();
  }
  while (!end.HasMessage()) std::this_thread::yield();
}

TEST_F(MailboxMisuseTest, ThereAreSoManyAndTheOthersGoOnOverTheSocket) {
  options_.connection.mailboxes_max = 2;
  Start();
  const Guest one = Enter(), two = Enter();
  UnixHttp http(options_.unix_path);
  for (int i = 0; i < 100; ++i) Echo(http, std::to_string(i));
  EXPECT_EQ(asked_, 3U);
  EXPECT_EQ(by_mailbox_, 0U);
}

double ProcessorSeconds() {
  rusage used{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &used), 0);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// A message that nobody will read any more keeps no thread awake.
TEST_F(MailboxMisuseTest, MailOnAConnectionThatEndsIsLeftThere) {
  options_.connection.input_spin = 100us;
  Start();
  const Guest guest = Enter();
  constexpr std::string_view kLast =
      "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
  ASSERT_EQ(::send(guest.socket.get(), kLast.data(), kLast.size(), 0), std::ssize(kLast));
  EXPECT_TRUE(ReceiveMessage(guest.socket.get(), 4096));
  std::atomic_ref(guest.words[kBytesWord]).store(5);
  ::send(guest.socket.get(), "x", 1, MSG_NOSIGNAL);
  std::this_thread::sleep_for(100ms);
  const double before = ProcessorSeconds();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(ProcessorSeconds() - before, 0.2);
  for (int i = 0; i < 100 && server_->connections() > 0; ++i) std::this_thread::sleep_for(100ms);
  EXPECT_EQ(server_->connections(), 0U);
}

TEST_F(MailboxMisuseTest, MailBehindAnUnfinishedRequestIsLeftThere) {
  options_.connection.input_spin = 100us;
  options_.connection.request_time_max = 100ms;
  options_.sweep_interval = 20ms;
  Start();
  const Guest guest = Enter();
  ::send(guest.socket.get(), "GET /v1/in", 10, MSG_NOSIGNAL);
  std::this_thread::sleep_for(20ms);
  std::atomic_ref(guest.words[kBytesWord]).store(5);
  for (int i = 0; i < 100 && server_->connections() > 0; ++i) std::this_thread::sleep_for(100ms);
  EXPECT_EQ(server_->connections(), 0U);
  const Guest next = Enter();  // the sweeper lives
  ::send(next.socket.get(), "GET /v1/in", 10, MSG_NOSIGNAL);
  char byte = 0;
  EXPECT_EQ(::recv(next.socket.get(), &byte, 1, 0), 1);
}

}  // namespace
}  // namespace gantry::client
