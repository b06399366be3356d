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

// As with drivers that make another one each time.
TEST_F(GpuAllocationTest, HandlesThatDifferAreOfOneAllocationWhereItsAddressIsSaid) {
  std::vector<wire::AllocationSpec> specs = {OnGpu('h'), OnGpu('i')};
  for (wire::AllocationSpec& spec : specs) spec.base = 0x7000;
  const auto buffers = registry_.Register(RequestFor(specs));
  ASSERT_TRUE(buffers) << buffers.error().message;
  EXPECT_EQ(mapper_.maps(), 1);
  const auto identity = [](const std::shared_ptr<Buffer>& buffer) {
    return buffer->Acquire()->allocations()[0]->identity();
  };
  EXPECT_EQ(identity((*buffers)[0]), identity((*buffers)[1]));
}

TEST_F(GpuAllocationTest, OneIdOfTwoHandlesOrTwoAddressesIsAConflict) {
  struct {
    uint64_t bases[2];
    char handles[2];
    const char* field;
  } const cases[] = {{{0, 0}, {'h', 'i'}, "/ipc_handle"},
                     {{0x7000, 0}, {'h', 'i'}, "/ipc_handle"},
                     {{0x7000, 0x8000}, {'h', 'h'}, "/buffer_id"}};
  for (const auto& c : cases) {
    std::vector<wire::AllocationSpec> specs = {OnGpu(c.handles[0]), OnGpu(c.handles[1])};
    for (size_t i = 0; i < 2; ++i) specs[i].base = c.bases[i];
    const auto registered = registry_.Register(RequestFor(specs));
    ASSERT_TRUE(FailsWith(registered, ErrorCode::kConflict)) << c.field;
    EXPECT_EQ(registered.error().field, std::string("/allocations/1") + c.field);
    EXPECT_EQ(mapper_.live(), 0u);
  }
}

// What one process says of its memory another may say, too: it is told apart by its lease.
TEST_F(GpuAllocationTest, AnIdentityIsOfItsOwnerWhoeverSaysTheSame) {
  const WorkloadInfo other = Enlist("engine-1");
  const WorkloadInfo second = Enlist("engine-2");
  std::vector<memory::MemoryIdentity> identities;
  for (const auto& [workload, process] :
       {std::pair{owner_, "process 7"}, {other, "process 8"}, {second, "process 7"}}) {
    ASSERT_TRUE(workloads_.Attach(workload.lease_token, 0, ::getuid(), process));
    wire::RegistrationRequest request = RequestFor({OnGpu()});
    request.workload = workload.name;
    const auto buffers = registry_.Register(request);
    ASSERT_TRUE(buffers) << buffers.error().message;
    identities.push_back(buffers->front()->Acquire()->allocations()[0]->identity());
  }
  EXPECT_EQ(mapper_.maps(), 3) << "no mapping is shared between workloads";
  EXPECT_NE(identities[0], identities[1]);
  EXPECT_EQ(identities[0], identities[2]) << "two workloads of one process";
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
