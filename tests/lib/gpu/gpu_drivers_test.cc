// What happens when the vendor's library lacks something or refuses: each case is a process of its
// own, because a library is loaded once and the fake reads its settings then.
#include "lib/gpu/gpu_drivers.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace gantry::gpu {
namespace {

#define HOLDS(condition)                         \
  if (!(condition)) {                            \
    std::fprintf(stderr, "not: %s", #condition); \
    ::_exit(1);                                  \
  }

class GpuDriversTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (::getenv("GANTRY_FAKE_GPU_DIR") != nullptr) return;  // one of those processes
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    ::setenv("GANTRY_FAKE_GPU_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    ::unsetenv("GANTRY_FAKE_GPU_DIR");
  }

  static void With(const char* failures) { ::setenv("GANTRY_FAKE_GPU_FAIL", failures, 1); }

  std::string folder_ = "/dev/shm/gantry-fake-gpu-XXXXXX";
};
using GpuDriversDeathTest = GpuDriversTest;

TEST_F(GpuDriversDeathTest, AFeatureWhoseSymbolIsMissingIsNamedAndTheOthersWork) {
  EXPECT_EXIT(
      {
        With("cuMemcpyBatchAsync=500,cuMemGetHandleForAddressRange=500");
        auto driver = LoadGpuDriver();
        HOLDS(driver);
        HOLDS((*driver)->missing() ==
              (std::vector<std::string>{"dma-buf: cuMemGetHandleForAddressRange",
                                        "batch copy: cuMemcpyBatchAsync"}));
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
          HOLDS(!driver && driver.error().code == ErrorCode::kDeviceError);
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

}  // namespace
}  // namespace gantry::gpu
