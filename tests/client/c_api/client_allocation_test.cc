// Every allocation of the client fails in turn: each time the caller gets an error and nothing
// else.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "client/c_api/c_api_border.h"
#include "client/include/gantry_memory.h"
#include "client/include/gantry_messages.h"
#include "client/include/gantry_timeline.h"
#include "tests/client/client_objects.h"
#include "tests/client/gpu_client_fixture.h"

namespace {

// Allocations of this thread that still succeed; negative: all.
thread_local long allocations_left = -1;
thread_local bool fails_once = false;  // the one after them alone; else all

}  // namespace

__attribute__((noinline)) void* operator new(size_t bytes) {
  if (allocations_left == 0) {
    if (fails_once) allocations_left = -1;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace gantry::client {
namespace {

// Calls `work` with 0, 1, 2 ... allocations, until it has enough.
template <typename Work>
int FailEachAllocation(Work work) {
  for (int allowed = 0; allowed < 10'000; ++allowed) {
    allocations_left = allowed;
    gantry_error* error = work();
    allocations_left = -1;
    if (error == nullptr) return allowed;
    EXPECT_STRNE(gantry_error_code(error), "");
    gantry_error_destroy(error);
  }
  return 10'000;
}

TEST(ClientAllocation, OpenAndClose) {
  FakeSidecar sidecar;
  const std::string run_dir = sidecar.run_dir();
  const int needed = FailEachAllocation([&] {
    gantry_client* client = nullptr;
    gantry_error* error = gantry_client_open(run_dir.c_str(), "w", nullptr, &client);
    gantry_client_destroy(client);
    return error;
  });
  EXPECT_GT(needed, 5);
  EXPECT_LT(needed, 10'000);
}

TEST(ClientAllocation, RegisterTransferAndUnregister) {
  OpenClient it;
  const int needed = FailEachAllocation([&] {
    gantry_buffer* buffer = nullptr;
    gantry_transfer* transfer = nullptr;
    gantry_error* error = it.Register("b", 0, 10, &buffer);
    if (error == nullptr) error = it.Submit(buffer, &transfer, 10);
    if (error == nullptr) error = gantry_transfer_wait(transfer, 10, nullptr);
    gantry_transfer_destroy(transfer);
    if (error == nullptr) error = gantry_buffer_unregister(buffer, 0);
    gantry_buffer_destroy(buffer);
    return error;
  });
  EXPECT_GT(needed, 5);
  EXPECT_LT(needed, 10'000);
}

TEST(ClientAllocation, AdoptPrivateMemory) {
  OpenClient it;
  void* const data =
      ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  std::memcpy(data, "bytes", 5);
  const int needed = FailEachAllocation([&] {
    gantry_arena* arena = nullptr;
    gantry_error* error =
        gantry_arena_adopt_private(it.client, data, kMiB, GANTRY_OWN_MAPPING, &arena);
    gantry_arena_destroy(arena);
    EXPECT_EQ(std::memcmp(data, "bytes", 5), 0);
    return error;
  });
  EXPECT_GT(needed, 5);
  EXPECT_LT(needed, 10'000);
  ::munmap(data, kMiB);
}

TEST_F(GpuClientTest, RegisterTransferAndUnregisterOutOfMemory) {
  const AddressRange device = Make(gpu::MemoryOrigin::kDevice, kMiB);
  const AddressRange pieces = allocations_->MakeVirtual({kPiece, kPiece}).value();
  const gantry_piece both[] = {{At(device, 5), 100}, {At(pieces, kPiece - 50), 100}};
  gantry_buffer_spec spec = {};
  spec.name = "k.0";
  spec.pieces = both;
  spec.piece_count = 2;
  const int needed = FailEachAllocation([&] {
    gantry_buffer* buffer = nullptr;
    gantry_transfer* transfer = nullptr;
    gantry_error* error = gantry_buffers_register(it_.client, &spec, 1, &buffer);
    if (error == nullptr) error = it_.Submit(buffer, &transfer, 10);
    gantry_transfer_destroy(transfer);
    if (error == nullptr) error = gantry_buffer_unregister(buffer, 0);
    gantry_buffer_destroy(buffer);
    return error;
  });
  EXPECT_GT(needed, 20);
  EXPECT_LT(needed, 10'000);
}

TEST_F(GpuClientTest, TimelinesAndPinnedArenasOutOfMemory) {
  const int needed = FailEachAllocation([&] {
    gantry_timeline* timeline = nullptr;
    gantry_fence fence = {};
    gantry_error* error = gantry_arena_pin(it_.arena, 0, nullptr);
    if (error == nullptr) error = gantry_timeline_create(it_.client, 0, &timeline);
    if (error == nullptr) error = gantry_timeline_signal_stream(timeline, nullptr, &fence);
    if (error == nullptr) error = gantry_timeline_signal(timeline, &fence);
    gantry_timeline_destroy(timeline);
    if (error == nullptr) error = gantry_arena_unpin(it_.arena);
    return error;
  });
  EXPECT_GT(needed, 20);
  EXPECT_LT(needed, 10'000);
}

// The caller unmaps his memory afterwards, also when closing has failed for want of memory.
TEST_F(GpuClientTest, ClosingAPinnedArenaOfTheCallersOwnOutOfMemory) {
  int fd = -1;
  ASSERT_OK(gantry_memfd_create("x", kMiB, &fd));
  void* const data = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(data, MAP_FAILED);
  const int needed = FailEachAllocation([&] {
    const long allowed = std::exchange(allocations_left, -1);
    OpenClient it;  // a lease can be lost with the memory
    gantry_arena* arena = nullptr;
    EXPECT_OK(gantry_arena_adopt(it.client, fd, kMiB, data, &arena));
    EXPECT_OK(gantry_arena_pin(arena, 0, nullptr));
    gantry_buffer* buffer = nullptr;
    const gantry_piece piece = {data, 100};
    gantry_buffer_spec spec = {};
    spec.name = "b";
    spec.pieces = &piece;
    spec.piece_count = 1;
    EXPECT_OK(gantry_buffers_register(it.client, &spec, 1, &buffer));
    allocations_left = allowed;
    gantry_error* error = gantry_arena_close(arena, 0);
    allocations_left = -1;
    EXPECT_EQ(driver_->Resolve(reinterpret_cast<uint64_t>(data)).value().origin,
              gpu::MemoryOrigin::kUnknown);
    gantry_buffer_destroy(buffer);
    gantry_arena_destroy(arena);
    return error;
  });
  EXPECT_GT(needed, 3);
  EXPECT_LT(needed, 10'000);
  ::munmap(data, kMiB);
  ::close(fd);
}

// Bytes in an arena are put back without any memory to be had; those on a GPU if the driver can.
class VerifiedOutOfMemory : public GpuClientTest {
 protected:
  void SetUp() override {
    GpuClientTest::SetUp();
    device_ = Make(gpu::MemoryOrigin::kDevice, before_.size());
    for (size_t i = 0; i < before_.size(); ++i) before_[i] = static_cast<char>(i * 7 % 251);
    ASSERT_TRUE(context_->CopyFromHost(device_.base, before_.data(), before_.size()));
    host_ = static_cast<char*>(gantry_arena_data(it_.arena));
    std::copy_n(before_.data(), kBytes, host_);
  }
  bool HostIsAsBefore() const { return std::equal(host_, host_ + kBytes, before_.data()); }
  bool GpuIsAsBefore() {
    std::string now(before_.size(), '\0');
    EXPECT_TRUE(context_->CopyToHost(now.data(), device_.base, now.size()));
    return now == before_;
  }
  // The first buffer is on the GPU, so that the arena's bytes are put back behind its own.
  gantry_error* RegisterBoth() {
    const gantry_piece pieces[] = {{At(device_, 5), kBytes}, {host_, kBytes}};
    gantry_buffer_spec specs[2] = {};
    gantry_buffer* buffers[2] = {};
    for (size_t i = 0; i < 2; ++i) {
      specs[i].name = i == 0 ? "k.0" : "k.1";
      specs[i].pieces = &pieces[i];
      specs[i].piece_count = 1;
    }
    gantry_error* error = gantry_buffers_register_verified(it_.client, specs, 2, buffers);
    allocations_left = -1;
    for (gantry_buffer* buffer : buffers) gantry_buffer_destroy(buffer);
    return error;
  }

  static constexpr size_t kBytes = 100;
  AddressRange device_;
  std::string before_ = std::string(kMiB, '\0');
  char* host_ = nullptr;
};

TEST_F(VerifiedOutOfMemory, FromOnePointOn) {
  const int needed = FailEachAllocation([&] {
    gantry_error* error = RegisterBoth();
    EXPECT_TRUE(HostIsAsBefore());
    // The fake driver needs memory of this process for each copy.
    EXPECT_TRUE(context_->CopyFromHost(device_.base, before_.data(), before_.size()));
    return error;
  });
  EXPECT_GT(needed, 20);
  EXPECT_LT(needed, 10'000);
}

TEST_F(VerifiedOutOfMemory, AtOnePoint) {
  fails_once = true;
  const int needed = FailEachAllocation([&] {
    gantry_error* error = RegisterBoth();
    EXPECT_TRUE(HostIsAsBefore());
    EXPECT_TRUE(GpuIsAsBefore());
    return error;
  });
  fails_once = false;
  EXPECT_GT(needed, 20);
  EXPECT_LT(needed, 10'000);
}

TEST(ClientAllocation, AnErrorForWhichThereIsNoMemory) {
  std::set<std::string> codes;
  for (int allowed = 0; allowed < 10; ++allowed) {
    allocations_left = allowed;
    gantry_error* error = gantry_buffer_unregister(nullptr, 0);
    allocations_left = -1;
    ASSERT_NE(error, nullptr);
    codes.insert(gantry_error_code(error));
    gantry_error_destroy(error);
  }
  EXPECT_EQ(codes, (std::set<std::string>{"invalid_argument", "out_of_memory"}));
}

TEST(ClientAllocation, NotificationsAndHolds) {
  OpenClient it;
  const gantry_message message = {"decode", "x", 1, "r-1"};
  const char* const buffers[] = {"k.0", "k.1"};
  const uint64_t blocks[] = {1, 2};
  const gantry_hold_group group = {buffers, 2, blocks, 2};
  const gantry_hold_spec spec = {&group, 1, 1000, 2};
  const int needed = FailEachAllocation([&] {
    char* id = nullptr;
    gantry_error* error = gantry_notify(it.client, "pod-b", &message, 0, &id);
    gantry_free(id);
    if (error == nullptr) error = gantry_hold_put(it.client, "h", &spec, nullptr);
    if (error == nullptr) error = gantry_hold_extend(it.client, "h", 1000, nullptr);
    if (error == nullptr) error = gantry_hold_release(it.client, "h", nullptr);
    return error;
  });
  EXPECT_GT(needed, 5);
  EXPECT_LT(needed, 10'000);
}

ino_t InodeOf(const gantry_arena* arena) {
  struct stat info = {};
  EXPECT_EQ(::fstat(gantry_arena_fd(arena), &info), 0);
  return info.st_ino;
}

size_t ArenasMapped() {
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    found += line.find("gantry-arena") != std::string::npos ? 1 : 0;
  }
  return found;
}

TEST(ClientAllocation, Arenas) {
  OpenClient it;
  const size_t mapped = ArenasMapped();
  const int needed = FailEachAllocation([&] {
    gantry_arena* arena = nullptr;
    gantry_error* error = gantry_arena_create(it.client, 4096, &arena);
    gantry_arena_destroy(arena);
    return error;
  });
  EXPECT_LT(needed, 10'000);
  EXPECT_EQ(ArenasMapped(), mapped) << "one that could not be made is still mapped";
}

// One descriptor taken for another would be other memory than the workload's own pointers say.
TEST(ClientAllocation, TheAnswerToARequestIsNotTakenForTheNextOnes) {
  OpenClient it;
  FailEachAllocation([&] {
    gantry_arena* arena = nullptr;
    gantry_error* error = gantry_arena_create(it.client, 4096, &arena);
    gantry_arena_destroy(arena);
    const long allowed = std::exchange(allocations_left, -1);
    gantry_arena* next = nullptr;
    EXPECT_OK(gantry_arena_create(it.client, 4096, &next));
    EXPECT_EQ(it.sidecar.InodeOf(next->arena->fd_token), InodeOf(next));
    gantry_arena_destroy(next);
    allocations_left = allowed;
    return error;
  });
}

// A connection that was given up is gone: what has its number now is the workload's.
TEST(ClientAllocation, ClosingTheClientLeavesDescriptorsOfOthersAlone) {
  FailEachAllocation([&] {
    const long allowed = std::exchange(allocations_left, -1);
    OpenClient it;
    char* answer = nullptr;
    EXPECT_OK(gantry_client_request(it.client, "GET", "/v1/status", nullptr, 0, &answer));
    gantry_free(answer);
    answer = nullptr;
    allocations_left = allowed;
    gantry_error* error =
        gantry_client_request(it.client, "GET", "/v1/status", nullptr, 0, &answer);
    allocations_left = -1;
    gantry_free(answer);
    std::array<int, 8> sockets = {};
    for (size_t i = 0; i < sockets.size(); i += 2) {
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, &sockets[i]), 0);
    }
    EXPECT_OK(gantry_client_close(it.client));
    for (const int socket : sockets) EXPECT_EQ(::send(socket, "x", 1, MSG_NOSIGNAL), 1);
    for (const int socket : sockets) ::close(socket);
    return error;
  });
}

// Closing goes on where it failed: the sidecar keeps no descriptor for an arena that is closed.
TEST(ClientAllocation, ClosingAnArenaAgain) {
  OpenClient it;
  const int needed = FailEachAllocation([&] {
    const long allowed = std::exchange(allocations_left, -1);
    gantry_arena* arena = nullptr;
    EXPECT_OK(gantry_arena_create(it.client, 4096, &arena));
    const std::string token = arena->arena->fd_token;
    allocations_left = allowed;
    gantry_error* error = gantry_arena_close(arena, 0);
    allocations_left = -1;
    EXPECT_OK(gantry_arena_close(arena, 0));
    EXPECT_EQ(it.sidecar.InodeOf(token), 0U);
    gantry_arena_destroy(arena);
    return error;
  });
  EXPECT_GT(needed, 1);
  EXPECT_LT(needed, 10'000);
}

}  // namespace
}  // namespace gantry::client
