#include "lib/host/control_group.h"

#include <gtest/gtest.h>

#include "tests/lib/host/kernel_files.h"

namespace gantry::host {
namespace {

using Folders = std::vector<std::filesystem::path>;

TEST(ControlGroupTest, HasEachLevelOfVersion2) {
  const KernelFiles files;
  files.BeUnified("/kubepods/pod7/main");
  const ControlGroup group = ControlGroupOf("memory", files.root());
  EXPECT_TRUE(group.unified);
  EXPECT_EQ(group.folders,
            (Folders{files.At("sys/fs/cgroup/kubepods/pod7/main"),
                     files.At("sys/fs/cgroup/kubepods/pod7"), files.At("sys/fs/cgroup/kubepods"),
                     files.At("sys/fs/cgroup")}));
}

TEST(ControlGroupTest, OfANamespaceIsItsRoot) {
  const KernelFiles files;
  files.BeUnified("/");
  EXPECT_EQ(ControlGroupOf("memory", files.root()).folders, Folders{files.At("sys/fs/cgroup")});
  // Its namespace was entered later than the mount was made.
  files.BeUnified("/../other");
  EXPECT_EQ(ControlGroupOf("memory", files.root()).folders, Folders{files.At("sys/fs/cgroup")});
}

TEST(ControlGroupTest, IsOfTheControllersHierarchyInVersion1) {
  const KernelFiles files;
  files.BeSeparate("/a/b");
  const ControlGroup memory = ControlGroupOf("memory", files.root());
  EXPECT_FALSE(memory.unified);
  EXPECT_EQ(memory.folders,
            (Folders{files.At("sys/fs/cgroup/memory/a/b"), files.At("sys/fs/cgroup/memory/a"),
                     files.At("sys/fs/cgroup/memory")}));
  EXPECT_EQ(ControlGroupOf("cpu", files.root()).folders.front(),
            files.At("sys/fs/cgroup/cpu,cpuacct/a/b"));
}

TEST(ControlGroupTest, OfAContainerIsBelowTheMountedGroup) {
  const KernelFiles files;
  files.BeSeparate("/docker/17", "/docker/17");
  EXPECT_EQ(ControlGroupOf("memory", files.root()).folders,
            Folders{files.At("sys/fs/cgroup/memory")});
  files.BeSeparate("/docker/17/inner", "/docker/17");
  EXPECT_EQ(ControlGroupOf("memory", files.root()).folders,
            (Folders{files.At("sys/fs/cgroup/memory/inner"), files.At("sys/fs/cgroup/memory")}));
  // A name that only begins alike is another group.
  files.BeSeparate("/docker/170", "/docker/17");
  EXPECT_EQ(ControlGroupOf("memory", files.root()).folders,
            Folders{files.At("sys/fs/cgroup/memory")});
}

TEST(ControlGroupTest, IsNoneWhereNothingIsMounted) {
  const KernelFiles files;
  EXPECT_TRUE(ControlGroupOf("memory", files.root()).folders.empty());
  files.Write("proc/self/cgroup", "0::/a\nno line of a group\n");
  EXPECT_TRUE(ControlGroupOf("memory", files.root()).folders.empty());
}

}  // namespace
}  // namespace gantry::host
