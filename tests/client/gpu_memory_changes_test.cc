// Memory of GPUs that goes, or a driver that comes, under a client that is open.
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/loaded_gpu_pointers.h"
#include "tests/client/gpu_client_fixture.h"

namespace gantry::client {
namespace {

class GpuMemoryChanges : public GpuClientTest {
 protected:
  // Of pairs whose local buffers have these names, each in its group. Null: it was refused.
  gantry_view* MakeView(const std::vector<std::pair<std::string, int>>& locals) {
    nlohmann::json pairs = nlohmann::json::array();
    for (const auto& [name, group] : locals) {
      pairs.push_back(
          {{"group", group}, {"local", name + "@00000000000000aa"}, {"remote", "w/" + name}});
    }
    const nlohmann::json answer = {
        {"id", "v"}, {"pair_count", locals.size()}, {"bytes_per_block", 3}, {"pairs", pairs}};
    it_.sidecar.On("/v1/views", [text = answer.dump()](const FakeRequest&) {
      return FakeSidecar::Json(201, text);
    });
    gantry_view_spec spec = {};
    spec.remote_workload = "w";
    gantry_view* view = nullptr;
    EXPECT_OK(gantry_view_create(it_.client, &spec, &view));
    return view;
  }
  // "" when the transfer is accepted.
  std::string CodeOfSubmitting(const gantry_transfer_spec& spec) {
    gantry_transfer* transfer = nullptr;
    std::string code = CodeOf(gantry_transfer_submit(it_.client, &spec, 0, &transfer));
    gantry_transfer_destroy(transfer);
    return code;
  }
};

TEST_F(GpuMemoryChanges, MemoryThatWasFreedIsNoticedBeforeATransfer) {
  AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  gantry_buffer* buffer = nullptr;
  gantry_transfer* transfer = nullptr;
  ASSERT_OK(Register("k.0", At(range, 64), 4096, &buffer));
  ASSERT_OK(it_.Submit(buffer, &transfer));
  gantry_transfer_destroy(transfer);
  range = AllocateAgain(range);
  const size_t before = it_.sidecar.requests().size();
  gantry_error* error = it_.Submit(buffer, &transfer);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(gantry_error_code(error), "stale_generation");
  EXPECT_NE(std::string(gantry_error_message(error)).find("buffer 'k.0'"), std::string::npos);
  EXPECT_NE(std::string(gantry_error_message(error)).find("allocated again"), std::string::npos);
  EXPECT_NE(std::string(gantry_error_hint(error)).find("unregister"), std::string::npos);
  EXPECT_STREQ(gantry_error_field(error), "local/0");
  gantry_error_destroy(error);
  EXPECT_EQ(it_.sidecar.requests().size(), before);

  // The address is not mistaken for what was exported before.
  EXPECT_OK(gantry_buffer_unregister(buffer, 0));
  gantry_buffer_destroy(buffer);
  ASSERT_OK(Register("k.0", At(range, 64), 4096, &buffer));
  EXPECT_EQ(LastBody()["allocations"][0]["buffer_id"], IdOf(range));
  ASSERT_OK(it_.Submit(buffer, &transfer));
  gantry_transfer_destroy(transfer);
  ASSERT_TRUE(allocations_->Free(range));
  EXPECT_EQ(CodeOf(it_.Submit(buffer, &transfer)), "stale_generation");
  EXPECT_OK(gantry_buffer_unregister(buffer, 0));  // though it is gone
  gantry_buffer_destroy(buffer);
}

TEST_F(GpuMemoryChanges, AnAddressThatIsUsedAgainIsExportedAgainBesideTheStaleOne) {
  AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  gantry_buffer* stale = nullptr;
  gantry_buffer* fresh = nullptr;
  gantry_transfer* transfer = nullptr;
  ASSERT_OK(Register("old", At(range), 4096, &stale));
  const json before = LastBody()["allocations"][0];
  range = AllocateAgain(range);
  ASSERT_OK(Register("new", At(range), 4096, &fresh));
  EXPECT_NE(LastBody()["allocations"][0], before);
  EXPECT_EQ(CodeOf(it_.Submit(stale, &transfer)), "stale_generation");
  ASSERT_OK(it_.Submit(fresh, &transfer));
  gantry_transfer_destroy(transfer);
  gantry_buffer_destroy(stale);
  gantry_buffer_destroy(fresh);
}

TEST_F(GpuMemoryChanges, OnePieceOfVirtualMemoryThatWasMappedAnewIsNoticed) {
  const AddressRange range = allocations_->MakeVirtual({kPiece, kPiece, kPiece}).value();
  gantry_buffer* buffer = nullptr;
  gantry_transfer* transfer = nullptr;
  ASSERT_OK(Register("k.0", At(range), range.size, &buffer));
  ASSERT_OK(it_.Submit(buffer, &transfer));
  gantry_transfer_destroy(transfer);
  ASSERT_TRUE(allocations_->MapAnew(range, 1));
  EXPECT_EQ(CodeOf(it_.Submit(buffer, &transfer)), "stale_generation");
  gantry_buffer_destroy(buffer);
}

TEST_F(GpuMemoryChanges, ATransferByAViewLooksAtWhatItMoves) {
  const AddressRange kept = Make(MemoryOrigin::kDevice, kMiB);
  const AddressRange freed = Make(MemoryOrigin::kDevice, kMiB);
  gantry_buffer* buffers[2] = {};
  ASSERT_OK(Register("k.0", At(kept), 4096, &buffers[0]));
  ASSERT_OK(Register("k.1", At(freed), 4096, &buffers[1]));
  gantry_view* const view = MakeView({{"elsewhere", 0}, {"k.0", 0}, {"k.1", 0}});
  ASSERT_NE(view, nullptr);
  const uint64_t block = 0;
  gantry_block_group group = {};
  group.local_blocks = group.remote_blocks = &block;
  group.local_count = group.remote_count = 1;
  gantry_transfer_spec spec = {};
  spec.view = view;
  spec.groups = &group;
  spec.group_count = 1;
  const auto submit = [&] { return CodeOfSubmitting(spec); };
  EXPECT_EQ(submit(), "");
  ASSERT_TRUE(allocations_->Free(freed));
  EXPECT_EQ(submit(), "stale_generation");
  group.first_layer = 1;
  group.layer_count = 1;
  EXPECT_EQ(submit(), "");
  group.layer_count = 2;
  EXPECT_EQ(submit(), "stale_generation");
  spec.group_count = 0;
  spec.local_blocks = spec.remote_blocks = &block;
  spec.block_count = 1;
  EXPECT_EQ(submit(), "stale_generation");
  // What is registered by that name since is what counts.
  gantry_buffer_destroy(std::exchange(buffers[1], nullptr));
  EXPECT_EQ(submit(), "");
  const AddressRange anew = Make(MemoryOrigin::kDevice, kMiB);
  ASSERT_OK(Register("k.1", At(anew), 4096, &buffers[1]));
  EXPECT_EQ(submit(), "");
  ASSERT_TRUE(allocations_->Free(anew));
  EXPECT_EQ(submit(), "stale_generation");
  gantry_view_destroy(view);
  for (gantry_buffer* buffer : buffers) gantry_buffer_destroy(buffer);
}

TEST_F(GpuMemoryChanges, WhatATransferByAViewDoesNotMoveMayBeFreed) {
  const AddressRange kept = Make(MemoryOrigin::kDevice, kMiB);
  const AddressRange freed = Make(MemoryOrigin::kDevice, kMiB);
  gantry_buffer* buffers[2] = {};
  ASSERT_OK(Register("k.0", At(kept), 4096, &buffers[0]));
  ASSERT_OK(Register("k.1", At(freed), 4096, &buffers[1]));
  gantry_view* const view = MakeView({{"k.0", 0}, {"k.1", 1}});
  ASSERT_NE(view, nullptr);
  const uint64_t block = 0;
  gantry_transfer_spec lists = {};  // of group 0
  lists.view = view;
  lists.local_blocks = lists.remote_blocks = &block;
  lists.block_count = 1;
  const gantry_range range = {0, 0, 0, 0, 16};
  gantry_transfer_spec ranges = {};  // of any pair
  ranges.view = view;
  ranges.ranges = &range;
  ranges.range_count = 1;
  EXPECT_EQ(CodeOfSubmitting(lists), "");
  EXPECT_EQ(CodeOfSubmitting(ranges), "");
  ASSERT_TRUE(allocations_->Free(freed));
  EXPECT_EQ(CodeOfSubmitting(lists), "");
  EXPECT_EQ(CodeOfSubmitting(ranges), "stale_generation");
  gantry_view_destroy(view);
  for (gantry_buffer* buffer : buffers) gantry_buffer_destroy(buffer);
}

TEST_F(GpuMemoryChanges, AnAllocationOfManyBuffersOfAViewIsLookedAtWhicheverOfThemIsThere) {
  const AddressRange shared = Make(MemoryOrigin::kDevice, kMiB);
  gantry_buffer* buffers[3] = {};
  for (uint64_t i = 0; i < 3; ++i) {
    const std::string name = "k." + std::to_string(i);
    ASSERT_OK(Register(name.c_str(), At(shared, 4096 * i), 4096, &buffers[i]));
  }
  gantry_view* const view = MakeView({{"k.0", 0}, {"k.1", 0}, {"k.2", 0}});
  ASSERT_NE(view, nullptr);
  const uint64_t block = 0;
  gantry_transfer_spec spec = {};
  spec.view = view;
  spec.local_blocks = spec.remote_blocks = &block;
  spec.block_count = 1;
  EXPECT_EQ(CodeOfSubmitting(spec), "");
  gantry_buffer_destroy(std::exchange(buffers[0], nullptr));
  EXPECT_EQ(CodeOfSubmitting(spec), "");
  ASSERT_TRUE(allocations_->Free(shared));
  EXPECT_EQ(CodeOfSubmitting(spec), "stale_generation");
  const AddressRange other = Make(MemoryOrigin::kDevice, kMiB);
  ASSERT_OK(Register("k.0", At(other), 4096, &buffers[0]));
  EXPECT_EQ(CodeOfSubmitting(spec), "stale_generation");
  for (int i : {1, 2}) gantry_buffer_destroy(std::exchange(buffers[i], nullptr));
  EXPECT_EQ(CodeOfSubmitting(spec), "");
  ASSERT_TRUE(allocations_->Free(other));
  EXPECT_EQ(CodeOfSubmitting(spec), "stale_generation");
  gantry_view_destroy(view);
  gantry_buffer_destroy(buffers[0]);
}

gantry_error* RegisterHeap(gantry_client* client) {
  const std::vector<char> heap(4096);
  const gantry_piece piece = {heap.data(), 100};
  gantry_buffer_spec spec = {};
  spec.name = "b";
  spec.pieces = &piece;
  spec.piece_count = 1;
  gantry_buffer* buffer = nullptr;
  return gantry_buffers_register(client, &spec, 1, &buffer);
}

bool LibraryIsLoaded() {
  std::ifstream maps("/proc/self/maps");
  const std::string text((std::istreambuf_iterator<char>(maps)), {});
  return text.find("libcuda") != std::string::npos || text.find("libamdhip64") != std::string::npos;
}

// Each in a process of its own, because a library is loaded once.
class GpuDriverDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(GpuDriverDeathTest, AProcessWithoutADriverLoadsNone) {
  EXPECT_EXIT(
      {
        OpenClient it;
        const std::string code = CodeOf(RegisterHeap(it.client));
        const bool right =
            code == "not_exportable" && !LibraryIsLoaded() && !gpu::LoadedGpuPointers();
        // Once somebody else has loaded it, it is found.
        const bool found = gpu::LoadGpuDriver() && gpu::LoadedGpuPointers();
        std::fprintf(stderr, "right: %d, found: %d", right, found);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "right: 1, found: 1");
}

using FakeGpuDriverDeathTest = GpuDriverDeathTest;

// The library of the vendor that the test has, used and kept as by a framework; nothing without
// one.
std::optional<DynamicLibrary> LoadAndInitialise(const std::function<void()>& between) {
  constexpr std::pair<const char*, const char*> kLibraries[] = {{"libcuda.so.1", "cuInit"},
                                                                {"libamdhip64.so.7", "hipInit"},
                                                                {"libamdhip64.so.6", "hipInit"},
                                                                {"libamdhip64.so.5", "hipInit"}};
  for (const auto& [name, initialise] : kLibraries) {
    auto loaded = DynamicLibrary::Open(name);
    if (!loaded) continue;
    between();
    int (*init)(unsigned) = nullptr;
    if (!loaded->Bind(initialise, &init) || init(0) != 0) return std::nullopt;
    return std::move(*loaded);
  }
  return std::nullopt;
}

TEST_F(FakeGpuDriverDeathTest, ADriverThatDoesNotWorkIsNoReasonToRefuseArenas) {
  EXPECT_EXIT(
      {
        ::setenv("GANTRY_FAKE_GPU_FAIL", "cuDeviceGetCount=999,hipGetDeviceCount=999", 1);
        bool unused = false;  // it was loaded, and nobody uses it
        const auto library = LoadAndInitialise([&] { unused = !gpu::LoadedGpuPointers(); });
        if (!library) ::_exit(1);
        OpenClient it;
        gantry_buffer* buffer = nullptr;
        const bool registered = CodeOf(it.Register("a", 0, 10, &buffer)).empty();
        gantry_error* error = RegisterHeap(it.client);
        std::fprintf(stderr, "%d %d %s %s", unused, registered, gantry_error_code(error),
                     gantry_error_message(error));
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0),
      "1 1 not_exportable .*lies in no arena.*(cuDeviceGetCount|hipGetDeviceCount)");
}

// Registers memory of each kind, and says how it went.
void RegisterMemoryOfASlice() {
  ::setenv("GANTRY_FAKE_GPU_FAIL", "is_mig_slice=1", 1);
  const auto driver = gpu::LoadGpuDriver().value();
  if (driver->vendor() == "amd") {
    std::fprintf(stderr, "this vendor's parts of GPUs are devices");
    ::_exit(0);
  }
  const auto context = driver->OpenContext(0).value();
  const auto allocations = GpuAllocations::On(*context).value();
  OpenClient it;
  for (const AddressRange& range : {allocations->Make(MemoryOrigin::kDevice, kMiB).value(),
                                    allocations->MakeVirtual({kPiece}).value(),
                                    allocations->Make(MemoryOrigin::kManaged, kMiB).value()}) {
    const gantry_piece piece = {At(range), 100};
    gantry_buffer_spec spec = {};
    spec.name = "k.0";
    spec.pieces = &piece;
    spec.piece_count = 1;
    gantry_buffer* buffer = nullptr;
    gantry_error* error = gantry_buffers_register(it.client, &spec, 1, &buffer);
    std::fprintf(stderr, "%s: %s: %s. ", gantry_error_code(error), gantry_error_message(error),
                 gantry_error_hint(error));
  }
  std::fprintf(stderr, "%zu handed over", it.sidecar.fds_received().size());
  ::_exit(0);
}

TEST_F(FakeGpuDriverDeathTest, MemoryOfASliceOfAGpuIsRefusedWithTheReasonAndTheWayOut) {
  EXPECT_EXIT(RegisterMemoryOfASlice(), ::testing::ExitedWithCode(0),
              "this vendor's parts of GPUs are devices|"
              "not_exportable: .* is memory of a GPU .* on Fake GPU MIG 1g.5gb "
              "\\(MIG-fafafafa-fafa-fafa-fafa-fafafafafa00\\): it is a MIG slice of a GPU, .*: run "
              "the workload and its sidecar on a whole GPU.*"
              "not_exportable: .* is virtual memory of a GPU on Fake GPU MIG.*: run the workload .*"
              "not_exportable: .* is managed memory .* handed over");
}

}  // namespace
}  // namespace gantry::client
