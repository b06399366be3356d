#include "sidecar/memory/mapped_allocation.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/fakes/counting_mapper.h"

namespace gantry::memory {
namespace {

AllocationSource Source() {
  return {wire::MemoryKind::kHost,
          std::make_shared<const UniqueFd>(::memfd_create("test", MFD_CLOEXEC)), 4096, true};
}

TEST(MappedAllocationTest, TheLastReferenceUnmapsOnce) {
  CountingMapper mapper;
  auto first = MappedAllocation::Create(mapper, Source());
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)->size(), 4096u);
  EXPECT_TRUE((*first)->writable());
  auto second = *first;
  first->reset();
  EXPECT_TRUE(mapper.IsLive(second->mapping()));
  second.reset();
  EXPECT_EQ(mapper.live(), 0u);
  EXPECT_EQ(mapper.unmaps(), 1);
}

TEST(MappedAllocationTest, OneFileIsOneMemoryHoweverItWasHandedOver) {
  CountingMapper mapper;
  AllocationSource source = Source();
  AllocationSource again = source;
  again.fd = std::make_shared<const UniqueFd>(*source.fd->Duplicate());
  const auto first = MappedAllocation::Create(mapper, std::move(source));
  const auto second = MappedAllocation::Create(mapper, std::move(again));
  const auto other = MappedAllocation::Create(mapper, Source());
  EXPECT_EQ((*first)->identity(), (*second)->identity());
  EXPECT_NE((*first)->identity(), (*other)->identity());
}

TEST(MappedAllocationTest, WhatCouldNotBeMappedIsNotUnmapped) {
  CountingMapper mapper;
  mapper.FailMap(1);
  const auto failed = MappedAllocation::Create(mapper, Source());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kDeviceError);
  EXPECT_EQ(mapper.unmaps(), 0);
}

TEST(MappedAllocationTest, KeepsItsDescriptorAndLogsWhatCannotBeUnmapped) {
  CountingMapper mapper;
  mapper.FailUnmaps();
  AllocationSource source = Source();
  const std::weak_ptr<const UniqueFd> fd = source.fd;
  {
    const auto mapped = MappedAllocation::Create(mapper, std::move(source));
    EXPECT_FALSE(fd.expired());
    ::testing::internal::CaptureStderr();
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no unmapping for the test"),
            std::string::npos);
  EXPECT_TRUE(fd.expired());
}

}  // namespace
}  // namespace gantry::memory
