// Memory regions of real devices come and go, by the kernel's own account.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "sidecar/transport/rdma/verbs/memory_region_set.h"
#include "sidecar/transport/rdma/verbs/system_verbs.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {
namespace {

// Of this process; negative: the tool of iproute2 did not say.
int KernelsRegions() {
  const std::string command = "rdma -j resource show mr pid " + std::to_string(::getpid());
  const std::unique_ptr<FILE, int (*)(FILE*)> tool(::popen(command.c_str(), "r"), &::pclose);
  if (tool == nullptr) return -1;
  std::string told;
  std::array<char, 4096> part;
  while (const size_t bytes = std::fread(part.data(), 1, part.size(), tool.get())) {
    told.append(part.data(), bytes);
  }
  if (told.find('[') == std::string::npos) return -1;
  int regions = 0;
  for (size_t at = 0; (at = told.find("\"mrn\"", at)) != std::string::npos; ++at) ++regions;
  return regions;
}

TEST(RealRegions, AThousandRegistrationsAndRemovalsLeaveNothing) {
  const auto verbs = MakeSystemVerbs();
  const auto names = verbs->Devices();
  ASSERT_TRUE(names) << names.error().message;
  ASSERT_FALSE(names->empty()) << "there has to be an RDMA device here";
  const auto device = verbs->Open(names->front(), 1);
  ASSERT_TRUE(device) << device.error().message;
  constexpr uint64_t kChunk = 64 << 10;
  const std::vector<RegionDevice> devices = {{device->get(), kChunk}};
  CountingMapper mapper;
  const gantry::testing::TestArena arena(4 * kChunk);
  const auto allocation = *memory::MappedAllocation::Create(mapper, arena.source());
  ASSERT_EQ(KernelsRegions(), 0);
  for (int i = 0; i < 1000; ++i) {
    const auto offset = static_cast<uint64_t>(i) * 131 % 4096;
    const auto set = MemoryRegionSet::Register(
        devices, {{allocation, offset, 130'000}, {allocation, 0, arena.size()}}, {true, true}, {});
    ASSERT_TRUE(set) << i << ": " << set.error().message;
    if (i % 250 == 0) {
      ASSERT_GT((*set)->chunks(), 5u);
      EXPECT_EQ(KernelsRegions(), static_cast<int>((*set)->chunks()));
    }
  }
  EXPECT_EQ(KernelsRegions(), 0);
  EXPECT_EQ(allocation.use_count(), 1);
}

}  // namespace
}  // namespace gantry::transport
