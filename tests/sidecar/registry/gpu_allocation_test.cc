// GPU memory as the registry sees it: what is told of it, and which of it is one allocation.
#include <gtest/gtest.h>

#include <functional>

#include "sidecar/memory/gpu_handle_file.h"
#include "tests/fakes/gpu_allocation_spec.h"
#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

class GpuAllocationTest : public RegistryFixture {
 protected:
  static wire::AllocationSpec OnGpu(char handle = 'h', uint64_t buffer_id = 7) {
    return gantry::testing::GpuAllocationSpec(kMiB, buffer_id, handle);
  }
  wire::RegistrationRequest RequestFor(std::vector<wire::AllocationSpec> allocations) {
    wire::RegistrationRequest request;
    request.workload = owner_.name;
    request.allocations = std::move(allocations);
    for (uint32_t i = 0; i < request.allocations.size(); ++i) {
      request.buffers.push_back(View("b" + std::to_string(i), {{i, 512, 64}}));
    }
    return request;
  }
};

TEST_F(GpuAllocationTest, EachFactIsNeeded) {
  struct Case {
    std::function<void(wire::AllocationSpec*)> change;
    ErrorCode code;
    const char* field;
  };
  const Case cases[] = {
      {[](auto* spec) { spec->device_uuid.clear(); }, ErrorCode::kInvalidArgument, "/device_uuid"},
      {[](auto* spec) { spec->device_uuid = "GPU 1"; }, ErrorCode::kInvalidArgument,
       "/device_uuid"},
      {[](auto* spec) { spec->buffer_id = 0; }, ErrorCode::kInvalidArgument, "/buffer_id"},
      {[](auto* spec) { spec->pid = 0; }, ErrorCode::kInvalidArgument, "/pid"},
      {[](auto* spec) { spec->ipc_handle.clear(); }, ErrorCode::kNotExportable, "/ipc_handle"},
      {[](auto* spec) { spec->fd_token = "t"; }, ErrorCode::kNotExportable, "/ipc_handle"},
      {[](auto* spec) { spec->fd_offset = 0; }, ErrorCode::kInvalidArgument, "/fd_token"},
      {[](auto* spec) {
         spec->ipc_handle.clear();
         spec->fd_token = "t";
         spec->fd_offset = ~uint64_t{0};
       },
       ErrorCode::kOutOfRange, "/fd_offset"},
      {[](auto* spec) { spec->size = 0; }, ErrorCode::kInvalidArgument, "/size"},
      {[](auto* spec) { spec->kind = wire::MemoryKind::kHost; }, ErrorCode::kNotExportable,
       "/fd_token"},
  };
  for (const Case& one : cases) {
    wire::AllocationSpec spec = OnGpu();
    one.change(&spec);
    const auto registered = registry_.Register(RequestFor({spec}));
    ASSERT_FALSE(registered) << one.field;
    EXPECT_EQ(registered.error().code, one.code) << registered.error().message;
    EXPECT_EQ(registered.error().field, std::string("/allocations/0") + one.field);
  }
  EXPECT_EQ(mapper_.maps(), 0);
}

TEST_F(GpuAllocationTest, ViewsOfOneAllocationShareItsMapping) {
  const auto buffers = registry_.Register(RequestFor({OnGpu(), OnGpu(), OnGpu()}));
  ASSERT_TRUE(buffers) << buffers.error().message;
  EXPECT_EQ(mapper_.maps(), 1);
  EXPECT_TRUE((*buffers)[0]->Acquire()->allocations()[0]->writable());
  for (const auto& buffer : *buffers) {
    EXPECT_EQ(mapper_.live(), 1u) << "the others are still there";
    EXPECT_TRUE(registry_.Remove(buffer->description().id, Later()));
  }
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(GpuAllocationTest, AnAddressThatIsAllocatedAgainIsAnotherAllocation) {
  ASSERT_TRUE(registry_.Register(RequestFor({OnGpu('h', 7), OnGpu('h', 8), OnGpu('i', 9)})));
  EXPECT_EQ(mapper_.maps(), 3);
}

TEST_F(GpuAllocationTest, OneAllocationHasOneSize) {
  std::vector<wire::AllocationSpec> specs = {OnGpu(), OnGpu()};
  specs[1].size = kMiB / 2;
  const auto registered = registry_.Register(RequestFor(specs));
  ASSERT_FALSE(registered);
  EXPECT_EQ(registered.error().code, ErrorCode::kConflict);
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(GpuAllocationTest, TheHandleIsAFileLikeEveryOtherAllocations) {
  const auto buffers = registry_.Register(RequestFor({OnGpu('x')}));
  ASSERT_TRUE(buffers);
  const auto use = buffers->front()->Acquire();
  ASSERT_TRUE(use);
  const auto& allocation = *use->allocations()[0];
  EXPECT_EQ(allocation.kind(), wire::MemoryKind::kGpu);
  EXPECT_EQ(allocation.gpu().form, wire::GpuExport::kHandle);
  const auto handle = memory::ReadHandleFile(allocation.fd()->get());
  ASSERT_TRUE(handle);
  EXPECT_EQ(handle->bytes[63], std::byte{'x'});
  const UniqueFd other = MakeMemfd(kMiB);
  EXPECT_EQ(memory::ReadHandleFile(other.get()).error().code, ErrorCode::kNotExportable);
}

}  // namespace
}  // namespace gantry::registry
