// AMD's driver where its libraries lack something, refuse, or do what was reported of them:
// attaches beside each other map wrong memory. Each case is a process of its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/lib/gpu/fake_driver_fixture.h"

namespace gantry::gpu {
namespace {

using HipFaultsDeathTest = GpuDriversTest;

bool Says(const Status& status, ErrorCode code, const std::string& what) {
  if (status) return false;
  const bool said = status.error().code == code &&
                    (status.error().message + status.error().hint).find(what) != std::string::npos;
  if (!said) std::fprintf(stderr, "said: %s\n", status.error().message.c_str());
  return said;
}

template <typename T>
Status StatusOf(const Result<T>& result) {
  return result ? Status() : Fail(result.error());
}

bool Holds(GpuContext& context, DeviceAddress at, char wanted) {
  std::string found(kMiB, '\0');
  return context.CopyToHost(found.data(), at, kMiB) && found == std::string(kMiB, wanted);
}

TEST_F(HipFaultsDeathTest, AttachesOfSeveralThreadsMapWhatTheyWereAskedFor) {
  EXPECT_EXIT(
      {
        With("concurrent_attaches_mix=1");
        const auto driver = LoadGpuDriver().value();
        if (!driver->devices()[0].exports_dma_buf) ::_exit(0);  // before dma-bufs
        const auto context = driver->OpenContext(0).value();
        std::vector<std::unique_ptr<GpuMemory>> memories;
        std::vector<DmaBufExport> exported;
        for (int i = 0; i < 4; ++i) {
          memories.push_back(context->Allocate(kMiB).value());
          const DeviceAddress base = memories.back()->range().base;
          const std::string bytes(kMiB, static_cast<char>('a' + i));
          HOLDS(context->CopyFromHost(base, bytes.data(), kMiB));
          exported.push_back(driver->ExportDmaBuf({base, kMiB}).value());
        }
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
          threads.emplace_back([&, i] {
            const auto& part = exported[static_cast<size_t>(i)];
            const auto mapped = context->MapDmaBuf({part.fd.get(), part.offset, kMiB});
            HOLDS(mapped);
            HOLDS(Holds(*context, (*mapped)->range().base, static_cast<char>('a' + i)));
          });
        }
        for (std::thread& thread : threads) thread.join();
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(HipFaultsDeathTest, WithoutDmaBufsMemoryHasItsHandle) {
  EXPECT_EXIT(
      {
        With("lack_dma_bufs=1");
        const auto driver = LoadGpuDriver().value();
        HOLDS(!driver->devices()[0].exports_dma_buf);
        const auto context = driver->OpenContext(0).value();
        const auto memory = context->Allocate(kMiB).value();
        const auto info = driver->Resolve(NumberOf(memory->range().base)).value();
        HOLDS(info.has_ipc_handle && !info.is_shared_by_dma_buf);
        HOLDS(Says(StatusOf(driver->ExportDmaBuf(memory->range())), ErrorCode::kPathUnavailable,
                   "dma-buf"));
        HOLDS(driver->ExportIpc(memory->range().base));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(HipFaultsDeathTest, AKernelThatDoesNotCompileIsSaidWithWhatTheCompilerWrote) {
  EXPECT_EXIT(
      {
        With("hiprtcCompileProgram=6");
        const auto driver = LoadGpuDriver().value();
        const auto context = driver->OpenContext(0).value();
        HOLDS(Says(context->LoadKernels(), ErrorCode::kDeviceError, "the fake was told to find"));
        const auto memory = context->Allocate(2 * kMiB).value();
        const auto stream = context->NewStream().value();
        const DeviceAddress base = memory->range().base;
        HOLDS(stream->Copy(base + kMiB, base, kMiB) && stream->Synchronize());  // the rest works
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(HipFaultsDeathTest, NoMemoryForAContextIsSaidWithTheWayOut) {
  EXPECT_EXIT(
      {
        ::setenv("GANTRY_FAKE_CONTEXT_MIB", "5000", 1);  // of 4096
        const auto driver = LoadGpuDriver().value();
        const auto context = driver->OpenContext(0);
        HOLDS(Says(StatusOf(context), ErrorCode::kResourceExhausted, "gpu_memory_utilization"));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// Of whatever is asked of a context.
Status CallDriver(GpuContext& context, const std::string& what) {
  if (what == "memory") return StatusOf(context.Allocate(kMiB));
  if (what == "stream") return StatusOf(context.NewStream());
  if (what == "event") return StatusOf(context.NewEvent());
  return StatusOf(context.AllocatePieces(2 * kMiB, 2 * kMiB));
}

TEST_F(HipFaultsDeathTest, WhatTheRuntimeRefusesHasItsNameAndTheGpus) {
  struct {
    const char* failure;
    const char* asked;
    ErrorCode code;
    const char* said;
  } const cases[] = {
      {"hipMalloc=2", "memory", ErrorCode::kResourceExhausted, "hipErrorOutOfMemory"},
      {"hipStreamCreateWithFlags=999", "stream", ErrorCode::kDeviceError, "hipStreamCreate"},
      {"hipEventCreateWithFlags=2", "event", ErrorCode::kResourceExhausted, "hipEvent"},
      {"hipMemCreate=801", "pieces", ErrorCode::kDeviceError, "hipMemCreate"}};
  for (const auto& c : cases) {
    EXPECT_EXIT(
        {
          With(c.failure);
          const auto driver = LoadGpuDriver().value();
          const auto context = driver->OpenContext(0).value();
          const Status status = CallDriver(*context, c.asked);
          HOLDS(Says(status, c.code, c.said));
          HOLDS(Says(status, c.code, context->device().uuid));
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

// A kernel never begins peer access by itself; what it must not follow ends the process.
TEST_F(HipFaultsDeathTest, AKernelThatMayNotFollowAnAddressEndsTheProcess) {
  EXPECT_EXIT(
      {
        ::setenv("GANTRY_FAKE_PEER_ACCESS", "0", 1);
        const auto driver = LoadGpuDriver().value();
        const auto context = driver->OpenContext(0).value();
        const auto other = driver->OpenContext(1).value();
        HOLDS(!driver->ReachesPeer(0, 1));
        HOLDS(Says(context->EnablePeerAccess(*other), ErrorCode::kPathUnavailable, "no XGMI"));
        HOLDS(context->LoadKernels());
        const auto here = context->Allocate(kMiB).value();
        const auto there = other->Allocate(kMiB).value();
        CopyItem item;
        item.to = here->range().base;
        item.from = there->range().base;
        item.bytes = 4096;
        HOLDS(context->CopyFromHost(here->range().base + 8192, &item, sizeof(item)));
        const auto stream = context->NewStream().value();
        HOLDS(stream->CopyByKernel(here->range().base + 8192, 1, 4096));
        static_cast<void>(stream->Synchronize());
        ::_exit(0);
      },
      ::testing::KilledBySignal(SIGABRT), "Memory access fault by GPU");
}

}  // namespace
}  // namespace gantry::gpu
