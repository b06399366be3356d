// Memory that is pinned for a GPU, where the driver does not let go of it or says odd things of it:
// nothing is unmapped that the driver still knows. Each case is a process of its own.
#include "sidecar/worker/process/pinned_pages.h"

#include <sys/mman.h>

#include <string>
#include <vector>

#include "sidecar/memory/pinned_memory.h"
#include "sidecar/worker/process/kernel_list.h"
#include "sidecar/worker/process/mapping_table.h"
#include "sidecar/worker/process/staging_buffer.h"
#include "tests/fakes/test_arena.h"
#include "tests/lib/gpu/fake_driver_fixture.h"

namespace gantry::worker {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr char kHoldsOn[] = "cuMemHostUnregister=999,hipHostUnregister=999";

using PinnedPagesDeathTest = gpu::GpuDriversTest;

bool IsMapped(std::byte* data) {
  unsigned char resident = 0;
  return ::mincore(data, 4096, &resident) == 0;
}

// How many bytes of its own this process has mapped.
uint64_t MappedBytes() {
  FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  HOLDS(std::fscanf(file, "%lu", &pages) == 1);
  std::fclose(file);
  return pages * 4096;
}

TEST_F(PinnedPagesDeathTest, AreForgottenByTheDriverAndThenUnmapped) {
  EXPECT_EXIT(
      {
        const auto driver = gpu::LoadGpuDriver().value();
        const auto context = driver->OpenContext(0).value();
        auto pages = PinnedPages::Create(*context, kBytes, "a test").value();
        std::byte* const data = pages->data();
        HOLDS(!context->RegisterHost(data, kBytes));  // it is registered
        pages.reset();
        HOLDS(!IsMapped(data));
        void* const again = ::mmap(data, kBytes, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        HOLDS(context->RegisterHost(again, kBytes));  // it is not any more
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(PinnedPagesDeathTest, StayMappedWhereTheDriverDoesNotLetGo) {
  EXPECT_EXIT(
      {
        With(kHoldsOn);
        const auto driver = gpu::LoadGpuDriver().value();
        const auto context = driver->OpenContext(0).value();
        auto pages = PinnedPages::Create(*context, kBytes, "a test's bytes").value();
        std::byte* const data = pages->data();
        pages.reset();
        HOLDS(IsMapped(data));
        data[kBytes - 1] = std::byte{7};
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "memory for a test's bytes stays mapped.*HostUnregister");
}

TEST_F(PinnedPagesDeathTest, ThatTheDriverDoesNotTakeAreUnmapped) {
  EXPECT_EXIT(
      {
        With("cuMemHostRegister=2,hipHostRegister=2");
        const auto driver = gpu::LoadGpuDriver().value();
        const auto context = driver->OpenContext(0).value();
        const uint64_t before = MappedBytes();
        for (int i = 0; i < 64; ++i) {
          const auto pages = PinnedPages::Create(*context, kBytes, "a test");
          HOLDS(!pages && pages.error().code == ErrorCode::kResourceExhausted);
          HOLDS(pages.error().message.find("HostRegister") != std::string::npos);
        }
        HOLDS(MappedBytes() < before + 32 * kBytes);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// What the driver keeps is not used again, and costs nothing but its room.
TEST_F(PinnedPagesDeathTest, OfStagingAndOfKernelsLists) {
  EXPECT_EXIT(
      {
        With(kHoldsOn);
        const auto driver = gpu::LoadGpuDriver().value();
        const auto context = driver->OpenContext(0).value();
        const uint64_t before = MappedBytes();
        { const auto staging = StagingBuffer::Create(*context).value(); }
        const uint64_t with_staging = MappedBytes();
        HOLDS(with_staging >= before + StagingBuffer::kSlices * StagingBuffer::kSliceBytes);
        {
          const auto stream = context->NewStream().value();
          const auto list = KernelList::Create(*context, *stream).value();
        }
        HOLDS(MappedBytes() >= with_staging + KernelList::kSlabItems * sizeof(gpu::CopyItem));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0),
      "bytes between a GPU and the host stays mapped(.|\n)*lists of copy kernels stays mapped");
}

// The sidecar's staging memory in a worker's table. The pool ends a worker that says this.
TEST_F(PinnedPagesDeathTest, OfTheTableAreKeptAndRemoveSaysSo) {
  EXPECT_EXIT(
      {
        With(kHoldsOn);
        const auto driver = gpu::LoadGpuDriver().value();
        const auto context = driver->OpenContext(0).value();
        const testing::TestArena arena(kBytes);
        auto mapping = memory::HostMapping::Create(arena.source().fd->get(), kBytes, true).value();
        std::byte* const data = mapping.data();
        auto pinned = memory::PinForGpu(*context, mapping).value();
        MappingTable table;
        HOLDS(table.Add({3, 1}, std::move(mapping), std::move(pinned)));
        const Status removed = table.Remove({3, 1});
        HOLDS(!removed && removed.error().code == ErrorCode::kDeviceError);
        HOLDS(removed.error().message.find("HostUnregister") != std::string::npos);
        HOLDS(removed.error().message.find("stays mapped") != std::string::npos);
        HOLDS(IsMapped(data) && !table.Find({3, 1}) && table.size() == 0);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gantry::worker
