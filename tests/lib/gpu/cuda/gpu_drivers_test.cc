// What happens when the vendor's library lacks something or refuses, or a kernel breaks a context:
// each case is a process of its own, because a library is loaded once, the fake reads its settings
// then, and nothing mends a context.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/lib/gpu/fake_driver_fixture.h"

namespace gantry::gpu {
namespace {

using GpuDriversDeathTest = GpuDriversTest;

TEST_F(GpuDriversDeathTest, AFeatureWhoseSymbolIsMissingIsNamedAndTheOthersWork) {
  EXPECT_EXIT(
      {
        With("cuMemcpyBatchAsync=500,cuMemcpy2DAsync=500,cuMemGetHandleForAddressRange=500");
        auto driver = LoadGpuDriver();
        HOLDS(driver);
        HOLDS((*driver)->missing() ==
              (std::vector<std::string>{"dma-buf: cuMemGetHandleForAddressRange",
                                        "batch copy: cuMemcpyBatchAsync",
                                        "row copy: cuMemcpy2DAsync"}));
        auto context = (*driver)->OpenContext(0);
        HOLDS(context);
        const auto memory = (*context)->Allocate(4096);
        HOLDS(memory);
        const auto stream = (*context)->NewStream();
        HOLDS(stream);
        const DeviceAddress base = (*memory)->range().base;
        HOLDS((*stream)->Copy(base, base + 2048, 1024));
        const auto refused = (*stream)->CopyBatch(std::vector<CopyItem>{{base, base + 2048, 1024}});
        HOLDS(!refused && refused.error().code == ErrorCode::kPathUnavailable);
        HOLDS(refused.error().message.find("cuMemcpyBatchAsync") != std::string::npos);
        const auto no_rows = (*stream)->CopyRows({base, base + 2048, 64, 64, 64, 16});
        HOLDS(!no_rows && no_rows.error().code == ErrorCode::kPathUnavailable);
        HOLDS(no_rows.error().message.find("cuMemcpy2DAsync") != std::string::npos);
        HOLDS((*driver)->ExportDmaBuf({base, 4096}).error().code == ErrorCode::kPathUnavailable);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuDriversDeathTest, ADriverThatIsInstalledAndDoesNotWorkIsNoAbsentOne) {
  for (const char* failure :
       {"cuMemAlloc=500", "cuInit=999", "cuInit=100", "cuDeviceGetCount=999"}) {
    EXPECT_EXIT(
        {
          With(failure);
          const auto driver = LoadGpuDriver();
          // One without a GPU for this process works, and leads nowhere.
          const bool sees_none = std::string(failure) == "cuInit=100";
          HOLDS(!driver && driver.error().code ==
                               (sees_none ? ErrorCode::kPathUnavailable : ErrorCode::kDeviceError));
          HOLDS(!driver.error().hint.empty() || std::string(failure) == "cuDeviceGetCount=999");
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "")
        << failure;
  }
}

TEST_F(GpuDriversDeathTest, NoMemoryForAContextIsSaidWithTheWayOut) {
  EXPECT_EXIT(
      {
        ::setenv("GANTRY_FAKE_GPU_MIB", "64", 1);
        ::setenv("GANTRY_FAKE_CONTEXT_MIB", "65", 1);
        auto driver = LoadGpuDriver();
        HOLDS(driver);
        const auto context = (*driver)->OpenContext(1);
        HOLDS(!context && context.error().code == ErrorCode::kResourceExhausted);
        HOLDS(context.error().hint.find("gpu_memory_utilization") != std::string::npos);
        HOLDS(context.error().message.find((*driver)->devices()[1].uuid) != std::string::npos);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuDriversDeathTest, HostMemoryWhoseAddressIsNotToBeHadIsUnregistered) {
  EXPECT_EXIT(
      {
        With("cuMemHostGetDevicePointer=999");
        auto driver = LoadGpuDriver();
        HOLDS(driver);
        auto context = (*driver)->OpenContext(0);
        HOLDS(context);
        alignas(4096) static char host[4096];
        for (int i = 0; i < 2; ++i) {  // a second time: it is not registered any more
          const auto registered = (*context)->RegisterHost(host, sizeof(host));
          HOLDS(!registered);
          HOLDS(registered.error().message.find("cuMemHostGetDevicePointer") != std::string::npos);
        }
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// A context with its kernels, and a list of one item that the device reads.
struct KernelUser {
  KernelUser() {
    HOLDS(driver);
    context = *(*driver)->OpenContext(0);
    other = *(*driver)->OpenContext(1);
    HOLDS(context->LoadKernels());
    stream = *context->NewStream();
    registered = *context->RegisterHost(page, sizeof(page));
  }
  Status Launch(DeviceAddress to, DeviceAddress from, uint64_t bytes) {
    *item() = {to, from, bytes};
    return stream->CopyByKernel(registered->range().base, 1, bytes);
  }
  CopyItem* item() { return reinterpret_cast<CopyItem*>(page); }

  Result<std::unique_ptr<GpuDriver>> driver = LoadGpuDriver();
  std::unique_ptr<GpuContext> context, other;
  std::unique_ptr<GpuStream> stream;
  std::unique_ptr<GpuMemory> registered;
  alignas(4096) char page[4096] = {};
};

bool IsIllegalAddress(const Status& status) {
  return !status && status.error().code == ErrorCode::kDeviceError &&
         status.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos;
}

TEST_F(GpuDriversDeathTest, AKernelThatMayNotFollowAnAddressEndsAllUseOfTheContext) {
  const std::vector<std::string> cases = {"a peer's, written", "a peer's, read", "freed",
                                          "the host's", "beyond the end"};
  for (const std::string& what : cases) {
    EXPECT_EXIT(
        {
          KernelUser user;
          const auto mine = *user.context->Allocate(8192);
          const auto peers = *user.other->Allocate(4096);
          const DeviceAddress here = mine->range().base;
          const DeviceAddress there = peers->range().base;
          const DeviceAddress freed = (*user.context->Allocate(4096))->range().base;
          const DeviceAddress host{reinterpret_cast<uint64_t>(&user.driver)};
          HOLDS(user.Launch(here, here + 4096, 4096));  // which it may
          HOLDS(user.stream->Synchronize());
          const DeviceAddress to = what == cases[0] ? there : here;
          const DeviceAddress from = what == cases[1]   ? there
                                     : what == cases[2] ? freed
                                     : what == cases[3] ? host
                                                        : here + 4096;
          const uint64_t bytes = what == cases[4] ? 4097 : 16;
          auto event = user.context->NewEvent();
          HOLDS(user.Launch(to, from, bytes));                   // it is found when the kernel runs
          const Status recorded = user.stream->Record(**event);  // the kernel may have run by now
          HOLDS(IsIllegalAddress(recorded ? (*event)->Wait() : recorded));
          HOLDS(IsIllegalAddress(user.stream->Synchronize()));
          HOLDS(!(*event)->IsReached());
          HOLDS(!user.context->Allocate(4096));
          HOLDS(!user.context->NewStream());
          HOLDS(IsIllegalAddress(user.stream->Copy(here, here + 4096, 16)));
          HOLDS(IsIllegalAddress(user.Launch(here, here + 4096, 16)));
          HOLDS(user.other->Allocate(4096));
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "")
        << what;
  }
}

TEST_F(GpuDriversDeathTest, PeerAccessIsOfAContextAndInOneDirection) {
  EXPECT_EXIT(
      {
        KernelUser user;
        HOLDS(user.context->EnablePeerAccess(*user.other));
        const auto mine = *user.context->Allocate(4096);
        const auto peers = *user.other->Allocate(4096);
        HOLDS(user.Launch(mine->range().base, peers->range().base, 4096));
        HOLDS(user.stream->Synchronize());
        HOLDS(user.other->LoadKernels());
        const auto stream = *user.other->NewStream();
        HOLDS(stream->CopyByKernel(user.registered->range().base, 1, 4096));
        HOLDS(IsIllegalAddress(stream->Synchronize()));
        HOLDS(user.stream->Synchronize());
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuDriversDeathTest, AListThatIsChangedTooEarlyIsFoundOut) {
  EXPECT_EXIT(
      {
        constexpr uint64_t kLong = 64 << 20;
        KernelUser user;
        const auto memory = *user.context->Allocate(kLong);
        const DeviceAddress base = memory->range().base;
        HOLDS(user.stream->Fill(base, 1, kLong));  // for a while
        HOLDS(user.Launch(base, base + 4096, 16));
        user.item()->to = DeviceAddress{4096};
        HOLDS(IsIllegalAddress(user.stream->Synchronize()));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuDriversDeathTest, KernelsThatCannotBeLoadedAreSaidAndTheRestWorks) {
  for (const char* failure :
       {"cuLaunchKernel=500", "cuModuleLoadData=218", "cuModuleGetFunction=999"}) {
    EXPECT_EXIT(
        {
          With(failure);
          const std::string symbol = std::string(failure).substr(0, std::string(failure).find('='));
          const bool is_missing = symbol == "cuLaunchKernel";
          auto driver = LoadGpuDriver();
          HOLDS(driver);
          HOLDS((*driver)->missing() == (is_missing ? std::vector<std::string>{"kernels: " + symbol}
                                                    : std::vector<std::string>{}));
          const auto context = *(*driver)->OpenContext(0);
          const auto memory = *context->Allocate(4096);
          const auto stream = *context->NewStream();
          const DeviceAddress base = memory->range().base;
          for (int i = 0; i < 2; ++i) {
            const Status loaded = context->LoadKernels();
            HOLDS(!loaded && loaded.error().message.find(symbol) != std::string::npos);
            HOLDS(loaded.error().code ==
                  (is_missing ? ErrorCode::kPathUnavailable : ErrorCode::kDeviceError));
            HOLDS(!stream->CopyByKernel(base, 1, 16));
            HOLDS(stream->Copy(base, base + 2048, 1024));
          }
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "")
        << failure;
  }
}

TEST_F(GpuDriversDeathTest, ALaunchThatIsRefusedBreaksNothing) {
  EXPECT_EXIT(
      {
        With("cuLaunchKernel=701");
        KernelUser user;
        const auto memory = *user.context->Allocate(4096);
        const Status refused = user.Launch(memory->range().base, memory->range().base + 2048, 2048);
        HOLDS(!refused && refused.error().code == ErrorCode::kDeviceError);
        HOLDS(user.stream->Synchronize());
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gantry::gpu
