// Many peers in one process, over real sockets: what each costs in memory, threads and descriptors
// at both ends together, and how long it takes to meet.
//   peers_benchmark COUNT...        prints one JSON object for each count and each way to meet
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/random_id.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/peer/server/peer_server.h"
#include "sidecar/registry/buffer_registry.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/test_folder.h"

namespace gantry::peer {
namespace {

constexpr std::chrono::seconds kPatience{30};

struct Footprint {
  double rss_bytes = 0;
  double threads = 0;
  double fds = 0;
};

Footprint Measure() {
  Footprint now;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double value = 0;
    if (word == "VmRSS:" && status >> value) now.rss_bytes = value * 1024;
    if (word == "Threads:" && status >> value) now.threads = value;
  }
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++now.fds;
  }
  return now;
}

// The part of a sidecar that owns buffers.
struct Owner {
  Owner(const std::string& node_dir, const std::string& name)
      : workloads({}, [](const auto&, auto) {}), registry({}, mapper, workloads) {
    PeerServerOptions options;
    options.self = {name, RandomGeneration(), *ReadNodeId(), "benchmark"};
    options.node_dir = node_dir;
    auto started = PeerServer::Start(std::move(options), registry);
    if (!started) {
      std::cerr << started.error().message << "\n";
      std::exit(1);
    }
    server = *std::move(started);
  }
  CountingMapper mapper;
  registry::WorkloadTable workloads;
  registry::BufferRegistry registry;
  std::unique_ptr<PeerServer> server;
};

// The part that uses those of others.
struct Initiator {
  explicit Initiator(const std::string& name) : events(64) {
    PeerDirectoryOptions options;
    options.self = {name, RandomGeneration(), *ReadNodeId(), "benchmark"};
    directory = std::make_unique<PeerDirectory>(std::move(options), mapper, events,
                                                [](const auto&, const auto&) {});
  }
  CountingMapper mapper;
  engine::EventLog events;
  std::unique_ptr<PeerDirectory> directory;
};

// How long it took until the peer was up, in microseconds.
double Connect(Initiator& initiator, const std::string& node_dir, const std::string& owner) {
  const TimePoint start = Clock::now();
  const auto info = initiator.directory->Put(owner, "unix:" + node_dir + "/" + owner + ".peer.sock",
                                             start + kPatience);
  if (!info || info->state != engine::PeerState::kUp) {
    std::cerr << "no session with " << owner << "\n";
    std::exit(1);
  }
  return 1e6 * SecondsBetween(start, Clock::now());
}

double ProcessCpuSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The share of a processor that all of them take when nobody does anything: heartbeats.
double IdleCpu() {
  constexpr std::chrono::seconds kTime{3};
  const double before = ProcessCpuSeconds();
  std::this_thread::sleep_for(kTime);
  return (ProcessCpuSeconds() - before) / static_cast<double>(kTime.count());
}

double MeanOf(const std::vector<double>& times, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += times[i];
  return sum / static_cast<double>(end - begin);
}

nlohmann::json Report(const std::string& way, const std::vector<double>& times,
                      const Footprint& before, const Footprint& after) {
  const auto count = static_cast<double>(times.size());
  const size_t tenth = std::max<size_t>(times.size() / 10, 1);
  return {{"way", way},
          {"peers", times.size()},
          {"kib_per_peer", (after.rss_bytes - before.rss_bytes) / 1024 / count},
          {"threads_per_peer", (after.threads - before.threads) / count},
          {"fds_per_peer", (after.fds - before.fds) / count},
          {"idle_cpu_us_per_peer_second", 1e6 * IdleCpu() / count},
          {"connect_us", MeanOf(times, 0, times.size())},
          {"connect_us_first_tenth", MeanOf(times, 0, tenth)},
          {"connect_us_last_tenth", MeanOf(times, times.size() - tenth, times.size())}};
}

// As one prefill pod that many decode pods read from.
nlohmann::json ManyInitiators(const std::string& node_dir, size_t count) {
  Owner owner(node_dir, "owner");
  std::vector<std::unique_ptr<Initiator>> initiators;
  const Footprint before = Measure();
  std::vector<double> times;
  for (size_t i = 0; i < count; ++i) {
    initiators.push_back(std::make_unique<Initiator>("initiator-" + std::to_string(i)));
    times.push_back(Connect(*initiators.back(), node_dir, "owner"));
  }
  return Report("many initiators at one owner", times, before, Measure());
}

// As one decode pod that reads from many.
nlohmann::json ManyOwners(const std::string& node_dir, size_t count) {
  Initiator initiator("initiator");
  std::vector<std::unique_ptr<Owner>> owners;
  const Footprint before = Measure();
  std::vector<double> times;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = "owner-" + std::to_string(i);
    owners.push_back(std::make_unique<Owner>(node_dir, name));
    times.push_back(Connect(initiator, node_dir, name));
  }
  nlohmann::json report = Report("one initiator at many owners", times, before, Measure());
  initiator.directory.reset();
  return report;
}

// Each in a process of its own, so that nothing is left of the one before.
void InChild(nlohmann::json (*measure)(const std::string&, size_t), size_t count) {
  const pid_t child = ::fork();
  if (child == 0) {
    {
      const testing::TestFolder node_dir("/dev/shm/gantry-peers-");
      std::cout << measure(node_dir.path(), count).dump() << std::endl;
    }
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) std::exit(1);
}

}  // namespace
}  // namespace gantry::peer

int main(int argc, char** argv) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  for (int i = 1; i < argc; ++i) {
    const size_t count = std::strtoull(argv[i], nullptr, 10);
    if (count == 0 || count > 1024) {
      std::cerr << "counts are 1 to 1024\n";
      return 2;
    }
    gantry::peer::InChild(&gantry::peer::ManyInitiators, count);
    gantry::peer::InChild(&gantry::peer::ManyOwners, count);
  }
  return 0;
}
