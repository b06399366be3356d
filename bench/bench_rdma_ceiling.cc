#include "bench/bench_rdma_ceiling.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "lib/process/shell_output.h"
#include "lib/topology/sysfs_devices.h"

namespace gantry::bench {
namespace {

constexpr uint64_t kMeasuredBytesMin = 32 << 20;
constexpr int kQueuePairs = 2;
constexpr const char* kPort = "47453";

// The fourth number of the line that begins with the size of a message: the average, in MB/s.
Result<double> AverageIn(const std::string& output, uint64_t message_bytes) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    double size = 0, count = 0, peak = 0, average = 0;
    if (words >> size >> count >> peak >> average && static_cast<uint64_t>(size) == message_bytes &&
        average > 0) {
      return average;
    }
  }
  return Fail(ErrorCode::kInternal, "perftest measured nothing: " + output.substr(0, 2000));
}

}  // namespace

Result<double> MoveWithPerftest(BenchOptions::Operation operation, uint64_t message_bytes,
                                uint64_t bytes) {
  const std::vector<topology::RdmaDevice> devices = topology::ListRdmaDevices();
  const auto active = std::find_if(devices.begin(), devices.end(), [](const auto& device) {
    return device.ActivePort() != nullptr;
  });
  if (active == devices.end()) {
    return Fail(ErrorCode::kNotFound, "no RDMA device here has an active port",
                "`gantryctl doctor` says what is there");
  }
  const char* const program =
      operation == BenchOptions::Operation::kRead ? "ib_read_bw" : "ib_write_bw";
  if (OutputOf(std::string("command -v ") + program).empty()) {
    return Fail(ErrorCode::kNotFound, std::string(program) + " is not installed",
                "install the package perftest: it is what RDMA is measured against");
  }
  const uint64_t messages =
      std::max<uint64_t>(std::max(bytes, kMeasuredBytesMin) / message_bytes, 8);
  const std::string common = std::string(program) + " -F -d " + active->name + " -s " +
                             std::to_string(message_bytes) + " -n " + std::to_string(messages) +
                             " -q " + std::to_string(kQueuePairs) + " -p " + kPort;
  // Whichever end fails, the other one would wait for it for ever.
  const std::string output = OutputOf(
      "timeout --foreground 600 " + common + " >/dev/null 2>&1 & server=$!; for try in 1 2 3; do " +
      "sleep 1; timeout --foreground 500 " + common + " 127.0.0.1 2>&1 && break; " +
      "kill -0 $server 2>/dev/null || break; done; " + "kill $server 2>/dev/null; wait");
  ASSIGN_OR_RETURN(const double megabytes, AverageIn(output, message_bytes));
  return static_cast<double>(bytes) / (megabytes * (1 << 20));
}

}  // namespace gantry::bench
