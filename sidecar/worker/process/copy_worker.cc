#include "sidecar/worker/process/copy_worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "sidecar/memory/pinned_memory.h"
#include "sidecar/worker/channel/shared_block.h"
#include "sidecar/worker/channel/shared_costs.h"
#include "sidecar/worker/channel/worker_greeting.h"
#include "sidecar/worker/channel/worker_message.h"
#include "sidecar/worker/process/cost_measurement.h"
#include "sidecar/worker/process/fault_guard.h"
#include "sidecar/worker/process/probe_list.h"
#include "sidecar/worker/process/worker_loop.h"

namespace gantry::worker {
namespace {

constexpr int kArguments = 7;  // with the program's name

struct Arguments {
  int index = 0;
  int gpu_workers = 0;
  bool without_driver = false;
  nanoseconds spin{0};
};

template <typename Number>
bool ParseNumber(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

Result<Arguments> ParseArguments(int argc, char** argv) {
  Arguments arguments;
  int without_driver = 0;
  int64_t spin_ns = 0;
  if (argc != kArguments || !ParseNumber(argv[2], &arguments.index) ||
      !ParseNumber(argv[3], &arguments.gpu_workers) || !ParseNumber(argv[4], &without_driver) ||
      !ParseNumber(argv[5], &spin_ns)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "a copy worker takes an index, how many have a GPU, whether it leaves the driver alone, "
        "a spin and a level",
        "it is started by the sidecar and not by hand");
  }
  arguments.without_driver = without_driver != 0;
  arguments.spin = nanoseconds(spin_ns);
  ASSIGN_OR_RETURN(const log::Level level, log::ParseLevel(argv[6]));
  const std::string name = "gantry-copy-" + std::string(argv[2]);
  ::prctl(PR_SET_NAME, name.c_str());
  log::Configure(name, level);
  return arguments;
}

// Dies with the pool, also when the pool is killed; the control socket covers what happens before.
void DieWithParent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The two sides of this process: this thread serves the control socket, another one copies.
class CopyWorker {
 public:
  CopyWorker(SharedBlock ring, SharedBlock doorbell, const Arguments& arguments)
      : index_(arguments.index),
        gpu_workers_(arguments.gpu_workers),
        without_driver_(arguments.without_driver),
        ring_block_(std::move(ring)),
        doorbell_block_(std::move(doorbell)),
        ring_(static_cast<RingLayout*>(ring_block_.data()),
              static_cast<Doorbell*>(doorbell_block_.data()), index_),
        loop_(&ring_, &mappings_, arguments.spin) {}

  int Serve() {
    // Before the GPU's driver, which is not to be blamed when there is no thread to be had.
    std::promise<void> ready;
    auto copying = StartThread("gantry-copying", [this, begin = ready.get_future()] {
      begin.wait();
      const Status status = loop_.Run();
      if (!status) log::Error("copy worker ends", {{"error", status.error()}});
      const bool corrupt = status || status.error().code == ErrorCode::kInternal;
      log::Flush();
      ::_exit(corrupt ? kExitCorruptRing : kExitGpuFailed);
    });
    if (!copying) {
      log::Error("copy worker cannot start", {{"error", copying.error()}});
      return kExitNoThread;
    }
    copying->detach();
    Status opened = without_driver_ ? LeftAlone() : gpus_.Open(index_, gpu_workers_);
    if (opened) opened = loop_.UseGpu(gpus_);
    if (!opened) gpus_.Close();
    ready.set_value();
    const WorkerAnswer greeting = Greet(opened);
    if (!SendMessage(kControlFd, BytesOf(greeting), {})) return kExitPoolGone;
    if (opened) BeginMeasurement();
    while (true) {
      auto message = ReceiveMessage(kControlFd, sizeof(WorkerRequest));
      if (message && message->closed) return kExitPoolGone;
      WorkerRequest request;
      if (!message || !ParseMessage(message->payload, &request)) return kExitBadRequest;
      std::string said;
      const Status done = Handle(request, message->fds, &said);
      WorkerAnswer answer = AnswerOf(request.number, done);
      if (done) said.copy(answer.message, sizeof(answer.message) - 1);
      const Status sent = SendMessage(kControlFd, BytesOf(answer), {});
      if (!sent) return kExitPoolGone;
    }
  }

 private:
  static Status LeftAlone() {
    return Fail(ErrorCode::kWorkerLost,
                "it was started without the GPU's driver, over which its starts hung or ended",
                "look at the driver's state and at the sidecar's log");
  }
  WorkerAnswer Greet(const Status& opened) const {
    WorkerAnswer greeting = AnswerOf(/*number=*/0, opened);
    if (opened) SaidOfGpus().copy(greeting.message, sizeof(greeting.message) - 1);
    return greeting;
  }
  std::string SaidOfGpus() const {
    Greeting greeting;
    for (const std::string& uuid : gpus_.uuids()) {
      greeting.gpus.push_back({uuid, gpus_.Reaches(uuid), gpus_.PciAddressOf(uuid)});
    }
    greeting.sharing = gpus_.sharing();
    greeting.memory = gpus_.context()->Memory().value_or(gpu::MemoryAmount());
    return TextOf(greeting, sizeof(WorkerAnswer::message) - 1);
  }
  static Result<memory::GpuDevices> OpenGpu(int index, int gpu_workers) {
    memory::GpuDevices gpus;
    RETURN_IF_ERROR(gpus.Open(index, gpu_workers));
    // There is room for what the copy thread will need.
    RETURN_IF_ERROR(gpus.context()->NewStream());
    return gpus;
  }
  // Once the copy thread runs: that gets its streams ready with its first job for the GPU. By a
  // thread of its own, so that a driver that hangs keeps the host's memory from nobody. False: it
  // is at it.
  Result<bool> OpenGpuLater() {
    if (gpus_.context() != nullptr) return true;
    if (!opening_.valid()) {
      std::packaged_task<Result<memory::GpuDevices>()> open(
          [index = index_, gpu_workers = gpu_workers_] { return OpenGpu(index, gpu_workers); });
      auto opening = open.get_future();
      ASSIGN_OR_RETURN(std::jthread thread, StartThread("gantry-open", std::move(open)));
      thread.detach();
      opening_ = std::move(opening);
    }
    if (opening_.wait_for(milliseconds(0)) != std::future_status::ready) return false;
    ASSIGN_OR_RETURN(gpus_, opening_.get());
    return true;  // and nothing is measured: it may have been short of memory
  }
  // The first worker of each GPU measures what its copies cost. It has a thread of its own, so that
  // nothing waits for it.
  void BeginMeasurement() {
    auto* const ring = static_cast<RingLayout*>(ring_block_.data());
    if (static_cast<size_t>(index_) >= gpus_.uuids().size() || !BeginCosts(ring)) return;
    const auto log_unmeasured = [index = index_, uuids = gpus_.uuids()](const Error& why) {
      const std::string gpus = GpusToNameFor(why, index, uuids);
      if (gpus.empty()) return;
      log::Warning("the costs of a GPU's copies are not measured: those of H200 count",
                   {{"gpus", gpus}, {"why", why}});
    };
    auto thread = StartThread("gantry-measure", [ring, log_unmeasured, context = gpus_.context(),
                                                 peer = gpus_.NextReached()] {
      if (Status done = Measure(*context, peer, ring); !done) log_unmeasured(done.error());
    });
    if (thread) {
      thread->detach();
    } else {
      log_unmeasured(thread.error());
    }
  }
  static Status Measure(gpu::GpuContext& context, int peer, RingLayout* ring) {
    const TimePoint begin = Clock::now();
    ASSIGN_OR_RETURN(const MeasuredCosts measured,
                     MeasureCosts(context, peer, begin + kMeasurementMax));
    PublishCosts(measured, ring);
    const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    log::Info("the costs of a GPU's copies are measured", {{"took_ms", took.count()}});
    return {};
  }

  // `said`: what the answer says besides that it is well.
  Status Handle(const WorkerRequest& request, std::vector<UniqueFd>& fds, std::string* said) {
    switch (request.kind) {
      case RequestKind::kMap:
        if (fds.size() != 1) return Fail(ErrorCode::kInvalidArgument, "Map needs one descriptor");
        return Map(request, fds.front().get());
      case RequestKind::kUnmap:
        return mappings_.Remove(request.mapping);
      case RequestKind::kCompare: {
        if (fds.size() != 1) return Fail(ErrorCode::kInvalidArgument, "Compare needs one list");
        ASSIGN_OR_RETURN(*said, CompareProbes(mappings_, std::move(fds.front()), request.size));
        return {};
      }
      case RequestKind::kOpenGpu: {
        ASSIGN_OR_RETURN(const bool opened, OpenGpuLater());
        if (opened) *said = SaidOfGpus();
        return {};
      }
    }
    return Fail(ErrorCode::kInvalidArgument, "unknown request");
  }

  Status Map(const WorkerRequest& request, int fd) {
    const bool writable = request.writable != 0;
    if (request.on_gpu != 0) {
      ASSIGN_OR_RETURN(memory::GpuMapping mapping,
                       memory::GpuMapping::Create(gpus_, GpuFactsOf(request), fd, request.size));
      return mappings_.Add(request.mapping, std::move(mapping), writable);
    }
    const auto unsealed =
        request.unsealed != 0 ? memory::Unsealed::kTaken : memory::Unsealed::kRefused;
    ASSIGN_OR_RETURN(memory::HostMapping mapping,
                     memory::HostMapping::Create(fd, request.size, writable, unsealed));
    if (request.pinned == 0 || gpus_.context() == nullptr) {
      return mappings_.Add(request.mapping, std::move(mapping));
    }
    auto pinned = memory::PinForGpu(*gpus_.context(), mapping);
    if (pinned) return mappings_.Add(request.mapping, std::move(mapping), *std::move(pinned));
    log::Warning(
        "a GPU's driver does not take the memory between GPUs and the network: its bytes "
        "are copied once more on their way",
        {{"bytes", request.size}, {"why", pinned.error()}});
    return mappings_.Add(request.mapping, std::move(mapping));
  }

  const int index_;
  const int gpu_workers_;
  const bool without_driver_;
  const SharedBlock ring_block_;
  const SharedBlock doorbell_block_;
  memory::GpuDevices gpus_;
  std::future<Result<memory::GpuDevices>> opening_;  // valid while a thread is at it
  MappingTable mappings_;
  WorkerRingEnd ring_;
  WorkerLoop loop_;
};

Result<std::unique_ptr<CopyWorker>> Start(const Arguments& arguments) {
  ASSIGN_OR_RETURN(SharedBlock ring, SharedBlock::Attach(UniqueFd(kRingFd), sizeof(RingLayout)));
  ASSIGN_OR_RETURN(SharedBlock doorbell,
                   SharedBlock::Attach(UniqueFd(kDoorbellFd), sizeof(Doorbell)));
  const auto* layout = static_cast<const RingLayout*>(ring.data());
  if (layout->magic != kRingMagic || layout->version != kRingVersion) {
    return Fail(ErrorCode::kVersionMismatch, "the ring was made by another version");
  }
  return std::make_unique<CopyWorker>(std::move(ring), std::move(doorbell), arguments);
}

}  // namespace

bool IsCopyWorker(int argc, char** argv) { return argc >= 2 && argv[1] == kCopyWorkerFlag; }

int RunCopyWorker(int argc, char** argv) {
  DieWithParent();
  InstallFaultGuard();
  const Result<Arguments> arguments = ParseArguments(argc, argv);
  if (!arguments) {
    log::Error("copy worker cannot start", {{"error", arguments.error()}});
    return kExitBadStart;
  }
  const Result<std::unique_ptr<CopyWorker>> worker = Start(*arguments);
  if (!worker) {
    log::Error("copy worker cannot start", {{"error", worker.error()}});
    return kExitBadStart;
  }
  // No destructors: the copy thread may still be in the middle of a job.
  const int exit_code = (*worker)->Serve();
  log::Flush();
  ::_exit(exit_code);
}

}  // namespace gantry::worker
