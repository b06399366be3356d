// What the kernel, the limits and the memory of this machine allow.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

#include "gantryctl/doctor.h"
#include "gantryctl/size_text.h"
#include "lib/base/unique_fd.h"
#include "lib/host/control_group.h"
#include "lib/host/memory_room.h"

namespace gantry::gantryctl {
namespace {

constexpr int kKernelMajorMin = 5, kKernelMinorMin = 10;
constexpr uint64_t kFdsWanted = 65536;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A line "Key:   123 kB" of /proc/meminfo; bytes, or the bare number.
std::optional<uint64_t> MemoryInfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) != 0) continue;
    std::istringstream words(line.substr(key.size() + 1));
    uint64_t value = 0;
    std::string unit;
    words >> value >> unit;
    return unit == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

Finding ExamineKernel() {
  utsname name{};
  uname(&name);
  int major = 0, minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  const bool fine =
      major > kKernelMajorMin || (major == kKernelMajorMin && minor >= kKernelMinorMin);
  return {fine ? Level::kOk : Level::kWarn, "kernel", name.release,
          fine ? "" : "Gantry is tested on Linux 5.10 and later"};
}

Finding ExamineSealing() {
  const UniqueFd fd(memfd_create("gantry-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return {Level::kFail, "memfd", std::string("memfd_create: ") + std::strerror(errno),
            "allow memfd_create in the seccomp profile"};
  }
  const bool sealed = ftruncate(fd.get(), 8192) == 0 &&
                      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
                      ftruncate(fd.get(), 4096) != 0;
  if (sealed) return {Level::kOk, "memfd", "can be made and sealed against shrinking", ""};
  return {Level::kFail, "memfd", "cannot be sealed against shrinking",
          "host memory cannot be shared safely on this kernel"};
}

Finding ExaminePidfd() {
  const UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (fd.valid()) return {Level::kOk, "pidfd", "the death of a workload is seen at once", ""};
  return {Level::kFail, "pidfd", std::string("pidfd_open: ") + std::strerror(errno),
          "needs Linux 5.3 and a seccomp profile that allows pidfd_open"};
}

std::string LimitText(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : std::to_string(value);
}

Finding ExamineOpenFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string said =
      LimitText(limit.rlim_cur) + " open files, at most " + LimitText(limit.rlim_max);
  if (limit.rlim_cur >= kFdsWanted || limit.rlim_max >= kFdsWanted) {
    return {Level::kOk, "limit nofile", said, ""};
  }
  return {Level::kWarn, "limit nofile", said,
          "raise it to 65536: each allocation that a workload shares holds a descriptor"};
}

Finding ExamineSharedMemory() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) {
    return {Level::kWarn, "/dev/shm", "is not mounted",
            "Gantry's arenas do not need it, inference engines often do"};
  }
  return {Level::kOk, "/dev/shm",
          FormatSize(uint64_t{info.f_bavail} * info.f_frsize) + " of " +
              FormatSize(uint64_t{info.f_blocks} * info.f_frsize) +
              " free; arenas are not limited by it",
          ""};
}

Finding ExamineMemory() {
  const uint64_t available = MemoryInfo("MemAvailable").value_or(0);
  const host::MemoryRoom room = host::MemoryRoomOf();
  std::string said = FormatSize(available) + " available";
  if (room.bytes < available) {
    said += ", " + FormatSize(room.bytes) + " left by " + room.bound;
  }
  return {Level::kOk, "memory", said, ""};
}

Finding ExamineHugePages() {
  const uint64_t total = MemoryInfo("HugePages_Total").value_or(0);
  if (total == 0) return {Level::kOk, "huge pages", "none are reserved; none are needed", ""};
  return {Level::kOk, "huge pages",
          std::to_string(MemoryInfo("HugePages_Free").value_or(0)) + " of " +
              std::to_string(total) + " free, " +
              FormatSize(MemoryInfo("Hugepagesize").value_or(0)) + " each",
          ""};
}

Finding ExamineTransparentHugePages() {
  const std::string text = ReadText("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos || close == std::string::npos) {
    return {Level::kWarn, "shmem THP", "this kernel has none",
            "large copies take more TLB misses; nothing else changes"};
  }
  const std::string mode = text.substr(open + 1, close - open - 1);
  if (mode != "never" && mode != "deny") return {Level::kOk, "shmem THP", mode, ""};
  return {Level::kWarn, "shmem THP", mode,
          "for fewer TLB misses: echo advise > "
          "/sys/kernel/mm/transparent_hugepage/shmem_enabled"};
}

// Processors that the control group grants, or nothing when it grants all.
std::optional<double> ProcessorQuota() {
  const host::ControlGroup group = host::ControlGroupOf("cpu");
  std::optional<double> granted;
  for (const std::filesystem::path& folder : group.folders) {
    std::istringstream words(group.unified ? host::FirstLine(folder / "cpu.max")
                                           : host::FirstLine(folder / "cpu.cfs_quota_us") + " " +
                                                 host::FirstLine(folder / "cpu.cfs_period_us"));
    double quota = 0, period = 0;
    if (!(words >> quota >> period) || quota <= 0 || period <= 0) continue;  // "max", -1
    granted = std::min(quota / period, granted.value_or(quota / period));
  }
  return granted;
}

Finding ExamineProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  const int count = CPU_COUNT(&set);
  const auto quota = ProcessorQuota();
  std::string said = std::to_string(count) + " usable";
  if (quota) said += ", " + FormatFixed(*quota, 1) + " granted by the control group";
  const bool few = count < 2 || (quota && *quota < 2);
  return {few ? Level::kWarn : Level::kOk, "processors", said,
          few ? "a sidecar with one copy worker wants two, more workers want more" : ""};
}

}  // namespace

Findings ExamineHost() {
  return {
      ExamineKernel(),       ExamineSealing(), ExaminePidfd(),     ExamineOpenFiles(),
      ExamineSharedMemory(), ExamineMemory(),  ExamineHugePages(), ExamineTransparentHugePages(),
      ExamineProcessors()};
}

}  // namespace gantry::gantryctl
