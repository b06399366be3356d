// Devices, contexts, and what an address is.
#include "tests/contracts/gpu_driver_contract.h"

#include <cstdio>
#include <set>

#include "tests/fakes/fake_gpu_folder.h"

namespace gantry::testing {
namespace {

TEST_F(GpuDriverContract, DevicesAreNamedByUuidsThatDiffer) {
  // What old releases of AMD's lack hip_contract.cc knows.
  EXPECT_TRUE(IsAmd() || driver_->missing().empty());
  EXPECT_GE(driver_->version(), 12000);
  std::set<std::string> uuids;
  for (const gpu::DeviceInfo& device : driver_->devices()) {
    EXPECT_EQ(device.uuid.size(), IsAmd() ? 20U : 40U) << device.uuid;
    EXPECT_TRUE(device.uuid.starts_with("GPU-"));
    std::printf("%s %s\n", device.uuid.c_str(), device.name.c_str());
    EXPECT_TRUE(uuids.insert(device.uuid).second);
    // As the kernel names it.
    EXPECT_EQ(device.pci_address.size(), 12U) << device.pci_address;
    EXPECT_EQ(device.pci_address.find_first_not_of("0123456789abcdef:."), std::string::npos)
        << device.pci_address;
    EXPECT_GT(device.memory_bytes, 64 * kMiB);
    EXPECT_GE(device.compute_major, 7);
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_TRUE(device.exports_fds);
  }
}

TEST_F(GpuDriverContract, AContextOfNoDeviceIsRefused) {
  for (const int ordinal : {-1, last_device() + 1}) {
    const auto context = driver_->OpenContext(ordinal);
    ASSERT_FALSE(context);
    EXPECT_EQ(context.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(GpuDriverContract, MemoryIsTakenAndComesBack) {
  const auto before = context_->Memory();
  ASSERT_OK(before);
  EXPECT_LE(before->free, before->total);
  {
    const auto taken = context_->Allocate(256 * kMiB);
    ASSERT_OK(taken);
    EXPECT_LE(context_->Memory()->free, before->free - 256 * kMiB);
  }
  EXPECT_GE(context_->Memory()->free + 8 * kMiB, before->free);
}

// What takes most of a context is for kernels that nobody runs here.
TEST_F(GpuDriverContract, ATrimmedContextTakesLess) {
  const auto before = context_->Memory();
  ASSERT_OK(before);
  ASSERT_OK(context_->TrimForCopies());
  ASSERT_OK(context_->TrimForCopies()) << "again";
  const auto after = context_->Memory();
  ASSERT_OK(after);
  EXPECT_GE(after->free + kMiB, before->free);
  EXPECT_TRUE(IsAmd() || after->free >= before->free + 16 * kMiB) << after->free - before->free;
}

TEST_F(GpuDriverContract, TooMuchMemoryIsRefusedAsExhausted) {
  const auto memory = context_->Allocate(uint64_t{1} << 46);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::kResourceExhausted) << memory.error().message;
}

TEST_F(GpuDriverContract, TheCallersContextStaysCurrent) {
  const auto before = allocations_->Current();
  ASSERT_OK(allocations_->PushCurrent());
  const auto mine = allocations_->Current();
  auto other = driver_->OpenContext(last_device());
  ASSERT_OK(other);
  const auto memory = (*other)->Allocate(kMiB);
  ASSERT_OK(memory);
  EXPECT_OK(driver_->Resolve(NumberOf((*memory)->range().base)));
  EXPECT_OK(driver_->ExportIpc((*memory)->range().base));
  EXPECT_OK((*other)->NewStream());
  EXPECT_FALSE((*other)->OpenIpc(gpu::IpcHandle()));
  EXPECT_EQ(allocations_->Current(), mine);
  allocations_->PopCurrent();
  EXPECT_EQ(allocations_->Current(), before);
  EXPECT_OK(driver_->ExportIpc((*memory)->range().base));
  EXPECT_EQ(allocations_->Current(), before);
}

// What an address is.

TEST_F(GpuDriverContract, AContextLivesAsLongAsWhatWasMadeInIt) {
  auto other = driver_->OpenContext(last_device());
  ASSERT_OK(other);
  auto stream = (*other)->NewStream();
  auto event = (*other)->NewEvent();
  auto memory = (*other)->Allocate(kMiB);
  ASSERT_OK(stream);
  ASSERT_OK(event);
  ASSERT_OK(memory);
  other->reset();
  EXPECT_OK((*stream)->Fill((*memory)->range().base, 1, kMiB));
  EXPECT_OK((*stream)->Record(**event));
  stream->reset();
  EXPECT_OK((*event)->Wait());
}

// The workload's graphs are captured in the same process, on the same GPU.
TEST_F(GpuDriverContract, ACaptureOfTheWorkloadIsNotDisturbed) {
  const AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  const AddressRange pieces = MakeVirtual({kPiece});
  auto event = context_->NewEvent();
  ASSERT_OK(event);
  ASSERT_OK(allocations_->BeginCapture());
  Write(range.base, Pattern(0, kKiB, 1));
  EXPECT_EQ(Read(range.base, kKiB), Pattern(0, kKiB, 1));
  Resolve(range.base);
  Resolve(pieces.base);
  EXPECT_OK(driver_->ExportIpc(range.base));
  EXPECT_OK(driver_->ExportPiece(pieces.base));
  EXPECT_OK(context_->Allocate(kMiB));
  EXPECT_OK(stream_->Fill(range.base, 1, kMiB));
  EXPECT_OK(stream_->Record(**event));
  EXPECT_OK((*event)->Wait());
  EXPECT_OK((*event)->IsReached());
  EXPECT_OK(stream_->Synchronize());
  EXPECT_OK(allocations_->EndCapture());
}

TEST_F(GpuDriverContract, AddressesThatTheDriverDoesNotKnowAreUnknown) {
  const std::vector<uint8_t> heap(kMiB);
  int local = 0;
  for (const uint64_t address :
       {uint64_t{0}, uint64_t{4096}, reinterpret_cast<uint64_t>(heap.data()),
        reinterpret_cast<uint64_t>(&local)}) {
    const gpu::PointerInfo info = Resolve(DeviceAddress{address});
    EXPECT_EQ(info.origin, MemoryOrigin::kUnknown);
    EXPECT_EQ(info.buffer_id, 0U);
    EXPECT_FALSE(info.has_ipc_handle);
  }
}

TEST_F(GpuDriverContract, EveryAddressOfAnAllocationResolvesToAllOfIt) {
  const AddressRange range = Make(MemoryOrigin::kDevice, 4 * kMiB + 512);
  const gpu::PointerInfo first = Resolve(range.base);
  EXPECT_EQ(first.origin, MemoryOrigin::kDevice);
  EXPECT_EQ(first.device, 0);
  EXPECT_EQ(first.allocation, range);
  EXPECT_NE(first.buffer_id, 0U);
  EXPECT_TRUE(first.has_ipc_handle);
  for (const uint64_t offset : {uint64_t{1}, 64 * kKiB, range.size / 2, range.size - 1}) {
    const gpu::PointerInfo inside = Resolve(range.base + offset);
    EXPECT_EQ(inside.allocation, range) << offset;
    EXPECT_EQ(inside.buffer_id, first.buffer_id) << offset;
  }
}

TEST_F(GpuDriverContract, MemoryThatIsAllocatedAgainHasAnotherId) {
  std::set<uint64_t> ids;
  std::set<uint64_t> addresses;
  for (int i = 0; i < 8; ++i) {
    const AddressRange range = Make(MemoryOrigin::kDevice, 32 * kMiB);
    EXPECT_TRUE(ids.insert(Resolve(range.base).buffer_id).second);
    addresses.insert(NumberOf(range.base));
    EXPECT_OK(allocations_->Free(range));
    EXPECT_EQ(Resolve(range.base).origin, MemoryOrigin::kUnknown);
  }
  EXPECT_LT(addresses.size(), 8U) << "no address came twice: the case that matters was not there";
}

TEST_F(GpuDriverContract, PiecesOfVirtualMemoryResolveOneByOne) {
  const std::vector<uint64_t> pieces = {kPiece, 3 * kPiece, kPiece};
  const AddressRange range = MakeVirtual(pieces);
  uint64_t at = 0;
  std::set<uint64_t> ids;
  for (const uint64_t size : pieces) {
    for (const uint64_t offset : {uint64_t{0}, size / 2, size - 1}) {
      const gpu::PointerInfo info = Resolve(range.base + at + offset);
      EXPECT_EQ(info.origin, MemoryOrigin::kVirtual);
      EXPECT_EQ(info.allocation, (AddressRange{range.base + at, size})) << at << " + " << offset;
      EXPECT_FALSE(info.has_ipc_handle);
      EXPECT_NE(info.buffer_id, 0U);
      ids.insert(info.buffer_id);
    }
    at += size;
  }
  EXPECT_EQ(ids.size(), pieces.size());
}

TEST_F(GpuDriverContract, APieceThatIsMappedAnewHasAnotherId) {
  const AddressRange range = MakeVirtual({kPiece, kPiece});
  const uint64_t first = Resolve(range.base).buffer_id;
  const uint64_t second = Resolve(range.base + kPiece).buffer_id;
  ASSERT_OK(allocations_->MapAnew(range, 1));
  EXPECT_EQ(Resolve(range.base).buffer_id, first);
  EXPECT_NE(Resolve(range.base + kPiece).buffer_id, second);
}

TEST_F(GpuDriverContract, TheIdAloneIsWhatResolveSays) {
  const AddressRange device = Make(MemoryOrigin::kDevice, kMiB);
  const AddressRange pieces = MakeVirtual({kPiece, kPiece});
  for (const DeviceAddress address :
       {device.base, device.base + 100, pieces.base, pieces.base + kPiece, DeviceAddress{4096}}) {
    const auto id = driver_->BufferIdOf(address);
    ASSERT_OK(id);
    EXPECT_EQ(*id, Resolve(address).buffer_id);
  }
  ASSERT_OK(allocations_->Free(device));
  EXPECT_EQ(driver_->BufferIdOf(device.base).value_or(1), 0U);
}

TEST_F(GpuDriverContract, OtherOriginsAreToldApart) {
  for (const MemoryOrigin origin :
       {MemoryOrigin::kPool, MemoryOrigin::kManaged, MemoryOrigin::kPinned}) {
    const AddressRange range = Make(origin, kMiB);
    const gpu::PointerInfo info = Resolve(range.base + 100);
    EXPECT_NE(info.buffer_id, 0U);
    // HIP does not tell it from other memory of a device, and refuses it a handle.
    if (!IsAmd() || origin != MemoryOrigin::kPool) {
      EXPECT_EQ(info.origin, origin);
      EXPECT_FALSE(info.has_ipc_handle);
    }
    const auto handle = driver_->ExportIpc(range.base);
    ASSERT_FALSE(handle);
    EXPECT_EQ(handle.error().code, ErrorCode::kNotExportable) << handle.error().message;
    EXPECT_FALSE(handle.error().hint.empty());
  }
}

}  // namespace
}  // namespace gantry::testing

int main(int argc, char** argv) {
  if (gantry::testing::GpuExporter::IsExporter(argc, argv))
    return gantry::testing::GpuExporter::Run();
  const gantry::testing::FakeGpuFolder folder;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
