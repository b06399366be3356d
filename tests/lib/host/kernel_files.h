// A made tree of the files that a kernel shows: proc and sys of a machine of a test's own. Not
// thread-safe.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fakes/test_folder.h"

namespace gantry::host {

class KernelFiles {
 public:
  std::filesystem::path root() const { return folder_.path(); }
  std::filesystem::path At(const std::string& path) const { return root() / path; }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(At(path).parent_path());
    std::ofstream(At(path)) << text;
  }
  // The process is in `group` of the one hierarchy of version 2, of which `mounted` is what
  // /sys/fs/cgroup shows.
  void BeUnified(const std::string& group, const std::string& mounted = "/") const {
    Write("proc/self/cgroup", "0::" + group + "\n");
    Write("proc/self/mountinfo", "24 1 0:22 / /proc rw,nosuid - proc proc rw\n30 24 0:26 " +
                                     mounted +
                                     " /sys/fs/cgroup ro,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  // Version 1 for memory and processors, with version 2 beside it, as on a hybrid machine.
  void BeSeparate(const std::string& group, const std::string& mounted = "/") const {
    Write("proc/self/cgroup", "12:pids:" + group + "\n5:cpu,cpuacct:" + group +
                                  "\n4:memory:" + group + "\n1:name=systemd:/init\n0::/init\n");
    Write("proc/self/mountinfo",
          "31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n32 1 0:28 " + mounted +
              " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n33 1 0:29 " +
              mounted + " /sys/fs/cgroup/memory rw master:4 - cgroup cgroup rw,memory\n");
  }

 private:
  testing::TestFolder folder_;
};

}  // namespace gantry::host
