// Pinned memory and values that streams write, where the driver or the device lacks them, refuses,
// or has lost its context; and what the fake holds against callers that go beyond what they may.
#include <sys/mman.h>

#include <string>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda/cuda_abi.h"
#include "tests/contracts/gpu_streams.h"
#include "tests/lib/gpu/fake_driver_fixture.h"

namespace gantry::gpu {
namespace {

using GpuWorkloadFaultsDeathTest = GpuDriversTest;

constexpr uint64_t kPage = 4096;

// A device of the fake, and a page of shared memory.
struct Workload {
  Workload() {
    HOLDS(driver);
    auto opened = (*driver)->OpenWorkloadDevice(0);
    HOLDS(opened);
    device = *std::move(opened);
    page = static_cast<uint64_t*>(
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    streams = *testing::GpuStreams::On(0);
    stream = *streams->New();
  }
  Result<std::unique_ptr<GpuDriver>> driver = LoadGpuDriver();
  std::unique_ptr<GpuWorkloadDevice> device;
  uint64_t* page = nullptr;
  std::unique_ptr<testing::GpuStreams> streams;
  StreamHandle stream{};
};

bool Says(const Status& status, ErrorCode code, const std::string& what) {
  return !status && status.error().code == code &&
         status.error().message.find(what) != std::string::npos;
}

TEST_F(GpuWorkloadFaultsDeathTest, AMissingSymbolIsNamedWithWhatToDoInstead) {
  for (const char* symbol : {"cuStreamWriteValue64", "cuStreamIsCapturing", "cuStreamGetId",
                             "cuStreamGetCtx", "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetId"}) {
    EXPECT_EXIT(
        {
          With((std::string(symbol) + "=500").c_str());
          Workload workload;
          const Status can = workload.device->CheckStreamWrites();
          HOLDS(Says(can, ErrorCode::kPathUnavailable, symbol));
          HOLDS(can.error().hint.find("synchronise") != std::string::npos);
          HOLDS(workload.device->IdOf(workload.stream).error().code == ErrorCode::kPathUnavailable);
          HOLDS(Says(workload.device->WriteWhenDone(workload.stream, DeviceAddress{8}, 1),
                     ErrorCode::kPathUnavailable, symbol));
          HOLDS(workload.device->Pin(workload.page, kPage));  // that much works
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "")
        << symbol;
  }
}

TEST_F(GpuWorkloadFaultsDeathTest, ADeviceThatCannotIsSaidWithWhatToDoInstead) {
  EXPECT_EXIT(
      {
        With("can_use_64_bit_stream_mem_ops=1");  // as of a driver that does not know the attribute
        Workload workload;
        const Status can = workload.device->CheckStreamWrites();
        HOLDS(Says(can, ErrorCode::kPathUnavailable, "64-bit"));
        HOLDS(can.error().hint.find("synchronise") != std::string::npos);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuWorkloadFaultsDeathTest, WhatFailsIsSaidAndNothingStaysPinned) {
  for (const char* call : {"cuMemHostRegister", "cuMemHostGetDevicePointer"}) {
    EXPECT_EXIT(
        {
          With((std::string(call) + "=999").c_str());
          Workload workload;
          for (int i = 0; i < 2; ++i) {  // a second time: it is not registered any more
            const auto pinned = workload.device->Pin(workload.page, kPage);
            HOLDS(!pinned && pinned.error().message.find(call) != std::string::npos);
          }
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "")
        << call;
  }
}

TEST_F(GpuWorkloadFaultsDeathTest, AnUnpinThatFailsIsSaidEachTime) {
  EXPECT_EXIT(
      {
        With("cuMemHostUnregister=999");
        Workload workload;
        const auto pinned = workload.device->Pin(workload.page, kPage);
        HOLDS(pinned);
        for (int i = 0; i < 2; ++i) {
          HOLDS(Says((*pinned)->Unpin(), ErrorCode::kDeviceError, "cuMemHostUnregister"));
        }
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuWorkloadFaultsDeathTest, AWriteThatIsRefusedIsSaid) {
  EXPECT_EXIT(
      {
        With("cuStreamWriteValue64=999");
        Workload workload;
        const auto pinned = workload.device->Pin(workload.page, kPage);
        HOLDS(pinned);
        HOLDS(Says(workload.device->WriteWhenDone(workload.stream, (*pinned)->range().base, 1),
                   ErrorCode::kDeviceError, "cuStreamWriteValue64"));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuWorkloadFaultsDeathTest, WhatIsNotSupportedIsSaidWithWhatToDoInstead) {
  const auto says = [](const Status& status, const char* call) {
    return Says(status, ErrorCode::kPathUnavailable, call) &&
           status.error().hint.find("synchronise") != std::string::npos;
  };
  EXPECT_EXIT(
      {
        With("cuStreamWriteValue64=801");
        Workload workload;
        const auto pinned = *workload.device->Pin(workload.page, kPage);
        HOLDS(says(workload.device->WriteWhenDone(workload.stream, pinned->range().base, 1),
                   "cuStreamWriteValue64"));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        With("cuMemHostRegister=801");
        Workload workload;
        const auto refused = workload.device->Pin(workload.page, kPage);
        HOLDS(!refused && says(Fail(refused.error()), "cuMemHostRegister"));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// A driver that is broken says nothing of whose the stream is.
TEST_F(GpuWorkloadFaultsDeathTest, WhoseAStreamIsAndThatNobodyKnowsAreTwoErrors) {
  for (const auto& [failure, code] : {std::pair{"cuStreamGetCtx=400", ErrorCode::kInvalidArgument},
                                      {"cuStreamGetCtx=801", ErrorCode::kInvalidArgument},
                                      {"cuStreamGetCtx=700", ErrorCode::kDeviceError}}) {
    EXPECT_EXIT(
        {
          With(failure);
          Workload workload;
          const auto refused = workload.device->IdOf(workload.stream);
          HOLDS(!refused && refused.error().code == code);
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "")
        << failure;
  }
}

// Where the fake's devices find shared memory is never where the host does.
TEST_F(GpuWorkloadFaultsDeathTest, TheHostsAddressIsNoneOfTheDevice) {
  EXPECT_EXIT(
      {
        Workload workload;
        const DeviceAddress host{reinterpret_cast<uint64_t>(workload.page)};
        GpuWorkloadDevice& device = *workload.device;
        HOLDS(!device.WriteWhenDone(workload.stream, host, 1));  // not pinned at all
        auto pinned = *device.Pin(workload.page, kPage);
        const DeviceAddress base = pinned->range().base;
        HOLDS(base != host);
        HOLDS(!device.WriteWhenDone(workload.stream, host, 1));
        HOLDS(!device.WriteWhenDone(workload.stream, base + kPage, 1));
        HOLDS(device.WriteWhenDone(workload.stream, base + (kPage - 8), 7));
        HOLDS(workload.streams->Synchronize(workload.stream));
        HOLDS(workload.page[kPage / 8 - 1] == 7);
        HOLDS(pinned->Unpin());
        HOLDS(!device.WriteWhenDone(workload.stream, base, 1));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuWorkloadFaultsDeathTest, AWriteToWhatWasUnpinnedMeanwhileEndsAllUseOfTheContext) {
  EXPECT_EXIT(
      {
        Workload workload;
        auto pinned = *workload.device->Pin(workload.page, kPage);
        HOLDS(workload.streams->Hold(workload.stream));
        HOLDS(workload.device->WriteWhenDone(workload.stream, pinned->range().base, 1));
        HOLDS(pinned->Unpin());
        workload.streams->LetGo();
        HOLDS(!workload.streams->Synchronize(workload.stream));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuWorkloadFaultsDeathTest, AContextThatTheWorkloadHasEndedIsNoErrorOfAnUnpin) {
  EXPECT_EXIT(
      {
        Workload workload;
        auto pinned = *workload.device->Pin(workload.page, kPage);
        auto library = *DynamicLibrary::Open("libcuda.so.1");
        cuda::Result (*reset)(cuda::Device) = nullptr;
        HOLDS(library.Bind("cuDevicePrimaryCtxReset_v2", &reset));
        HOLDS(reset(0) == cuda::kSuccess);
        HOLDS(!workload.device->IdOf(workload.stream));
        HOLDS(!workload.device->WriteWhenDone(workload.stream, pinned->range().base, 1));
        HOLDS(pinned->Unpin());
        ::munmap(workload.page, kPage);
        pinned.reset();
        workload.device.reset();
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gantry::gpu
