// What differs between ROCm 5, 6 and 7, as data taken from the headers of 5.2.3, 6.1.4 and 7.1
// (hip_releases_test.cc has what does not); and whether the declarations were compared with
// headers when this was built.
#include "lib/gpu/hip/hip_abi.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <initializer_list>
#include <utility>

#include "lib/gpu/hip/hip_attach.h"
#include "lib/gpu/hip/hip_pointers.h"

namespace gantry::gpu {
namespace {

struct Release {
  int version;  // as hipRuntimeGetVersion answers
  hip::MemoryTypes types;
  unsigned lazy_peer_access;
  bool imports_by_value;
  bool type_is_first;  // in hipMemAllocationProp
};
constexpr Release kReleases[] = {
    {50221153, {0, 1, -1}, 0, false, false},
    {50731921, {0, 1, -1}, 0, false, true},
    {60140091, {1, 2, 3}, 1, false, true},
    {70125424, {1, 2, 3}, 1, true, true},
};

TEST(HipAbi, WhatChangedIsChosenByTheVersion) {
  for (const Release& release : kReleases) {
    const hip::MemoryTypes types = hip::MemoryTypesOf(release.version);
    EXPECT_EQ(types.host, release.types.host) << release.version;
    EXPECT_EQ(types.device, release.types.device) << release.version;
    EXPECT_EQ(types.managed, release.types.managed) << release.version;
    EXPECT_EQ(hip::LazyEnablePeerAccessOf(release.version), release.lazy_peer_access);
    EXPECT_EQ(release.version >= hip::kVersionImportByValue, release.imports_by_value);
    EXPECT_EQ(release.version >= hip::kVersionTypeFirst, release.type_is_first);
  }
}

TEST(HipAbi, PropertiesOfAnAllocationHaveTheLayoutOfTheirVersion) {
  EXPECT_EQ(sizeof(hip::MemAllocationPropOld), 32u);
  EXPECT_EQ(offsetof(hip::MemAllocationPropOld, location), 4u);
  EXPECT_EQ(offsetof(hip::MemAllocationPropOld, requested_handle_type), 12u);
  EXPECT_EQ(offsetof(hip::MemAllocationPropOld, type), 16u);
  EXPECT_EQ(offsetof(hip::MemAllocationPropOld, win32_metadata), 24u);
  EXPECT_EQ(sizeof(hip::MemAllocationProp), 32u);
  EXPECT_EQ(offsetof(hip::MemAllocationProp, type), 0u);
  EXPECT_EQ(offsetof(hip::MemAllocationProp, requested_handle_types), 4u);
  EXPECT_EQ(offsetof(hip::MemAllocationProp, location), 8u);
  EXPECT_EQ(offsetof(hip::MemAllocationProp, win32_metadata), 16u);
  EXPECT_EQ(offsetof(hip::MemAllocationProp, flags), 24u);
  EXPECT_EQ(sizeof(hip::ExternalMemoryHandleDesc), 104u);
  EXPECT_EQ(sizeof(hip::ExternalMemoryBufferDesc), 88u);
}

TEST(HipAbi, WasComparedWithTheVendorsHeaders) {
#if !__has_include(<hip/hip_runtime_api.h>) || !__has_include(<hsa/hsa_ext_amd.h>)
  FAIL()
      << "there are none: tools/setup test takes Debian's (tools/hip-headers), before cmake is run";
#endif
}

hip::Uuid UuidOf(const char (&text)[17]) {
  hip::Uuid uuid = {};
  for (int i = 0; i < 16; ++i) uuid.bytes[i] = text[i];
  return uuid;
}

TEST(HipDevices, AreNamedAsTheVendorsToolsDo) {
  const hip::Uuid uuid = UuidOf("9F3A00c1d2e3f405");
  EXPECT_EQ(hip::IdentityOf(uuid, "0000:1b:00.0"), "GPU-9f3a00c1d2e3f405");
  EXPECT_EQ(hip::IdentityOf(uuid, "0000:1b:00.3"), "GPU-9f3a00c1d2e3f405.3")
      << "partitions of one GPU have one id";
  EXPECT_EQ(hip::IdentityOf(hip::Uuid{}, "0000:1b:00.0"), "GPU-0000:1b:00.0");
  EXPECT_EQ(hip::IdentityOf(UuidOf("0000000000000000"), "0000:1b:00.0"), "GPU-0000:1b:00.0");
  EXPECT_EQ(hip::IdentityOf(UuidOf("\x01\xff"
                                   "23456789abcdef"),
                            "0000:1b:00.0"),
            "GPU-01ff3233343536373839616263646566");
}

TEST(HipAttach, ADmaBufThatEndsBeforeTheRangeIsRefused) {
  const UniqueFd fd(::memfd_create("dma-buf", 0));
  ASSERT_EQ(::ftruncate(fd.get(), 8192), 0);
  EXPECT_TRUE(CheckDmaBufHolds(fd.get(), 4096, 4096));
  for (const auto& [offset, size] : std::initializer_list<std::pair<uint64_t, uint64_t>>{
           {0, 8193}, {4096, 4097}, {8192, 1}, {0, 0}, {~uint64_t{0}, 2}}) {
    const Status held = CheckDmaBufHolds(fd.get(), offset, size);
    ASSERT_FALSE(held) << offset << " " << size;
    EXPECT_EQ(held.error().code, ErrorCode::kFdTooShort);
  }
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const UniqueFd reads(pipe[0]);
  const UniqueFd writes(pipe[1]);
  EXPECT_EQ(CheckDmaBufHolds(reads.get(), 0, 1).error().code, ErrorCode::kNotExportable);
}

}  // namespace
}  // namespace gantry::gpu
