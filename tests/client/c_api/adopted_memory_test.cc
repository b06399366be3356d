// gantry_arena_adopt_private over a sidecar that only answers: its handles, and what they end.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <barrier>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/include/gantry_memory.h"
#include "tests/client/client_objects.h"
#include "tests/client/page_bytes.h"

namespace gantry::client {
namespace {

class AdoptedMemory : public ::testing::Test {
 protected:
  AdoptedMemory()
      : data_(static_cast<char*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::memcpy(data_, "bytes", 5);
  }
  ~AdoptedMemory() override { ::munmap(data_, kBytes); }

  gantry_arena* Adopt(uint64_t offset = 0, uint64_t bytes = kBytes) {
    gantry_arena* arena = nullptr;
    EXPECT_OK(
        gantry_arena_adopt_private(it_.client, data_ + offset, bytes, GANTRY_OWN_MAPPING, &arena));
    return arena;
  }
  std::string CodeOfAdopting(uint64_t offset, uint64_t bytes) {
    gantry_arena* arena = nullptr;
    return CodeOf(
        gantry_arena_adopt_private(it_.client, data_ + offset, bytes, GANTRY_OWN_MAPPING, &arena));
  }
  bool IsInAnArena() {
    size_t count = 0;
    gantry_extent extent = {};
    return CodeOf(gantry_client_resolve(it_.client, data_, kBytes, &extent, 1, &count)).empty();
  }

  static constexpr uint64_t kBytes = 8 * kPage;
  OpenClient it_;
  char* const data_;
};

TEST_F(AdoptedMemory, IsAnArenaWhereItIs) {
  gantry_arena* const arena = Adopt();
  EXPECT_EQ(gantry_arena_data(arena), data_);
  EXPECT_EQ(gantry_arena_bytes(arena), kBytes);
  EXPECT_EQ(std::string(data_, 5), "bytes");
  struct stat info = {};
  ASSERT_EQ(::fstat(gantry_arena_fd(arena), &info), 0);
  EXPECT_EQ(it_.sidecar.fds_received().back().st_ino, info.st_ino);
  EXPECT_NE(::fcntl(gantry_arena_fd(arena), F_GET_SEALS) & F_SEAL_SHRINK, 0);
  gantry_piece piece = {data_ + 100, 1000};
  gantry_buffer_spec spec = {};
  spec.name = "k";
  spec.pieces = &piece;
  spec.piece_count = 1;
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(gantry_buffers_register(it_.client, &spec, 1, &buffer));
  EXPECT_OK(gantry_arena_close(arena, 0));
  EXPECT_EQ(gantry_buffer_is_registered(buffer), 0);
  EXPECT_OK(gantry_arena_close(arena, 0));
  EXPECT_EQ(it_.sidecar.tokens_released().size(), 1U);
  gantry_buffer_destroy(buffer);
  gantry_arena_destroy(arena);
  EXPECT_EQ(std::string(data_, 5), "bytes");
}

TEST_F(AdoptedMemory, LastsAsLongAsItsLastHandle) {
  const size_t before = it_.sidecar.fds_received().size();
  gantry_arena* const first = Adopt();
  gantry_arena* const second = Adopt(kPage + 100, 17);
  gantry_arena* const third = Adopt(0, kPage);
  EXPECT_EQ(it_.sidecar.fds_received().size(), before + 1);
  EXPECT_EQ(gantry_arena_data(second), data_);
  for (int twice = 0; twice < 2; ++twice) EXPECT_OK(gantry_arena_close(first, 0));
  EXPECT_TRUE(IsInAnArena());
  gantry_arena_destroy(second);
  EXPECT_TRUE(IsInAnArena());
  gantry_arena_destroy(third);
  EXPECT_FALSE(IsInAnArena());
  EXPECT_EQ(it_.sidecar.tokens_released().size(), 1U);
  gantry_arena_destroy(first);
  EXPECT_EQ(it_.sidecar.tokens_released().size(), 1U);
}

TEST_F(AdoptedMemory, IsSharedByClientsOfOneProcess) {
  gantry_arena* const arena = Adopt();
  OpenClient other;
  gantry_arena* others = nullptr;
  ASSERT_OK(
      gantry_arena_adopt_private(other.client, data_ + kPage, kPage, GANTRY_OWN_MAPPING, &others));
  EXPECT_EQ(other.sidecar.fds_received().back().st_ino, it_.sidecar.fds_received().back().st_ino);
  EXPECT_EQ(gantry_arena_data(others), data_);
  EXPECT_EQ(gantry_arena_bytes(others), 2 * kPage);
  gantry_arena_destroy(arena);
  gantry_arena_destroy(others);
}

TEST_F(AdoptedMemory, OfSeveralThreadsIsAdoptedOnce) {
  const size_t before = it_.sidecar.fds_received().size();
  std::vector<gantry_arena*> arenas(8);
  std::vector<std::thread> threads;
  for (gantry_arena*& arena : arenas) threads.emplace_back([&] { arena = Adopt(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(it_.sidecar.fds_received().size(), before + 1);
  for (gantry_arena* const arena : arenas) {
    EXPECT_TRUE(IsInAnArena());
    gantry_arena_destroy(arena);
  }
  EXPECT_FALSE(IsInAnArena());
}

TEST_F(AdoptedMemory, OfClientsInSeveralThreadsIsOneFile) {
  constexpr int kRounds = 200;
  OpenClient other;
  for (int round = 0; round < kRounds; ++round) {
    char* const data = static_cast<char*>(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::barrier start(2);
    const auto adopt = [&](gantry_client* client, gantry_arena** arena) {
      start.arrive_and_wait();
      EXPECT_OK(gantry_arena_adopt_private(client, data, kBytes, GANTRY_OWN_MAPPING, arena));
    };
    gantry_arena* arenas[2] = {};
    std::thread second(adopt, other.client, &arenas[1]);
    adopt(it_.client, &arenas[0]);
    second.join();
    data[kPage] = 'w';
    for (gantry_arena* const arena : arenas) {
      char seen = 0;
      ASSERT_NE(arena, nullptr);
      EXPECT_EQ(::pread(gantry_arena_fd(arena), &seen, 1, kPage), 1);
      EXPECT_EQ(seen, 'w') << "round " << round;
      gantry_arena_destroy(arena);
    }
    ::munmap(data, kBytes);
  }
}

TEST_F(AdoptedMemory, OfArenasThatOthersMadeNeedsNoHandle) {
  gantry_arena* arena = it_.arena;
  EXPECT_OK(gantry_arena_adopt_private(it_.client, gantry_arena_data(it_.arena), kPage, 0, &arena));
  EXPECT_EQ(arena, nullptr);
}

TEST_F(AdoptedMemory, IsRefusedWithWhatIsWrong) {
  EXPECT_EQ(CodeOfAdopting(1, kPage), "not_exportable");
  EXPECT_EQ(CodeOfAdopting(0, kPage + 1), "not_exportable");
  EXPECT_EQ(CodeOfAdopting(0, 0), "invalid_argument");
  EXPECT_EQ(CodeOfAdopting(0, UINT64_MAX), "invalid_argument");
  EXPECT_EQ(
      CodeOf(gantry_arena_adopt_private(it_.client, data_, kBytes, GANTRY_OWN_MAPPING, nullptr)),
      "invalid_argument");
  gantry_arena* arena = nullptr;
  EXPECT_EQ(CodeOf(gantry_arena_adopt_private(nullptr, data_, kBytes, 0, &arena)),
            "invalid_argument");
  EXPECT_EQ(
      CodeOf(gantry_arena_adopt_private(it_.client, nullptr, kPage, GANTRY_OWN_MAPPING, &arena)),
      "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_arena_adopt_private(it_.client, data_, kBytes, 3, &arena)),
            "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_arena_adopt_private(it_.client, data_, kBytes, 0, &arena)),
            "not_exportable");  // it is not of malloc
  gantry_arena* const part = Adopt(kPage, kPage);
  EXPECT_EQ(CodeOfAdopting(0, kBytes), "conflict");
  gantry_arena* const next = Adopt(2 * kPage, kPage);
  EXPECT_EQ(CodeOfAdopting(kPage, 2 * kPage), "conflict");
  gantry_arena_destroy(part);
  gantry_arena_destroy(next);
  gantry_arena_destroy(Adopt());
}

TEST_F(AdoptedMemory, ThatWasFreedMeanwhileIsStale) {
  gantry_arena* const arena = Adopt();
  ASSERT_EQ(
      ::mmap(data_, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      data_);
  EXPECT_EQ(CodeOfAdopting(0, kBytes), "stale_generation");
  gantry_piece piece = {data_, kPage};
  gantry_buffer_spec spec = {};
  spec.name = "k";
  spec.pieces = &piece;
  spec.piece_count = 1;
  gantry_buffer* buffer = nullptr;
  EXPECT_EQ(CodeOf(gantry_buffers_register(it_.client, &spec, 1, &buffer)), "stale_generation");
  gantry_arena_destroy(arena);
  gantry_arena_destroy(Adopt());
}

TEST_F(AdoptedMemory, OfAClosedClientIsLetGo) {
  gantry_arena* const arena = Adopt();
  EXPECT_OK(gantry_client_close(it_.client));
  EXPECT_EQ(CodeOfAdopting(0, kBytes), "cancelled");
  EXPECT_OK(gantry_arena_close(arena, 0));
  gantry_arena_destroy(arena);
}

}  // namespace
}  // namespace gantry::client
