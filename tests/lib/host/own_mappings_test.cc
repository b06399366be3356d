#include "lib/host/own_mappings.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace gantry::host {
namespace {

TEST(OwnMappings, AreReadFromTheKernelsText) {
  std::istringstream smaps(
      "1000-3000 rw-p 00000000 00:00 0 \n"
      "Rss:                   8 kB\n"
      "VmFlags: rd wr mr mw me ac lo \n"
      "3000-4000 rw-s 00001000 00:01 77                         /memfd:a b (deleted)\n"
      "VmFlags: rd wr sh \n"
      "9000-a000 r--p 00000000 00:00 0                          [vvar]\n"
      "VmFlags: rd io \n");
  const std::vector<OwnMapping> found = ReadMappings(smaps, 0x2000, 0x9000);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].begin, 0x1000U);
  EXPECT_TRUE(found[0].has("lo"));
  EXPECT_FALSE(found[0].has("ht"));
  EXPECT_FALSE(found[0].is_shared());
  EXPECT_TRUE(found[1].is_shared());
  EXPECT_EQ(found[1].offset, 0x1000U);
  EXPECT_EQ(found[1].inode, 77U);
  EXPECT_EQ(found[1].name, "/memfd:a b (deleted)");
}

}  // namespace
}  // namespace gantry::host
