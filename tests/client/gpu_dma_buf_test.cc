// Dma-bufs of memory of GPUs, as the client exports them and gives them to whoever takes
// descriptors. On the fake driver alone: its files tell which memory one is of.
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "client/memory/gpu_dma_bufs.h"
#include "client/session/client_json.h"
#include "tests/client/gpu_client_fixture.h"

namespace gantry::client {
namespace {

// What takes descriptors: the inode of each, by its token.
struct Taker {
  Result<std::vector<std::string>> Take(std::span<const int> fds) {
    ++messages;
    if (fds.size() > 253 || held.size() + fds.size() > fds_max) {
      return Fail(ErrorCode::kResourceExhausted, "too many descriptors", "raise --fds-max");
    }
    std::vector<std::string> tokens;
    for (const int fd : fds) {
      struct stat info = {};
      EXPECT_EQ(::fstat(fd, &info), 0);
      tokens.push_back("token-" + std::to_string(++last));
      held[tokens.back()] = info.st_ino;
    }
    return tokens;
  }
  size_t fds_max = 100'000;
  int messages = 0;
  int last = 0;
  std::map<std::string, ino_t> held;
};

class GpuDmaBufs : public GpuClientTest {
 protected:
  void SetUp() override {
    GpuClientTest::SetUp();
    resolver_.WantDmaBufs();
  }
  std::vector<GpuPiece> Resolve(const AddressRange& range, uint64_t offset, uint64_t bytes) {
    auto pieces = resolver_.Resolve(NumberOf(range.base) + offset, bytes);
    EXPECT_TRUE(pieces) << pieces.error().message;
    return pieces ? *std::move(pieces) : std::vector<GpuPiece>();
  }
  static ino_t InodeOf(const Result<gpu::DmaBufExport>& made) {
    struct stat info = {};
    EXPECT_TRUE(made && ::fstat(made->fd.get(), &info) == 0);
    return info.st_ino;
  }
  // Nothing is held for them any more.
  void Release() {
    for (const std::string& token : resolver_.TakeUnused()) EXPECT_EQ(taker_.held.erase(token), 1u);
    EXPECT_TRUE(taker_.held.empty());
  }

  Taker taker_;
  GpuResolver resolver_{[this](std::span<const int> fds) { return taker_.Take(fds); }};
};

TEST_F(GpuDmaBufs, AnAllocationHasOneHoweverManyViewsThereAre) {
  const AddressRange range = Make(MemoryOrigin::kDevice, 4 * kMiB);
  const size_t fds_before = OpenFds();
  auto pieces = Resolve(range, kMiB + 511, 100);
  ASSERT_EQ(pieces.size(), 1u);
  const GpuAllocation& allocation = *pieces[0].allocation;
  EXPECT_EQ(allocation.dma_buf.offset, 0u);
  EXPECT_EQ(allocation.dma_buf.size, 4 * kMiB);
  EXPECT_EQ(allocation.no_dma_buf_because, "");
  EXPECT_TRUE(allocation.fd_token.empty()) << "others open it by its handle";
  EXPECT_EQ(taker_.held.at(allocation.dma_buf.fd_token), InodeOf(driver_->ExportDmaBuf(range)));
  auto others = Resolve(range, 0, 4 * kMiB);
  EXPECT_EQ(others[0].allocation, pieces[0].allocation);
  EXPECT_EQ(taker_.messages, 1);
  EXPECT_EQ(OpenFds(), fds_before) << "it would keep the memory alive";
  pieces.clear();
  EXPECT_TRUE(resolver_.TakeUnused().empty());
  others.clear();
  Release();
}

TEST_F(GpuDmaBufs, ItHasTheWholePagesAroundAnAllocation) {
  const AddressRange range = Make(MemoryOrigin::kDevice, 5000);
  const auto pieces = Resolve(range, 0, 5000);
  EXPECT_EQ(pieces[0].allocation->dma_buf.size, 8192u) << pieces[0].allocation->no_dma_buf_because;
  const auto around = [](uint64_t base, uint64_t size, uint64_t page) {
    const auto found = WholePages({gpu::DeviceAddress{base}, size}, page).value();
    return std::tuple(NumberOf(found.pages.base), found.pages.size, found.offset);
  };
  EXPECT_EQ(around(0x10200, 0x200, 4096), std::tuple(0x10000, 4096, 0x200));
  EXPECT_EQ(around(0x10e00, 0x200, 4096), std::tuple(0x10000, 4096, 0xe00));
  EXPECT_EQ(around(0x10e00, 0x201, 4096), std::tuple(0x10000, 8192, 0xe00));
  EXPECT_EQ(around(0x11000, 0x1000, 65536), std::tuple(0x10000, 65536, 0x1000));
  EXPECT_FALSE(WholePages({gpu::DeviceAddress{~uint64_t{0} - 100}, 50}, 4096));
}

TEST_F(GpuDmaBufs, EachPieceOfVirtualMemoryHasItsOwn) {
  const AddressRange range = allocations_->MakeVirtual({kPiece, 2 * kPiece}).value();
  auto pieces = Resolve(range, kPiece - 5, 10);
  ASSERT_EQ(pieces.size(), 2u);
  std::set<std::string> tokens;
  for (size_t i = 0; i < 2; ++i) {
    const GpuAllocation& piece = *pieces[i].allocation;
    EXPECT_EQ(piece.dma_buf.size, (i + 1) * kPiece);
    EXPECT_EQ(piece.dma_buf.offset, 0u);
    tokens.insert({piece.fd_token, piece.dma_buf.fd_token});
    EXPECT_EQ(taker_.held.at(piece.dma_buf.fd_token), InodeOf(driver_->ExportDmaBuf(piece.range)));
  }
  EXPECT_EQ(tokens.size(), 4u);
  pieces.clear();
  Release();
}

TEST_F(GpuDmaBufs, MorePiecesThanOneMessageTakes) {
  const AddressRange range = allocations_->MakeVirtual(std::vector<uint64_t>(300, kPiece)).value();
  auto pieces = Resolve(range, 0, range.size);
  EXPECT_EQ(taker_.held.size(), 600u);
  EXPECT_EQ(taker_.messages, 4);
  for (const GpuPiece& piece : pieces) {
    ASSERT_EQ(taker_.held.at(piece.allocation->dma_buf.fd_token),
              InodeOf(driver_->ExportDmaBuf(piece.allocation->range)));
  }
  pieces.clear();
  Release();
}

TEST_F(GpuDmaBufs, WithoutRoomForThemMemoryIsSharedWithoutAndItIsSaidWhy) {
  const AddressRange range = allocations_->MakeVirtual(std::vector<uint64_t>(300, kPiece)).value();
  taker_.fds_max = 300 + 253;
  auto pieces = Resolve(range, 0, range.size);
  ASSERT_EQ(pieces.size(), 300u);
  EXPECT_FALSE(pieces[252].allocation->dma_buf.fd_token.empty());
  const GpuAllocation& without = *pieces[253].allocation;
  EXPECT_EQ(without.dma_buf.fd_token, "");
  EXPECT_EQ(without.no_dma_buf_because, "too many descriptors: raise --fds-max");
  pieces.clear();
  Release();
}

TEST_F(GpuDmaBufs, AnExportThatFailsLeavesNoneBehind) {
  const AddressRange range = allocations_->MakeVirtual({kPiece, kPiece}).value();
  taker_.fds_max = 1;
  EXPECT_FALSE(resolver_.Resolve(NumberOf(range.base), range.size));
  EXPECT_EQ(taker_.messages, 1) << "what nobody is to use has no dma-buf";
  Release();
}

TEST_F(GpuDmaBufs, NobodyIsGivenOneWhoDoesNotWantIt) {
  GpuResolver resolver([this](std::span<const int> fds) { return taker_.Take(fds); });
  const AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  const auto pieces = resolver.Resolve(NumberOf(range.base), 1);
  ASSERT_TRUE(pieces);
  EXPECT_EQ(taker_.messages, 0);
  EXPECT_EQ((*pieces)[0].allocation->no_dma_buf_because, "");
}

TEST_F(GpuDmaBufs, TheSidecarIsToldOfItOrWhyThereIsNone) {
  const AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  BufferRequest request;
  request.name = "k.0";
  request.pieces.emplace_back(Resolve(range, 512, 64)[0]);
  const auto told = [&] {
    return json::parse(RegistrationBody("w", std::span(&request, 1)))["allocations"][0];
  };
  const std::string token = taker_.held.begin()->first;
  EXPECT_EQ(told()["dma_buf"], (json{{"fd_token", token}, {"offset", 0}, {"size", kMiB}}));
  EXPECT_FALSE(told().contains("no_dma_buf_because"));
  auto without = std::make_shared<GpuAllocation>(*std::get<GpuPiece>(request.pieces[0]).allocation);
  without->dma_buf.fd_token.clear();
  EXPECT_FALSE(told().empty());
  std::get<GpuPiece>(request.pieces[0]).allocation = without;
  EXPECT_FALSE(told().contains("dma_buf") || told().contains("no_dma_buf_because"));
  without->no_dma_buf_because = "a reason";
  EXPECT_EQ(told()["no_dma_buf_because"], "a reason");
  EXPECT_FALSE(told().contains("dma_buf"));
}

// Whether a sidecar wants them it says with the lease.
TEST_F(GpuDmaBufs, AClientHandsThemOverWhereItsSidecarSaysSo) {
  const AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  for (const char* wants : {"true", "false"}) {
    FakeSidecar sidecar;
    sidecar.On("/v1/workloads/", [wants](const FakeRequest&) {
      return FakeSidecar::Json(
          201, std::string(R"({"lease_token":"00112233445566778899aabbccddeeff",)") +
                   R"("generation":"0000000000000abc","wants_dma_bufs":)" + wants + "}");
    });
    gantry_client* client = nullptr;
    ASSERT_OK(gantry_client_open(sidecar.run_dir().c_str(), "w", nullptr, &client));
    const gantry_piece piece = {At(range, 100), 50};
    gantry_buffer_spec spec = {};
    spec.name = "k.0";
    spec.pieces = &piece;
    spec.piece_count = 1;
    gantry_buffer* buffer = nullptr;
    ASSERT_OK(gantry_buffers_register(client, &spec, 1, &buffer));
    const bool wanted = wants == std::string("true");
    const json told = json::parse(sidecar.requests().back().body)["allocations"][0];
    EXPECT_EQ(told.contains("dma_buf"), wanted);
    EXPECT_EQ(sidecar.fds_received().size(), wanted ? 1u : 0u);
    if (wanted) {
      EXPECT_EQ(sidecar.InodeOf(told["dma_buf"]["fd_token"]),
                InodeOf(driver_->ExportDmaBuf(range)));
    }
    EXPECT_OK(gantry_buffer_unregister(buffer, 0));
    EXPECT_EQ(sidecar.tokens_released().size(), wanted ? 1u : 0u);
    gantry_buffer_destroy(buffer);
    gantry_client_destroy(client);
  }
}

// What GPUs lack is read once in the life of a process.
TEST(GpuDmaBufsDeathTest, AGpuThatCannotIsNamedAsTheReason) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::pair<const char*, const char*> cases[] = {
      {"lack_dma_bufs=1", "exports no dma-buf"},
      {"lack_rdma_writes_ordering=1", "needs a flush"},
      {"cuMemGetHandleForAddressRange=500", "cuMemGetHandleForAddressRange"},
      {"cuMemGetHandleForAddressRange=801", "cannot be a dma-buf"}};
  for (const auto& [setting, reason] : cases) {
    EXPECT_EXIT(
        {
          ::setenv("GANTRY_FAKE_GPU_FAIL", setting, 1);
          const auto driver = gpu::LoadGpuDriver().value();
          const auto context = driver->OpenContext(0).value();
          const auto allocations = GpuAllocations::On(*context).value();
          const auto range = allocations->Make(MemoryOrigin::kDevice, kMiB).value();
          Taker taker;
          GpuResolver resolver([&](std::span<const int> fds) { return taker.Take(fds); });
          resolver.WantDmaBufs();
          const auto pieces = resolver.Resolve(NumberOf(range.base), 10);
          const std::string said = pieces ? (*pieces)[0].allocation->no_dma_buf_because : "";
          const bool right = said.find(reason) != std::string::npos && taker.messages == 0;
          if (!right) ::fprintf(stderr, "said: %s\n", said.c_str());
          ::_exit(right ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "")
        << setting;
  }
}

}  // namespace
}  // namespace gantry::client
