// Memory that goes from one process to another.
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "lib/base/byte_range.h"
#include "tests/contracts/gpu_driver_contract.h"

namespace gantry::testing {
namespace {

TEST_F(GpuDriverContract, AHandleNamesTheAllocationAndNotTheAddress) {
  const AddressRange range = Make(MemoryOrigin::kDevice, 8 * kMiB);
  const auto first = driver_->ExportIpc(range.base);
  const auto inside = driver_->ExportIpc(range.base + 5 * kMiB);
  ASSERT_OK(first);
  ASSERT_OK(inside);
  EXPECT_TRUE(*first == *inside);
}

TEST_F(GpuDriverContract, AnotherProcesssMemoryIsMappedWhole) {
  GpuExporter exporter = StartExporter();
  for (const int device : std::set<int>{0, last_device()}) {
    const auto exported = exporter.MakeDevice(device, 65 * kMiB + 4096, 7);
    ASSERT_OK(exported);
    const auto opened = context_->OpenIpc(exported->handle);
    ASSERT_OK(opened);
    const AddressRange range = (*opened)->range();
    EXPECT_EQ(range.size, exported->size);
    for (const uint64_t offset : {uint64_t{0}, 64 * kMiB - 3, exported->size - kKiB}) {
      EXPECT_EQ(Read(range.base + offset, kKiB), Pattern(offset, kKiB, 7)) << offset;
    }
    Write(range.base + 64 * kMiB, Pattern(64 * kMiB, kMiB, 8));
    EXPECT_OK(exporter.Check(64 * kMiB, kMiB, 8));
    EXPECT_OK(exporter.Check(0, 64 * kMiB, 7));
    EXPECT_OK(exporter.Check(65 * kMiB, 4096, 7));
  }
}

TEST_F(GpuDriverContract, MemoryThatIsOpenedTwiceStaysUntilBothAreGone) {
  GpuExporter exporter = StartExporter();
  const auto exported = exporter.MakeDevice(0, 4 * kMiB, 3);
  ASSERT_OK(exported);
  auto first = context_->OpenIpc(exported->handle);
  auto second = context_->OpenIpc(exported->handle);
  ASSERT_OK(first);
  ASSERT_OK(second);
  first->reset();
  const AddressRange range = (*second)->range();
  EXPECT_EQ(Read(range.base + kMiB, kKiB), Pattern(kMiB, kKiB, 3));
  second->reset();
  EXPECT_EQ(Resolve(range.base).origin, MemoryOrigin::kUnknown) << "it is still mapped";
}

TEST_F(GpuDriverContract, WhatCameFromElsewhereIsNotHandedOn) {
  GpuExporter exporter = StartExporter();
  const auto exported = exporter.MakeDevice(0, 4 * kMiB, 3);
  ASSERT_OK(exported);
  const auto opened = context_->OpenIpc(exported->handle);
  ASSERT_OK(opened);
  const gpu::PointerInfo info = Resolve((*opened)->range().base + kMiB);
  EXPECT_EQ(info.allocation, (*opened)->range());
  EXPECT_FALSE(info.has_ipc_handle);
  const auto handle = driver_->ExportIpc((*opened)->range().base);
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ErrorCode::kNotExportable) << handle.error().message;
}

TEST_F(GpuDriverContract, AHandleOfTheSamePidOrOfNothingIsRefused) {
  const AddressRange range = Make(MemoryOrigin::kDevice, kMiB);
  const auto handle = driver_->ExportIpc(range.base);
  ASSERT_OK(handle);
  const auto own = context_->OpenIpc(*handle);
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().code, ErrorCode::kDeviceError);
  EXPECT_NE(own.error().hint.find(IsAmd() ? "process" : "PID"), std::string::npos)
      << own.error().message << own.error().hint;
  const auto nothing = context_->OpenIpc(gpu::IpcHandle());
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::kDeviceError);
  EXPECT_FALSE(nothing.error().hint.empty());
}

TEST_F(GpuDriverContract, TheDeadsMemoryLivesWhereItIsMapped) {
  GpuExporter exporter = StartExporter();
  const auto exported = exporter.MakeDevice(0, 4 * kMiB, 5);
  ASSERT_OK(exported);
  const auto opened = context_->OpenIpc(exported->handle);
  ASSERT_OK(opened);
  exporter.Kill();
  EXPECT_EQ(Read((*opened)->range().base, kMiB), Pattern(0, kMiB, 5));
}

// Of memory that somebody has mapped nothing comes back until he lets go, whoever has ended.
TEST_F(GpuDriverContract, MemoryIsFreeAgainWhenTheLastHasLetGo) {
  constexpr uint64_t kBytes = 256 * kMiB;
  const uint64_t before = context_->Memory()->free;
  GpuExporter exporter = StartExporter();
  const auto exported = exporter.MakeDevice(0, kBytes, 5);
  ASSERT_OK(exported);
  auto opened = context_->OpenIpc(exported->handle);
  ASSERT_OK(opened);
  exporter.Kill();
  ::usleep(500'000);  // for the driver to notice
  EXPECT_LT(context_->Memory()->free, before - kBytes / 2) << "mapped, and yet free";
  opened->reset();
  EXPECT_TRUE(Eventually([&] { return context_->Memory()->free > before - kBytes / 2; }));
}

TEST_F(GpuDriverContract, PiecesAreFreeAgainWhenTheLastHasLetGo) {
  constexpr uint64_t kBytes = 64 * kPiece;
  const uint64_t before = context_->Memory()->free;
  GpuExporter exporter = StartExporter();
  auto exported = exporter.MakeVirtual(0, {kBytes, kBytes}, 5);
  ASSERT_OK(exported);
  auto mapped = context_->MapPieces(std::vector<gpu::PieceFd>{{exported->fds[0].get(), kBytes},
                                                              {exported->fds[1].get(), kBytes}});
  ASSERT_OK(mapped);
  const AddressRange range = (*mapped)->range();
  exported->fds.clear();
  exporter.Kill();
  ::usleep(500'000);
  EXPECT_LT(context_->Memory()->free, before - kBytes) << "mapped, and yet free";
  mapped->reset();
  EXPECT_EQ(Resolve(range.base).origin, MemoryOrigin::kUnknown);
  EXPECT_TRUE(Eventually([&] { return context_->Memory()->free > before - kBytes / 2; }));
}

// Several of them lie in one stretch of what the driver maps.
TEST_F(GpuDriverContract, SmallAllocationsAreOpenedWhereTheyBegin) {
  GpuExporter exporter = StartExporter();
  const auto exported = exporter.MakeDevice(0, 64 * kKiB, 6, /*neighbours=*/3);
  ASSERT_OK(exported);
  const auto opened = context_->OpenIpc(exported->handle);
  ASSERT_OK(opened);
  EXPECT_EQ((*opened)->range().size, exported->size);
  EXPECT_EQ(Read((*opened)->range().base, 64 * kKiB), Pattern(0, 64 * kKiB, 6));
}

TEST_F(GpuDriverContract, TheDeadsMemoryIsNotOpened) {
  GpuExporter exporter = StartExporter();
  const auto exported = exporter.MakeDevice(0, 4 * kMiB, 5);
  ASSERT_OK(exported);
  exporter.Kill();
  const auto opened = context_->OpenIpc(exported->handle);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kDeviceError);
}

TEST_F(GpuDriverContract, PiecesAreMappedSideBySide) {
  GpuExporter exporter = StartExporter();
  const std::vector<uint64_t> sizes = {kPiece, 10 * kPiece, 2 * kPiece};
  for (const int device : std::set<int>{0, last_device()}) {
    auto exported = exporter.MakeVirtual(device, sizes, 11);
    ASSERT_OK(exported);
    ASSERT_EQ(exported->fds.size(), sizes.size());
    std::vector<gpu::PieceFd> pieces;
    for (size_t i = 0; i < sizes.size(); ++i) pieces.push_back({exported->fds[i].get(), sizes[i]});
    const auto mapped = context_->MapPieces(pieces);
    ASSERT_OK(mapped);
    exported->fds.clear();  // the mapping needs them no more
    const AddressRange range = (*mapped)->range();
    EXPECT_EQ(range.size, exported->size);
    EXPECT_EQ(Read(range.base, range.size), Pattern(0, range.size, 11));
    Write(range.base + (kPiece - 100), Pattern(kPiece - 100, 200, 12));  // over the seam
    EXPECT_OK(exporter.Check(kPiece - 100, 200, 12));
    EXPECT_OK(exporter.Check(0, kPiece - 100, 11));
    EXPECT_OK(exporter.Check(kPiece + 100, kPiece, 11));
  }
}

TEST_F(GpuDriverContract, PiecesThatAreNoneAreRefusedAndNothingStays) {
  GpuExporter exporter = StartExporter();
  const auto exported = exporter.MakeVirtual(0, {kPiece, kPiece}, 11);
  ASSERT_OK(exported);
  const UniqueFd file(::memfd_create("no GPU memory", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kPiece), 0);
  const uint64_t free = context_->Memory()->free;
  const int good = exported->fds.front().get();
  for (const std::vector<gpu::PieceFd>& pieces :
       std::vector<std::vector<gpu::PieceFd>>{{},
                                              {{good, 0}},
                                              {{good, kPiece}, {file.get(), kPiece}},
                                              {{good, kPiece}, {-1, kPiece}},
                                              {{good, 2 * kPiece}},
                                              {{good, ~uint64_t{0}}, {good, kPiece}}}) {
    const auto mapped = context_->MapPieces(pieces);
    EXPECT_FALSE(mapped) << "pieces: " << pieces.size();
  }
  EXPECT_GE(context_->Memory()->free + kMiB, free);
}

TEST_F(GpuDriverContract, WhatADeviceReachesIsKnownWithoutItsContext) {
  EXPECT_TRUE(driver_->ReachesPeer(0, 0));
  EXPECT_FALSE(driver_->ReachesPeer(0, last_device() + 1));
  EXPECT_FALSE(driver_->ReachesPeer(-1, 0));
  const auto other = *driver_->OpenContext(last_device());
  const Status enabled = context_->EnablePeerAccess(*other);
  EXPECT_EQ(driver_->ReachesPeer(0, last_device()), enabled.has_value()) << ErrorOf(enabled);
}

TEST_F(GpuDriverContract, NewPiecesLieSideBySideAndAreExportedOneByOne) {
  const uint64_t free = context_->Memory()->free;
  for (const uint64_t wrong : {uint64_t{0}, kPiece - 1, 4 * kPiece}) {
    EXPECT_FALSE(context_->AllocatePieces(6 * kPiece, wrong)) << wrong;
  }
  EXPECT_FALSE(context_->AllocatePieces(0, kPiece));
  auto made = context_->AllocatePieces(6 * kPiece, 2 * kPiece);
  ASSERT_OK(made);
  const AddressRange range = (*made)->range();
  EXPECT_EQ(range.size, 6 * kPiece);
  Write(range.base, Pattern(0, range.size, 4));
  EXPECT_EQ(Read(range.base, range.size), Pattern(0, range.size, 4));
  for (uint64_t at = 0; at < range.size; at += 2 * kPiece) {
    const gpu::PointerInfo info = Resolve(range.base + (at + 5));
    EXPECT_EQ(info.origin, MemoryOrigin::kVirtual);
    EXPECT_EQ(info.allocation, (AddressRange{range.base + at, 2 * kPiece}));
    const auto fd = driver_->ExportPiece(range.base + at);
    ASSERT_OK(fd);
    const gpu::PieceFd piece = {fd->get(), 2 * kPiece};
    const auto mapped = context_->MapPieces({&piece, 1});
    ASSERT_OK(mapped);
    EXPECT_EQ(Read((*mapped)->range().base, kMiB), Pattern(at, kMiB, 4));
  }
  // The other GPU's copies reach it.
  const auto other = *driver_->OpenContext(last_device());
  std::vector<uint8_t> read(kMiB);
  ASSERT_OK(other->CopyToHost(read.data(), range.base + (kPiece - 7), read.size()));
  EXPECT_EQ(read, Pattern(kPiece - 7, kMiB, 4));
  made->reset();
  EXPECT_TRUE(Eventually([&] { return context_->Memory()->free + 65 * kMiB > free; }));
}

TEST_F(GpuDriverContract, MemoryOfAnotherDeviceIsMadeWithoutItsContext) {
  if (last_device() == 0 || !driver_->ReachesPeer(0, last_device())) {
    GTEST_SKIP() << "no two GPUs that reach each other's memory";
  }
  constexpr uint64_t kSize = 32 * kPiece;
  auto made = context_->AllocateOn(last_device(), kSize);
  if (driver_->vendor() == "amd") {
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kPathUnavailable) << made.error().message;
    return;
  }
  ASSERT_OK(made);
  const AddressRange there = (*made)->range();
  EXPECT_EQ(there.size, kSize);
  const AddressRange here = Make(MemoryOrigin::kDevice, kMiB);
  Write(here.base, Pattern(0, kMiB, 4));
  ASSERT_OK(stream_->Copy(there.base + (kSize - kMiB), here.base, kMiB));
  ASSERT_OK(stream_->Fill(here.base, 0, kMiB));
  ASSERT_OK(stream_->Copy(here.base, there.base + (kSize - kMiB), kMiB));
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(Read(here.base, kMiB), Pattern(0, kMiB, 4));
  const auto other = *driver_->OpenContext(last_device());
  const uint64_t free = other->Memory()->free;
  made->reset();
  EXPECT_TRUE(Eventually([&] { return other->Memory()->free >= free + kSize; }));
  EXPECT_FALSE(context_->AllocateOn(last_device() + 1, kPiece));
  EXPECT_FALSE(context_->AllocateOn(last_device(), kPiece - 1));
}

TEST_F(GpuDriverContract, PiecesWithoutDescriptorsAndOtherMemoryHaveNone) {
  const AddressRange pieces = MakeVirtual({kPiece}, false);
  const auto fd = driver_->ExportPiece(pieces.base);
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error().code, ErrorCode::kNotExportable) << fd.error().message;
  const auto other = driver_->ExportPiece(Make(MemoryOrigin::kDevice, kMiB).base);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kNotExportable) << other.error().message;
}

TEST_F(GpuDriverContract, DeviceMemoryIsExportedAsDmaBuf) {
  if (!driver_->devices().front().exports_dma_buf) GTEST_SKIP() << "this GPU exports no dma-buf";
  const AddressRange range = Make(MemoryOrigin::kDevice, 4 * kMiB);
  const auto fd = driver_->ExportDmaBuf({range.base + kMiB, kMiB});
  ASSERT_OK(fd);
  EXPECT_TRUE(fd->fd.valid());
  for (const AddressRange& wrong :
       {AddressRange{range.base + 3 * kMiB, 2 * kMiB}, AddressRange{range.base + 100, kMiB},
        AddressRange{DeviceAddress{4096}, 4096}}) {
    const auto refused = driver_->ExportDmaBuf(wrong);
    ASSERT_FALSE(refused) << NumberOf(wrong.base);
    EXPECT_EQ(refused.error().code, ErrorCode::kNotExportable) << refused.error().message;
  }
  const auto whole = driver_->ExportDmaBuf(range);
  ASSERT_OK(whole);
  EXPECT_EQ(::lseek(whole->fd.get(), 0, SEEK_END), static_cast<off_t>(whole->size));
  EXPECT_TRUE(Fits(whole->offset, 4 * kMiB, whole->size));
  // The whole pages around what has none.
  const AddressRange odd = Make(MemoryOrigin::kDevice, 5000);
  const uint64_t lead = NumberOf(odd.base) % 4096;
  const AddressRange around{DeviceAddress{NumberOf(odd.base) - lead},
                            lead + 5000 > 8192 ? 12288U : 8192U};
  EXPECT_OK(driver_->ExportDmaBuf(around));
  const auto of_pool = driver_->ExportDmaBuf({Make(MemoryOrigin::kPool, 2 * kMiB).base, kMiB});
  EXPECT_OK(of_pool);
  const auto of_pieces = driver_->ExportDmaBuf({MakeVirtual({kPiece}).base, kPiece});
  EXPECT_OK(of_pieces);
}

}  // namespace
}  // namespace gantry::testing
