// AMD's driver over the fake of three releases of ROCm: what is told of memory, how it is shared,
// what a release lacks, and what is left in a workload's thread. Each case is a process of its own
// where it changes what the library reads when it is loaded.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/hip/hip_calls.h"
#include "lib/gpu/loaded_gpu_pointers.h"
#include "tests/lib/gpu/fake_driver_fixture.h"

namespace gantry::gpu {
namespace {

constexpr uint64_t kPage = 4096;

AddressRange PagesAround(const AddressRange& range) {
  const uint64_t base = NumberOf(range.base) / kPage * kPage;
  const uint64_t end = (NumberOf(range.base) + range.size + kPage - 1) / kPage * kPage;
  return {DeviceAddress{base}, end - base};
}

class HipDriverTest : public GpuDriversTest {
 protected:
  void SetUp() override {
    GpuDriversTest::SetUp();
    auto driver = LoadGpuDriver();
    ASSERT_TRUE(driver) << driver.error().message;
    driver_ = *std::move(driver);
    auto context = driver_->OpenContext(0);
    ASSERT_TRUE(context) << context.error().message;
    context_ = *std::move(context);
  }

  bool Lacks(const std::string& feature) const {
    const auto missing = driver_->missing();
    return std::any_of(missing.begin(), missing.end(),
                       [&](const std::string& one) { return one.starts_with(feature + ":"); });
  }
  std::unique_ptr<GpuMemory> Allocate(uint64_t bytes) {
    auto memory = context_->Allocate(bytes);
    EXPECT_TRUE(memory) << memory.error().message;
    return memory ? *std::move(memory) : nullptr;
  }
  void Write(DeviceAddress to, const std::string& bytes) {
    EXPECT_TRUE(context_->CopyFromHost(to, bytes.data(), bytes.size()));
  }
  std::string Read(DeviceAddress from, uint64_t bytes) {
    std::string read(bytes, '\0');
    EXPECT_TRUE(context_->CopyToHost(read.data(), from, bytes));
    return read;
  }

  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<GpuContext> context_;
};

TEST_F(HipDriverTest, IsTheVendorWhoseLibraryIsThere) {
  EXPECT_EQ(driver_->vendor(), "amd");
  EXPECT_GE(driver_->version(), hip::VersionOf(5, 2));
  ASSERT_EQ(driver_->devices().size(), 2u);
  EXPECT_TRUE(driver_->devices()[0].uuid.starts_with("GPU-"));
  EXPECT_NE(driver_->devices()[0].uuid, driver_->devices()[1].uuid);
  EXPECT_FALSE(driver_->devices()[0].orders_rdma_writes);
}

TEST_F(HipDriverTest, WhatAReleaseLacksIsNamed) {
  const bool is_before_dma_bufs = driver_->version() < hip::kVersion6;
  EXPECT_EQ(Lacks("dma-buf"), is_before_dma_bufs);
  EXPECT_EQ(Lacks("batch copy"), driver_->version() < hip::VersionOf(7, 1));
  EXPECT_FALSE(Lacks("kernels"));
  const auto memory = Allocate(kMiB);
  const auto info = driver_->Resolve(NumberOf(memory->range().base));
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->is_shared_by_dma_buf, !is_before_dma_bufs);
  EXPECT_TRUE(info->has_ipc_handle);
}

// Small allocations share one dma-buf: the offset tells whose bytes are found in it.
TEST_F(HipDriverTest, SmallAllocationsAreFoundAtTheirPlacesInOneDmaBuf) {
  if (Lacks("dma-buf")) GTEST_SKIP() << "before dma-bufs";
  std::vector<std::unique_ptr<GpuMemory>> memories;
  for (int i = 0; i < 4; ++i) {
    memories.push_back(Allocate(5000));
    Write(memories.back()->range().base, std::string(5000, static_cast<char>('a' + i)));
  }
  bool some_lie_behind = false;
  for (int i = 0; i < 4; ++i) {
    const AddressRange range = memories[static_cast<size_t>(i)]->range();
    const AddressRange pages = PagesAround(range);
    const auto exported = driver_->ExportDmaBuf(pages);
    ASSERT_TRUE(exported) << exported.error().message;
    some_lie_behind = some_lie_behind || exported->offset != 0;
    const uint64_t offset = exported->offset + (NumberOf(range.base) - NumberOf(pages.base));
    const auto mapped = context_->MapDmaBuf({exported->fd.get(), offset, range.size});
    ASSERT_TRUE(mapped) << mapped.error().message;
    EXPECT_EQ((*mapped)->range().size, range.size);
    const DeviceAddress base = (*mapped)->range().base;
    EXPECT_EQ(Read(base, range.size), std::string(range.size, static_cast<char>('a' + i)));
    Write(base + 4999, "!");
    const std::string seen = {static_cast<char>('a' + i), '!'};
    EXPECT_EQ(Read(range.base + 4998, 2), seen);
    const auto info = driver_->Resolve(NumberOf(base));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_FALSE(info->is_shared_by_dma_buf) << "what came from elsewhere is not handed on";
    EXPECT_FALSE(info->has_ipc_handle);
  }
  EXPECT_TRUE(some_lie_behind) << "the fake puts them into one";
}

TEST_F(HipDriverTest, MoreThanADmaBufHoldsIsNotMapped) {
  if (Lacks("dma-buf")) GTEST_SKIP() << "before dma-bufs";
  const auto memory = Allocate(kMiB);
  const auto exported = driver_->ExportDmaBuf(PagesAround(memory->range()));
  ASSERT_TRUE(exported) << exported.error().message;
  for (const DmaBufPart& part :
       {DmaBufPart{exported->fd.get(), exported->offset, kMiB * 64},
        DmaBufPart{exported->fd.get(), ~uint64_t{0}, kMiB}, DmaBufPart{exported->fd.get(), 0, 0}}) {
    const auto mapped = context_->MapDmaBuf(part);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().code, ErrorCode::kFdTooShort);
  }
  EXPECT_EQ(driver_->ExportDmaBuf({memory->range().base, 2 * kMiB}).error().code,
            ErrorCode::kNotExportable);
}

TEST_F(HipDriverTest, AWorkloadsThreadFindsNoErrorThatItDidNotMake) {
  const auto library = [] {
    for (const char* const name : hip::kLibraries) {
      if (auto loaded = DynamicLibrary::OpenLoaded(name)) return loaded;
    }
    return DynamicLibrary::OpenLoaded("none");
  }();
  ASSERT_TRUE(library);
  hip::Result (*take)() = nullptr;
  hip::Result (*set_device)(int) = nullptr;
  hip::Result (*get_device)(int*) = nullptr;
  hip::Result (*free)(void*) = nullptr;
  ASSERT_TRUE(library->Bind("hipGetLastError", &take));
  ASSERT_TRUE(library->Bind("hipSetDevice", &set_device));
  ASSERT_TRUE(library->Bind("hipGetDevice", &get_device));
  ASSERT_TRUE(library->Bind("hipFree", &free));
  ASSERT_EQ(set_device(1), hip::kSuccess);
  take();
  int on_host = 0;
  const auto nothing = driver_->Resolve(reinterpret_cast<uint64_t>(&on_host));
  ASSERT_TRUE(nothing) << nothing.error().message;
  EXPECT_EQ(nothing->origin, MemoryOrigin::kUnknown);
  EXPECT_FALSE(driver_->ExportIpc(DeviceAddress{kPage}));
  EXPECT_FALSE(context_->OpenIpc(IpcHandle()));
  int current = -1;
  EXPECT_EQ(get_device(&current), hip::kSuccess);
  EXPECT_EQ(current, 1);
  EXPECT_EQ(take(), hip::kSuccess);
  EXPECT_NE(free(&on_host), hip::kSuccess);  // its own it finds
  EXPECT_TRUE(driver_->Resolve(reinterpret_cast<uint64_t>(&on_host)));
  EXPECT_NE(take(), hip::kSuccess);
  set_device(0);
}

TEST_F(HipDriverTest, TheKernelIsCompiledAndCopies) {
  const auto from = Allocate(kMiB);
  const auto to = Allocate(kMiB);
  const auto list = Allocate(kPage);
  Write(from->range().base, std::string(70'001, 'k'));
  const CopyItem item = {to->range().base + 3, from->range().base, 70'001};
  Write(list->range().base, std::string(reinterpret_cast<const char*>(&item), sizeof(item)));
  const auto stream = context_->NewStream();
  ASSERT_TRUE(stream) << stream.error().message;
  EXPECT_EQ((*stream)->CopyByKernel(list->range().base, 1, item.bytes).error().code,
            ErrorCode::kInternal)
      << "before LoadKernels";
  const Status loaded = context_->LoadKernels();
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE((*stream)->CopyByKernel(list->range().base, 1, item.bytes));
  EXPECT_TRUE((*stream)->Synchronize());
  EXPECT_EQ(Read(to->range().base + 3, 70'001), std::string(70'001, 'k'));
}

TEST_F(HipDriverTest, PiecesAreMappedByTheirDescriptors) {
  const auto pieces = context_->AllocatePieces(4 * kMiB, 2 * kMiB);
  ASSERT_TRUE(pieces) << pieces.error().message;
  const DeviceAddress base = (*pieces)->range().base;
  Write(base + (2 * kMiB - 2), "abcd");
  const auto info = driver_->Resolve(NumberOf(base + (2 * kMiB + 5)));
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->origin, MemoryOrigin::kVirtual);
  EXPECT_EQ(info->allocation, (AddressRange{base + 2 * kMiB, 2 * kMiB}));
  const auto first = driver_->ExportPiece(base);
  const auto second = driver_->ExportPiece(base + 2 * kMiB);
  ASSERT_TRUE(first && second);
  const PieceFd both[] = {{second->get(), 2 * kMiB}, {first->get(), 2 * kMiB}};
  const auto mapped = context_->MapPieces(both);
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_EQ(Read((*mapped)->range().base, 2), "cd");
  EXPECT_EQ(Read((*mapped)->range().base + (4 * kMiB - 2), 2), "ab");
}

using HipDriverDeathTest = GpuDriversTest;

TEST_F(HipDriverDeathTest, HiddenDevicesKeepTheirNames) {
  EXPECT_EXIT(
      {
        auto all = LoadGpuDriver();
        HOLDS(all && (*all)->devices().size() == 2);
        std::fprintf(stderr, "%s %s", (*all)->devices()[0].uuid.c_str(),
                     (*all)->devices()[1].uuid.c_str());
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "GPU-[0-9a-f]*0 GPU-[0-9a-f]*1");
  EXPECT_EXIT(
      {
        ::setenv("HIP_VISIBLE_DEVICES", "1,0", 1);
        auto turned = LoadGpuDriver();
        HOLDS(turned && (*turned)->devices().size() == 2);
        std::fprintf(stderr, "%s %s", (*turned)->devices()[0].uuid.c_str(),
                     (*turned)->devices()[1].uuid.c_str());
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "GPU-[0-9a-f]*1 GPU-[0-9a-f]*0");
  EXPECT_EXIT(
      {
        ::setenv("HIP_VISIBLE_DEVICES", "1", 1);
        auto one = LoadGpuDriver();
        HOLDS(one && (*one)->devices().size() == 1);
        std::fprintf(stderr, "%s", (*one)->devices()[0].uuid.c_str());
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "GPU-[0-9a-f]*1");
}

// The runtime below HIP hides first, and HIP counts what is left; HIP's own variable hides the
// other vendor's.
TEST_F(HipDriverDeathTest, WhatTheRuntimeBelowHidesIsNotCounted) {
  struct {
    const char *below, *own, *others, *seen;
  } const cases[] = {
      {"1", nullptr, nullptr, "GPU-[0-9a-f]*1 [.]"},
      {"1,0", nullptr, nullptr, "GPU-[0-9a-f]*1 GPU-[0-9a-f]*0 [.]"},
      {"1,0", "1", nullptr, "GPU-[0-9a-f]*0 [.]"},
      {"1,0", "1,0", nullptr, "GPU-[0-9a-f]*0 GPU-[0-9a-f]*1 [.]"},
      {"1,0", nullptr, "0", "GPU-[0-9a-f]*1 [.]"},
      {"1,0", "1", "0", "GPU-[0-9a-f]*0 [.]"},
      {"1", "1", nullptr, "^[.]"},
      {"", nullptr, nullptr, "^[.]"},
  };
  for (const auto& one : cases) {
    EXPECT_EXIT(
        {
          ::setenv("ROCR_VISIBLE_DEVICES", one.below, 1);
          if (one.own != nullptr) ::setenv("HIP_VISIBLE_DEVICES", one.own, 1);
          if (one.others != nullptr) ::setenv("CUDA_VISIBLE_DEVICES", one.others, 1);
          const auto driver = LoadGpuDriver();
          const std::vector<DeviceInfo> none;
          for (const DeviceInfo& info : driver ? (*driver)->devices() : none) {
            HOLDS((*driver)->OpenContext(info.ordinal));
            std::fprintf(stderr, "%s ", info.uuid.c_str());
          }
          std::fprintf(stderr, ".");
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), one.seen);
  }
}

TEST_F(HipDriverDeathTest, ALibraryWithoutGpusLeavesItsPlaceToTheOther) {
  EXPECT_EXIT(
      {
        With("cuInit=100");  // of the other vendor's, where both are to be found
        auto driver = LoadGpuDriver();
        HOLDS(driver);
        HOLDS((*driver)->vendor() == "amd");
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        With("hipInit=100,cuInit=100");
        const auto none = LoadGpuDriver();
        HOLDS(!none && none.error().code == ErrorCode::kPathUnavailable);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(HipDriverDeathTest, AProcessThatHasOnlyLoadedTheLibraryIsLeftAlone) {
  EXPECT_EXIT(
      {
        const auto absent = LoadedGpuPointers();
        HOLDS(!absent && absent.error().code == ErrorCode::kNotFound);
        Result<DynamicLibrary> library = DynamicLibrary::Open(hip::kLibraries[0]);
        for (const char* const name : hip::kLibraries) {
          if (!library) library = DynamicLibrary::Open(name);
        }
        HOLDS(library);
        const auto unused = LoadedGpuPointers();
        HOLDS(!unused && unused.error().code == ErrorCode::kNotFound);
        hip::Result (*init)(unsigned) = nullptr;
        hip::Result (*malloc)(void**, size_t) = nullptr;
        HOLDS(library->Bind("hipInit", &init) && init(0) == hip::kSuccess);
        HOLDS(library->Bind("hipMalloc", &malloc));
        void* memory = nullptr;
        HOLDS(malloc(&memory, kPage) == hip::kSuccess);
        const auto used = LoadedGpuPointers();
        HOLDS(used);
        HOLDS((*used)->Resolve(reinterpret_cast<uint64_t>(memory))->origin ==
              MemoryOrigin::kDevice);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gantry::gpu
