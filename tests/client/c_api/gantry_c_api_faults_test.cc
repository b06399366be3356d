// What must not happen to the process that uses libgantry.so: kills, forks, threads, wrong order.
#include <dirent.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/client/client_objects.h"

namespace gantry::client {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

size_t ThreadsOfThisProcess() {
  size_t count = 0;
  DIR* folder = ::opendir("/proc/self/task");
  for (dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
    count += entry->d_name[0] != '.';
  }
  ::closedir(folder);
  return count;
}

// Runs `work` in a child; true when it returned true there.
template <typename Work>
bool InChild(Work work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(GantryFaults, AKilledSidecarIsAnErrorInTheMiddleOfACall) {
  std::atomic<bool> asked{false};
  OpenClient it(60'000);
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  it.sidecar.On("/v1/transfers", [&](const FakeRequest&) {
    asked = true;
    std::this_thread::sleep_for(200ms);
    return std::string();
  });
  std::thread killer([&] {
    while (!asked) std::this_thread::sleep_for(1ms);
    it.sidecar.Kill();
  });
  gantry_transfer* transfer = nullptr;
  const std::string code = CodeOf(it.Submit(buffer, &transfer, 50'000));
  killer.join();
  EXPECT_EQ(code, "sidecar_lost");
  EXPECT_EQ(CodeOf(gantry_client_check(it.client)), "sidecar_lost");
  EXPECT_OK(gantry_buffer_unregister(buffer, 0));  // the sidecar took it along
  gantry_buffer_destroy(buffer);
}

TEST(GantryFaults, ClosedClientsAnswer) {
  OpenClient it;
  gantry_buffer* buffer = nullptr;
  gantry_transfer* transfer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  ASSERT_OK(it.Submit(buffer, &transfer));
  EXPECT_OK(gantry_client_close(it.client));
  EXPECT_OK(gantry_client_close(it.client));
  EXPECT_EQ(it.sidecar.requests().back().method, "DELETE");
  EXPECT_EQ(it.sidecar.requests().back().target, "/v1/workloads/w");
  EXPECT_EQ(gantry_buffer_is_registered(buffer), 0);
  EXPECT_OK(gantry_transfer_wait(transfer, 0, nullptr));  // its outcome was known
  gantry_buffer* other = nullptr;
  gantry_arena* arena = nullptr;
  char* answer = nullptr;
  EXPECT_EQ(CodeOf(it.Register("c", 0, 10, &other)), "cancelled");
  EXPECT_EQ(CodeOf(gantry_arena_create(it.client, 1, &arena)), "cancelled");
  EXPECT_EQ(CodeOf(gantry_client_check(it.client)), "cancelled");
  EXPECT_EQ(CodeOf(gantry_client_request(it.client, "GET", "/x", nullptr, 0, &answer)),
            "cancelled");
  EXPECT_OK(gantry_buffer_unregister(buffer, 0));
  EXPECT_OK(gantry_arena_close(it.arena, 0));
  gantry_transfer_destroy(transfer);
  gantry_buffer_destroy(buffer);
}

// The requests whose method and target begin like this.
size_t CountOf(const FakeSidecar& sidecar, const std::string& method, const std::string& target) {
  const auto requests = sidecar.requests();
  return static_cast<size_t>(
      std::count_if(requests.begin(), requests.end(), [&](const FakeRequest& request) {
        return request.method == method && request.target.starts_with(target);
      }));
}

TEST(GantryFaults, ObjectsThatEndAskASidecarThatStandsStillOnce) {
  std::atomic<bool> still{true};
  OpenClient it(/*timeout_ms=*/500);
  std::array<gantry_buffer*, 4> buffers = {};
  for (size_t i = 0; i < buffers.size(); ++i) {
    ASSERT_OK(it.Register(("b" + std::to_string(i)).c_str(), i * 10, 10, &buffers[i]));
  }
  it.sidecar.On("/v1/buffers/", [&](const FakeRequest&) {
    while (still) std::this_thread::sleep_for(milliseconds(10));
    return FakeSidecar::Json(200, "{}");
  });
  for (size_t i = 0; i < 3; ++i) gantry_buffer_destroy(buffers[i]);
  EXPECT_EQ(CountOf(it.sidecar, "DELETE", "/v1/buffers/"), 1U);
  still = false;
  // A registration of the same name would be a conflict before it has heard of the end.
  gantry_buffer* again = nullptr;
  ASSERT_OK(it.Register("b0", 0, 10, &again));
  EXPECT_EQ(CountOf(it.sidecar, "DELETE", "/v1/buffers/"), 1U + 3);
  EXPECT_EQ(it.sidecar.requests().back().method, "POST");
  gantry_buffer_destroy(again);
  gantry_buffer_destroy(buffers[3]);
  EXPECT_EQ(CountOf(it.sidecar, "DELETE", "/v1/buffers/"), 1U + 3 + 2);
}

TEST(GantryFaults, AnArenaIsHeardOfLaterThanItEnds) {
  std::atomic<bool> still{true};
  OpenClient it(/*timeout_ms=*/500);
  gantry_arena* arena = nullptr;
  ASSERT_OK(gantry_arena_create(it.client, 4096, &arena));
  const gantry_piece piece = {gantry_arena_data(arena), 10};
  const gantry_buffer_spec spec = {"b", &piece, 1, 0, 0, 0, 0};
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(gantry_buffers_register(it.client, &spec, 1, &buffer));
  it.sidecar.On("/v1/buffers/", [&](const FakeRequest&) {
    while (still) std::this_thread::sleep_for(milliseconds(10));
    return FakeSidecar::Json(200, "{}");
  });
  gantry_buffer_destroy(buffer);
  gantry_arena_destroy(arena);
  EXPECT_TRUE(it.sidecar.tokens_released().empty());
  still = false;
  ASSERT_OK(it.Register("c", 0, 10, &buffer));
  EXPECT_EQ(it.sidecar.tokens_released().size(), 1U);
  gantry_buffer_destroy(buffer);
}

TEST(GantryFaults, ClosedWithinNoTimeTheSidecarIsNotAsked) {
  FakeSidecar sidecar;
  gantry_client* client = nullptr;
  ASSERT_OK(gantry_client_open(sidecar.run_dir().c_str(), "w", nullptr, &client));
  EXPECT_OK(gantry_client_close_within(client, 0));
  EXPECT_OK(gantry_client_close_within(client, 1000));
  EXPECT_EQ(CodeOf(gantry_client_check(client)), "cancelled");
  gantry_client_destroy(client);
  EXPECT_EQ(CountOf(sidecar, "DELETE", "/v1/workloads/"), 0U);
  for (int i = 0; i < 500 && sidecar.attached(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(sidecar.attached());
}

TEST(GantryFaults, CloseEndsTheCallsOfOtherThreads) {
  std::atomic<bool> asked{false};
  std::atomic<bool> stop{false};
  OpenClient it(60'000);  // its sidecar ends before what its handlers read
  it.sidecar.On("/hang", [&](const FakeRequest&) {
    asked = true;
    while (!stop) std::this_thread::sleep_for(5ms);
    return std::string();
  });
  std::string code;
  std::thread caller([&] {
    char* answer = nullptr;
    code = CodeOf(gantry_client_request(it.client, "GET", "/hang", nullptr, 60'000, &answer));
  });
  while (!asked) std::this_thread::sleep_for(1ms);
  EXPECT_OK(gantry_client_close(it.client));
  caller.join();
  stop = true;
  EXPECT_EQ(code, "cancelled");
}

TEST(GantryFaults, ObjectsMayBeDestroyedInAnyOrder) {
  for (int order = 0; order < 6; ++order) {
    FakeSidecar sidecar;
    gantry_client* client = nullptr;
    gantry_arena* arena = nullptr;
    gantry_buffer* buffer = nullptr;
    ASSERT_OK(gantry_client_open(sidecar.run_dir().c_str(), "w", nullptr, &client));
    ASSERT_OK(gantry_arena_create(client, 4096, &arena));
    const gantry_piece piece = {gantry_arena_data(arena), 4096};
    gantry_buffer_spec spec = {};
    spec.name = "b";
    spec.pieces = &piece;
    spec.piece_count = 1;
    ASSERT_OK(gantry_buffers_register(client, &spec, 1, &buffer));
    std::vector<int> steps = {0, 1, 2};
    for (int i = 0; i < order; ++i) std::next_permutation(steps.begin(), steps.end());
    for (const int step : steps) {
      if (step == 0) gantry_client_destroy(client);
      if (step == 1) gantry_arena_destroy(arena);
      if (step == 2) gantry_buffer_destroy(buffer);
    }
  }
  gantry_client_destroy(nullptr);
  gantry_arena_destroy(nullptr);
  gantry_buffer_destroy(nullptr);
  gantry_transfer_destroy(nullptr);
  gantry_error_destroy(nullptr);
  gantry_free(nullptr);
}

TEST(GantryFaults, NullObjectsAreErrors) {
  EXPECT_EQ(CodeOf(gantry_client_close(nullptr)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_arena_close(nullptr, 0)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_buffer_unregister(nullptr, 0)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_transfer_wait(nullptr, 0, nullptr)), "invalid_argument");
  EXPECT_EQ(gantry_transfer_json(nullptr), nullptr);
  OpenClient it;
  EXPECT_EQ(CodeOf(gantry_buffers_register(it.client, nullptr, 1, nullptr)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_transfer_submit(it.client, nullptr, 0, nullptr)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_client_resolve(it.client, nullptr, 1, nullptr, 1, nullptr)),
            "invalid_argument");
}

TEST(GantryFaults, AChildNeitherUsesNorEndsTheLease) {
  OpenClient it;
  gantry_buffer* buffer = nullptr;
  gantry_transfer* transfer = nullptr;
  ASSERT_OK(it.Register("b", 0, 10, &buffer));
  ASSERT_OK(it.Submit(buffer, &transfer));
  const size_t before = it.sidecar.requests().size();
  EXPECT_TRUE(InChild([&] {
    char* answer = nullptr;
    bool refused = CodeOf(gantry_client_check(it.client)) == "permission_denied";
    refused = refused && CodeOf(gantry_client_close(it.client)) == "permission_denied";
    refused = refused && CodeOf(gantry_client_request(it.client, "GET", "/x", nullptr, 0,
                                                      &answer)) == "permission_denied";
    refused = refused && CodeOf(gantry_buffer_unregister(buffer, 0)) == "permission_denied";
    refused = refused && CodeOf(gantry_transfer_wait(transfer, 0, nullptr)) == "permission_denied";
    gantry_transfer_destroy(transfer);
    gantry_buffer_destroy(buffer);
    gantry_arena_destroy(it.arena);
    gantry_client_destroy(it.client);
    return refused;
  }));
  EXPECT_EQ(it.sidecar.requests().size(), before);
  EXPECT_TRUE(it.sidecar.attached());
  EXPECT_OK(gantry_client_check(it.client));
  gantry_transfer_destroy(transfer);
  gantry_buffer_destroy(buffer);
}

TEST(GantryFaults, AChildOpensItsOwn) {
  OpenClient it;
  EXPECT_TRUE(InChild([&] {
    gantry_client* own = nullptr;
    const bool opened =
        CodeOf(gantry_client_open(it.sidecar.run_dir().c_str(), "child", nullptr, &own)).empty();
    gantry_client_destroy(own);
    return opened;
  }));
  EXPECT_OK(gantry_client_check(it.client));
}

TEST(GantryFaults, NoThreadIsLeftAndNothingIsPrinted) {
  FakeSidecar sidecar;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const size_t before = ThreadsOfThisProcess();
  int fd = -1;
  ASSERT_OK(gantry_memfd_create("big", uint64_t{300} << 20, &fd));
  ::close(fd);
  gantry_client* client = nullptr;
  EXPECT_EQ(CodeOf(gantry_client_open("/nonexistent", "w", nullptr, &client)), "peer_unavailable");
  EXPECT_EQ(ThreadsOfThisProcess(), before);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(GantryFaults, AnswersThatMakeNoSenseAreErrors) {
  for (const char* body :
       {"", "[]", "{\"buffers\":[]}", "{\"buffers\":[{\"name\":\"b\"}]}", "\xff\xfe"}) {
    OpenClient it;
    it.sidecar.On("/v1/buffers", [&](const FakeRequest&) { return FakeSidecar::Json(201, body); });
    gantry_buffer* buffer = nullptr;
    EXPECT_NE(CodeOf(it.Register("b", 0, 10, &buffer)), "") << body;
  }
}

TEST(GantryFaults, ManyThreadsShareOneClient) {
  OpenClient it;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string name = "b." + std::to_string(t) + "." + std::to_string(i);
        gantry_buffer* buffer = nullptr;
        gantry_transfer* transfer = nullptr;
        gantry_arena* arena = nullptr;
        failures +=
            !CodeOf(it.Register(name.c_str(), static_cast<uint64_t>(t) * 4096, 4096, &buffer))
                 .empty();
        failures += !CodeOf(it.Submit(buffer, &transfer, 100)).empty();
        failures += !CodeOf(gantry_transfer_wait(transfer, 1000, nullptr)).empty();
        failures += !CodeOf(gantry_arena_create(it.client, 4096, &arena)).empty();
        failures += !CodeOf(gantry_client_check(it.client)).empty();
        gantry_transfer_destroy(transfer);
        gantry_arena_destroy(arena);
        gantry_buffer_destroy(buffer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST(GantryFaults, AnArenaIsClosedWhileBuffersInItAreRegistered) {
  for (int round = 0; round < 20; ++round) {
    OpenClient it;
    std::atomic<bool> start{false};
    std::thread closer([&] {
      while (!start) std::this_thread::yield();
      EXPECT_OK(gantry_arena_close(it.arena, 100));
    });
    std::vector<gantry_buffer*> buffers;
    start = true;
    for (int i = 0; i < 20; ++i) {
      gantry_buffer* buffer = nullptr;
      if (CodeOf(it.Register(("b" + std::to_string(i)).c_str(), 0, 10, &buffer)).empty())
        buffers.push_back(buffer);
    }
    closer.join();
    for (gantry_buffer* buffer : buffers) {
      EXPECT_EQ(gantry_buffer_is_registered(buffer), 0);
      gantry_buffer_destroy(buffer);
    }
  }
}

}  // namespace
}  // namespace gantry::client
