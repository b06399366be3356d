// Memory of GPUs through client/include/gantry.h, over a sidecar that only answers. On the fake in
// every run; tests/gpu/run runs it on the vendor's driver.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <set>

#include "client/include/gantry_memory.h"
#include "lib/base/base64.h"
#include "lib/gpu/loaded_gpu_pointers.h"
#include "tests/client/gpu_client_fixture.h"

namespace gantry::client {
namespace {

using GpuRegistration = GpuClientTest;

TEST_F(GpuRegistration, AnAddressInsideCarriesItsOffset) {
  const AddressRange range = Make(MemoryOrigin::kDevice, 4 * kMiB);
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(Register("k.0", At(range, kMiB + 512), 8192, &buffer));
  EXPECT_EQ(gantry_buffer_bytes(buffer), 8192U);
  const json body = LastBody();
  json told = {{"kind", "gpu"},
               {"size", 4 * kMiB},
               {"device_uuid", driver_->devices()[0].uuid},
               {"buffer_id", IdOf(range)},
               {"pid", ::getpid()}};
  if (driver_->Resolve(NumberOf(range.base)).value().is_shared_by_dma_buf) {
    told["fd_token"] = body["allocations"][0]["fd_token"];
    told["fd_offset"] = 0;
  } else {
    const auto handle = driver_->ExportIpc(range.base).value();
    told["ipc_handle"] =
        Base64Of(std::string_view(reinterpret_cast<const char*>(handle.bytes.data()), 64));
  }
  EXPECT_EQ(body["allocations"], json::array({told}));
  EXPECT_EQ(body["buffers"][0]["pieces"],
            json::parse(R"([{"allocation":0,"offset":1049088,"length":8192}])"));
  gantry_buffer_destroy(buffer);
}

TEST_F(GpuRegistration, ViewsOfOneAllocationNameItOnce) {
  const AddressRange range = Make(MemoryOrigin::kDevice, 4 * kMiB);
  const gantry_piece pieces[] = {{At(range), 100},
                                 {At(range, 50), 100},
                                 {gantry_arena_data(it_.arena), 10},
                                 {At(range, 4 * kMiB - 1), 1}};
  gantry_buffer_spec specs[3] = {};
  specs[0].name = "a";
  specs[0].pieces = &pieces[0];
  specs[0].piece_count = 2;
  specs[1].name = "host";
  specs[1].pieces = &pieces[2];
  specs[1].piece_count = 1;
  specs[2].name = "b";
  specs[2].pieces = &pieces[3];
  specs[2].piece_count = 1;
  gantry_buffer* buffers[3] = {};
  ASSERT_OK(gantry_buffers_register(it_.client, specs, 3, buffers));
  const json body = LastBody();
  ASSERT_EQ(body["allocations"].size(), 2U);
  EXPECT_EQ(body["allocations"][0]["kind"], "gpu");
  EXPECT_EQ(body["allocations"][1]["kind"], "host");
  EXPECT_EQ(body["buffers"][0]["pieces"][1]["allocation"], 0);
  EXPECT_EQ(body["buffers"][1]["pieces"][0]["allocation"], 1);
  EXPECT_EQ(body["buffers"][2]["pieces"],
            json::parse(R"([{"allocation":0,"offset":4194303,"length":1}])"));
  for (gantry_buffer* buffer : buffers) gantry_buffer_destroy(buffer);
}

TEST_F(GpuRegistration, VirtualMemoryIsHandedOverPieceByPieceAndOnce) {
  const AddressRange range = allocations_->MakeVirtual({kPiece, 2 * kPiece, kPiece}).value();
  const size_t fds_before = OpenFds();
  const size_t received_before = it_.sidecar.fds_received().size();
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(Register("k.0", At(range, kPiece - 100), 2 * kPiece + 300, &buffer));
  const json body = LastBody();
  ASSERT_EQ(body["allocations"].size(), 3U);
  const uint64_t starts[] = {0, kPiece, 3 * kPiece};
  const uint64_t sizes[] = {kPiece, 2 * kPiece, kPiece};
  std::set<std::string> tokens;
  for (size_t i = 0; i < 3; ++i) {
    const json& allocation = body["allocations"][i];
    EXPECT_EQ(allocation["size"], sizes[i]);
    EXPECT_EQ(allocation["buffer_id"], IdOf(range, starts[i]));
    EXPECT_FALSE(allocation.contains("ipc_handle"));
    tokens.insert(allocation["fd_token"]);
  }
  EXPECT_EQ(tokens.size(), 3U);
  EXPECT_EQ(body["buffers"][0]["pieces"],
            (json::array({
                {{"allocation", 0}, {"offset", kPiece - 100}, {"length", 100}},
                {{"allocation", 1}, {"offset", 0}, {"length", 2 * kPiece}},
                {{"allocation", 2}, {"offset", 0}, {"length", 200}},
            })));
  EXPECT_EQ(it_.sidecar.fds_received().size(), received_before + 3);
  EXPECT_EQ(OpenFds(), fds_before);  // they would keep the memory alive

  gantry_buffer* other = nullptr;
  ASSERT_OK(Register("k.1", At(range, 2 * kPiece), 2 * kPiece, &other));
  EXPECT_EQ(LastBody()["allocations"][0], body["allocations"][1]);
  EXPECT_EQ(it_.sidecar.fds_received().size(), received_before + 3);
  EXPECT_TRUE(it_.sidecar.tokens_released().empty());

  // The handle may live on: what counts is what is registered.
  EXPECT_OK(gantry_buffer_unregister(buffer, 0));
  EXPECT_EQ(it_.sidecar.tokens_released(),
            (std::vector<std::string>{body["allocations"][0]["fd_token"]}));
  EXPECT_OK(gantry_buffer_unregister(other, 0));
  const auto released = it_.sidecar.tokens_released();
  EXPECT_EQ(std::set<std::string>(released.begin(), released.end()), tokens);
  EXPECT_EQ(released.size(), 3U);
  gantry_buffer_destroy(buffer);
  gantry_buffer_destroy(other);
}

TEST_F(GpuRegistration, MorePiecesThanOneMessageTakes) {
  const AddressRange range = allocations_->MakeVirtual(std::vector<uint64_t>(300, kPiece)).value();
  const size_t received_before = it_.sidecar.fds_received().size();
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(Register("k.0", At(range), range.size, &buffer));
  EXPECT_EQ(LastBody()["buffers"][0]["pieces"].size(), 300U);
  EXPECT_EQ(it_.sidecar.fds_received().size(), received_before + 300);
  gantry_buffer_destroy(buffer);
  EXPECT_EQ(it_.sidecar.tokens_released().size(), 300U);
}

TEST_F(GpuRegistration, ARefusedRegistrationTakesItsDescriptorsBack) {
  const AddressRange range = allocations_->MakeVirtual({kPiece}).value();
  it_.sidecar.On("/v1/buffers", [](const FakeRequest&) {
    return FakeSidecar::Problem(409, "conflict", "the name is taken");
  });
  gantry_buffer* buffer = nullptr;
  EXPECT_EQ(CodeOf(Register("k.0", At(range), range.size, &buffer)), "conflict");
  EXPECT_EQ(it_.sidecar.tokens_released().size(), 1U);
}

TEST_F(GpuRegistration, MemoryThatCannotBeSharedIsRefusedWithWhatItIsAndTheWayOut) {
  const std::vector<char> heap(4096);
  const AddressRange closed = allocations_->MakeVirtual({kPiece}, false).value();
  const std::pair<const void*, std::string> cases[] = {
      {At(Make(MemoryOrigin::kPool, kMiB), 100), "cudaMallocAsync"},
      {At(Make(MemoryOrigin::kManaged, kMiB), 100), "managed"},
      {At(Make(MemoryOrigin::kPinned, kMiB), 100), "pinned"},
      {At(closed), "without descriptors"},
      {heap.data(), "malloc"}};
  const size_t before = it_.sidecar.requests().size();
  for (const auto& [address, what] : cases) {
    // HIP does not tell it from other memory of a device.
    if (driver_->vendor() == "amd" && what == "cudaMallocAsync") continue;
    gantry_buffer* buffer = nullptr;
    gantry_error* error = Register("k.0", address, 100, &buffer);
    ASSERT_NE(error, nullptr) << what;
    EXPECT_STREQ(gantry_error_code(error), "not_exportable");
    EXPECT_NE(std::string(gantry_error_message(error)).find(what), std::string::npos)
        << gantry_error_message(error);
    EXPECT_STREQ(gantry_error_field(error), "specs/0/pieces/0");
    const std::string hint = gantry_error_hint(error);
    EXPECT_TRUE(what == "without descriptors" || (hint.find("arena") != std::string::npos &&
                                                  hint.find("cudaMalloc") != std::string::npos))
        << hint;
    EXPECT_NE(hint, "");
    gantry_error_destroy(error);
  }
  EXPECT_EQ(it_.sidecar.requests().size(), before);
}

TEST_F(GpuRegistration, PrivateMemoryIsAdoptedUnlessAPageIsPinned) {
  char* const data = static_cast<char*>(
      ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(data), MAP_FAILED);
  gantry_arena* arena = nullptr;
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const uint64_t first : {uint64_t{0}, kMiB / 2, kMiB - page}) {
    auto pinned = gpu::OpenWorkloadDevice(0).value()->Pin(data + first, page).value();
    gantry_error* error =
        gantry_arena_adopt_private(it_.client, data, kMiB, GANTRY_OWN_MAPPING, &arena);
    ASSERT_NE(error, nullptr) << "pinned at " << first;
    EXPECT_NE(std::string(gantry_error_message(error)).find("pinned"), std::string::npos);
    EXPECT_NE(std::string(gantry_error_hint(error)).find("unpin it first"), std::string::npos);
    EXPECT_EQ(CodeOf(error), "not_exportable");
    EXPECT_TRUE(pinned->Unpin());
  }
  ASSERT_OK(gantry_arena_adopt_private(it_.client, data, kMiB, GANTRY_OWN_MAPPING, &arena));
  EXPECT_OK(gantry_arena_pin(arena, 0, nullptr));
  gantry_arena_destroy(arena);
  ::munmap(data, kMiB);
}

TEST_F(GpuRegistration, MemoryOfAGpuNeedsNoAdoption) {
  const AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  gantry_arena* arena = it_.arena;
  EXPECT_OK(
      gantry_arena_adopt_private(it_.client, const_cast<void*>(At(range, 5)), 100, 0, &arena));
  EXPECT_EQ(arena, nullptr);
}

TEST_F(GpuRegistration, EveryByteHasToBeCovered) {
  gantry_buffer* buffer = nullptr;
  // The first of all, so that no other allocation can lie right behind it.
  const AddressRange pieces = allocations_->MakeVirtual({kPiece, kPiece}).value();
  EXPECT_EQ(CodeOf(Register("b", At(pieces, 1), 2 * kPiece, &buffer)), "not_exportable");
  const AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  EXPECT_EQ(CodeOf(Register("b", At(range, kMiB - 1), 2, &buffer)), "not_exportable");
  EXPECT_EQ(CodeOf(Register("b", At(range, kMiB - 1), ~uint64_t{0}, &buffer)), "invalid_argument");
  EXPECT_EQ(CodeOf(Register("b", At(range), 0, &buffer)), "invalid_argument");
  EXPECT_TRUE(it_.sidecar.tokens_released().empty());  // none was handed over
  const auto* arena = static_cast<char*>(gantry_arena_data(it_.arena));
  EXPECT_EQ(CodeOf(Register("b", arena + kMiB - 1, 2, &buffer)), "not_exportable");
}

TEST_F(GpuRegistration, WhatLiesBehindAnAllocationIsNotTheCallers) {
  std::map<uint64_t, AddressRange> made;
  for (int i = 0; i < 64; ++i) {
    const AddressRange range = Make(MemoryOrigin::kDevice, kPiece);
    made[NumberOf(range.base)] = range;
    const auto behind = made.find(NumberOf(range.base) + range.size);
    const auto before = made.find(NumberOf(range.base) - range.size);
    if (behind == made.end() && before == made.end()) continue;
    const AddressRange& first = behind != made.end() ? range : before->second;
    gantry_buffer* buffer = nullptr;
    gantry_error* error = Register("b", At(first, 1), kPiece, &buffer);
    EXPECT_NE(std::string(gantry_error_message(error)).find("past the end of its allocation"),
              std::string::npos);
    EXPECT_EQ(CodeOf(error), "not_exportable");
    return;
  }
  FAIL() << "no two allocations lay side by side: the case that matters was not there";
}

TEST_F(GpuRegistration, ResolveSaysWhereDeviceMemoryLiesAndExportsNothing) {
  const AddressRange range = allocations_->MakeVirtual({kPiece, kPiece}).value();
  const size_t received_before = it_.sidecar.fds_received().size();
  gantry_extent extents[2] = {};
  size_t count = 0;
  ASSERT_OK(gantry_client_resolve(it_.client, At(range, kPiece - 5), kPiece, extents, 2, &count));
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(extents[0].arena_data, At(range));
  EXPECT_EQ(extents[0].offset, kPiece - 5);
  EXPECT_EQ(extents[0].bytes, 5U);
  EXPECT_EQ(extents[1].arena_data, At(range, kPiece));
  EXPECT_EQ(extents[1].offset, 0U);
  EXPECT_EQ(extents[1].bytes, kPiece - 5);
  EXPECT_EQ(it_.sidecar.fds_received().size(), received_before);
}

TEST_F(GpuRegistration, TheCallersContextAndCaptureAreLeftAlone) {
  const AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  const AddressRange pieces = allocations_->MakeVirtual({kPiece}).value();
  const auto use = [&] {
    gantry_buffer* buffers[2] = {};
    gantry_transfer* transfer = nullptr;
    EXPECT_OK(Register("a", At(range), 100, &buffers[0]));
    EXPECT_OK(Register("b", At(pieces), 100, &buffers[1]));
    EXPECT_OK(it_.Submit(buffers[0], &transfer));
    gantry_transfer_destroy(transfer);
    for (gantry_buffer* buffer : buffers) gantry_buffer_destroy(buffer);
  };
  const auto before = allocations_->Current();
  use();
  EXPECT_EQ(allocations_->Current(), before);
  ASSERT_TRUE(allocations_->PushCurrent());
  const auto mine = allocations_->Current();
  use();
  EXPECT_EQ(allocations_->Current(), mine);
  ASSERT_TRUE(allocations_->BeginCapture());
  use();
  EXPECT_TRUE(allocations_->EndCapture());
  allocations_->PopCurrent();
}

}  // namespace
}  // namespace gantry::client
