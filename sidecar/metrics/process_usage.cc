#include "sidecar/metrics/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace gantry::metrics {
namespace {

// The fields of /proc/self/stat after the command's name, which may contain spaces; the first one
// is field 3 of proc(5).
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) return {};
  std::istringstream rest(line.substr(end_of_name + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

double BootTimeUnixSeconds() {
  std::ifstream file("/proc/stat");
  std::string key;
  for (double value = 0; file >> key; file.ignore(1 << 20, '\n')) {
    if (key == "btime" && file >> value) return value;
  }
  return 0;
}

uint64_t CountOpenFds() {
  std::error_code ignored;
  uint64_t count = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", ignored), end; entry != end;
       entry.increment(ignored)) {
    if (ignored) break;
    ++count;
  }
  return count == 0 ? 0 : count - 1;  // the directory itself was one
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  constexpr size_t kStart = 22 - 3, kVirtual = 23 - 3, kResident = 24 - 3;  // fields of proc(5)
  static const double boot_time = BootTimeUnixSeconds();

  ProcessUsage usage;
  if (const auto fields = StatFields(); fields.size() > kResident) {
    const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    usage.start_time_unix_seconds =
        boot_time + std::strtod(fields[kStart].c_str(), nullptr) / ticks;
    usage.virtual_bytes = std::strtoull(fields[kVirtual].c_str(), nullptr, 10);
    usage.resident_bytes = std::strtoull(fields[kResident].c_str(), nullptr, 10) *
                           static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  rusage cpu{};
  if (getrusage(RUSAGE_SELF, &cpu) == 0) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    usage.cpu_seconds = seconds(cpu.ru_utime) + seconds(cpu.ru_stime);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) usage.max_fds = limit.rlim_cur;
  usage.open_fds = CountOpenFds();
  return usage;
}

}  // namespace gantry::metrics
