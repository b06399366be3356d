// What AMD's driver does beside that; on another vendor's GPUs nothing here runs.
#include <set>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/hip/hip_abi.h"
#include "tests/contracts/gpu_driver_contract.h"
#include "tests/contracts/hip_allocations.h"

namespace gantry::testing {
namespace {

namespace hip = gpu::hip;

class HipContract : public GpuDriverContract {
 protected:
  void SetUp() override {
    GpuDriverContract::SetUp();
    if (!IsAmd()) GTEST_SKIP() << "these are no AMD GPUs";
  }
  template <typename Function>
  static void Bind(const char* name, Function** function) {
    const auto library = HipAllocations::OpenLibrary();
    ASSERT_OK(library);
    ASSERT_OK(library->Bind(name, function));
  }
};

TEST_F(HipContract, WhatAReleaseLacksIsNamed) {
  std::set<std::string> wanted;
  if (driver_->version() < hip::VersionOf(5, 6)) wanted.insert("dma-buf");
  if (driver_->version() < hip::VersionOf(7, 0)) wanted.insert("stream writes");
  if (driver_->version() < hip::VersionOf(7, 1)) wanted.insert("batch copy");
  std::set<std::string> missing;
  for (const std::string& said : driver_->missing()) missing.insert(said.substr(0, said.find(':')));
  EXPECT_EQ(missing, wanted);
  EXPECT_EQ(driver_->devices().front().exports_dma_buf, !wanted.contains("dma-buf"));
}

// The runtime names an address, and opens at it; whoever keys by bytes has two allocations.
TEST_F(HipContract, HandlesOfTwoViewsDifferAndTheDriversDoNot) {
  hip::Result (*get_handle)(hip::IpcMemHandle*, void*) = nullptr;
  Bind("hipIpcGetMemHandle", &get_handle);
  const AddressRange range = Make(MemoryOrigin::kDevice, 8 * kMiB);
  hip::IpcMemHandle of_base = {};
  hip::IpcMemHandle of_view = {};
  ASSERT_EQ(get_handle(&of_base, reinterpret_cast<void*>(NumberOf(range.base))), 0);
  ASSERT_EQ(get_handle(&of_view, reinterpret_cast<void*>(NumberOf(range.base) + kMiB)), 0);
  EXPECT_NE(std::string(of_base.reserved, 64), std::string(of_view.reserved, 64));
  const auto handle = driver_->ExportIpc(range.base + kMiB);
  ASSERT_OK(handle);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(handle->bytes.data()), 64),
            std::string(of_base.reserved, 64));
}

TEST_F(HipContract, MemoryInADmaBufIsMappedFromItsOffset) {
  if (Lacks("dma-buf")) GTEST_SKIP() << "this release has no dma-bufs";
  GpuExporter exporter = StartExporter();
  for (const uint64_t bytes : {64 * kKiB, 40 * kKiB + 512, 5 * kMiB + 4096}) {
    for (const int device : std::set<int>{0, last_device()}) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes of GPU " + std::to_string(device));
      const auto exported = exporter.MakeDmaBuf(device, bytes, 7, /*neighbours=*/2);
      ASSERT_OK(exported);
      ASSERT_TRUE(exported->dma_buf.valid());
      auto mapped =
          context_->MapDmaBuf({exported->dma_buf.get(), exported->offset, exported->size});
      ASSERT_OK(mapped);
      const AddressRange range = (*mapped)->range();
      EXPECT_EQ(range.size, bytes);
      EXPECT_EQ(Read(range.base, bytes), Pattern(0, bytes, 7));
      Write(range.base + (bytes - kKiB), Pattern(bytes - kKiB, kKiB, 8));
      EXPECT_OK(exporter.Check(bytes - kKiB, kKiB, 8));
      EXPECT_OK(exporter.Check(0, bytes - kKiB, 7));
      EXPECT_FALSE(Resolve(range.base).is_shared_by_dma_buf) << "handed on";
      mapped->reset();
      EXPECT_EQ(Resolve(range.base).origin, MemoryOrigin::kUnknown) << "it is still mapped";
    }
  }
}

TEST_F(HipContract, ADmaBufThatIsTooShortOrNoneIsRefused) {
  if (Lacks("dma-buf")) GTEST_SKIP() << "this release has no dma-bufs";
  GpuExporter exporter = StartExporter();
  const auto exported = exporter.MakeDmaBuf(0, 4 * kMiB, 7);
  ASSERT_OK(exported);
  const int fd = exported->dma_buf.get();
  const auto beyond = context_->MapDmaBuf({fd, exported->offset + 4096, exported->size});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kFdTooShort);
  EXPECT_FALSE(context_->MapDmaBuf({-1, 0, 4096}));
}

// Where the bytes of a small allocation begin is told, and is not the beginning of the dma-buf.
TEST_F(HipContract, AViewIsExportedWithItsPlaceInTheDmaBuf) {
  if (Lacks("dma-buf")) GTEST_SKIP() << "this release has no dma-bufs";
  const AddressRange range = Make(MemoryOrigin::kDevice, 256 * kKiB);
  const auto whole = driver_->ExportDmaBuf(range);
  const auto view = driver_->ExportDmaBuf({range.base + 64 * kKiB, 64 * kKiB});
  ASSERT_OK(whole);
  ASSERT_OK(view);
  EXPECT_EQ(view->offset, whole->offset + 64 * kKiB);
  EXPECT_GE(whole->size, whole->offset + range.size);
}

TEST_F(HipContract, KernelsReachTheMemoryOfEveryDeviceWithoutBeingTold) {
  if (last_device() == 0) GTEST_SKIP() << "there is one GPU";
  ASSERT_OK(context_->LoadKernels());
  const auto other = driver_->OpenContext(last_device());
  ASSERT_OK(other);
  const auto there = (*other)->Allocate(kMiB);
  ASSERT_OK(there);
  const std::vector<uint8_t> bytes = Pattern(0, kMiB, 3);
  ASSERT_OK((*other)->CopyFromHost((*there)->range().base, bytes.data(), kMiB));
  const AddressRange here = Make(MemoryOrigin::kDevice, kMiB);
  const AddressRange list = Make(MemoryOrigin::kDevice, sizeof(gpu::CopyItem));
  const gpu::CopyItem item = {here.base, (*there)->range().base, kMiB};
  ASSERT_OK(context_->CopyFromHost(list.base, &item, sizeof(item)));
  EXPECT_OK(stream_->CopyByKernel(list.base, 1, kMiB));
  EXPECT_OK(stream_->Synchronize());
  EXPECT_EQ(Read(here.base, kMiB), bytes);
}

// A program finds its own errors, and none of the driver's.
TEST_F(HipContract, TheLastErrorOfTheCallerIsItsOwn) {
  hip::Result (*take)() = nullptr;
  hip::Result (*set_device)(int) = nullptr;
  Bind("hipGetLastError", &take);
  Bind("hipSetDevice", &set_device);
  take();
  int local = 0;
  Resolve(DeviceAddress{reinterpret_cast<uint64_t>(&local)});
  EXPECT_FALSE(driver_->ExportIpc(DeviceAddress{4096}));
  EXPECT_FALSE(context_->OpenIpc(gpu::IpcHandle()));
  EXPECT_FALSE(context_->Allocate(uint64_t{1} << 46));
  EXPECT_OK(context_->NewEvent());
  EXPECT_EQ(take(), hip::kSuccess);
  EXPECT_NE(set_device(1000), hip::kSuccess);
  Resolve(DeviceAddress{reinterpret_cast<uint64_t>(&local)});
  EXPECT_NE(take(), hip::kSuccess) << "the caller's own was taken away";
}

}  // namespace
}  // namespace gantry::testing
