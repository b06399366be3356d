#include "connectors/nixl/agent/lease_keeper.h"

#include <algorithm>
#include <array>
#include <utility>

#include "connectors/nixl/agent/plugin_log.h"
#include "lib/base/thread.h"
#include "lib/codec/body_fields.h"
#include "lib/codec/body_writer.h"

namespace gantry::nixl {
namespace {

constexpr uint64_t kPollMs = 10'000;
constexpr uint64_t kRepairMs = 500;  // while something is not well
constexpr milliseconds kFullPause{100};
constexpr uint64_t kEventsMax = 64;  // of a page, each with a message of 64 KiB at most
constexpr milliseconds kPauseMin{50};
constexpr milliseconds kPauseMax{2'000};
// An agent of this name that died a moment ago may still have its lease.
constexpr milliseconds kConflictWait{3'000};
constexpr uint64_t kCloseMs = 1'000;

// `has_filter`: ends of transfers are left out, as each transfer is asked for.
std::string PollBody(const std::string& workload, std::optional<uint64_t> cursor, uint64_t wait_ms,
                     bool has_filter) {
  wire::BodyWriter out(wire::BodyFormat::kJson);
  out.BeginObject().Field("workload", workload).Field("max", kEventsMax);
  if (cursor) out.Field("cursor", *cursor);
  if (has_filter) out.Field("transfers", "none");
  return out.Field("wait_ms", wait_ms).EndObject().Take();
}

uint64_t CursorOf(const std::string& page) {
  static constexpr std::array<std::string_view, 1> kKeys = {"cursor"};
  const auto fields = wire::BodyFields::Read(page, kKeys);
  return fields ? fields->Number("cursor") : 0;
}

bool IsLost(ErrorCode code) {
  return code == ErrorCode::kSidecarLost || code == ErrorCode::kCancelled ||
         code == ErrorCode::kUnauthenticated || code == ErrorCode::kNotFound ||
         code == ErrorCode::kPermissionDenied;
}

Result<std::shared_ptr<Lease>> OpenFirst(const PluginConfig& config, const std::string& workload) {
  const TimePoint until = Clock::now() + kConflictWait;
  for (;;) {
    auto lease = Lease::Open(config, workload);
    if (lease || lease.error().code != ErrorCode::kConflict || Clock::now() > until) return lease;
    std::this_thread::sleep_for(kPauseMin);
  }
}

}  // namespace

Result<std::unique_ptr<LeaseKeeper>> LeaseKeeper::Start(PluginConfig config, std::string workload,
                                                        Listener listener) {
  std::unique_ptr<LeaseKeeper> keeper(
      new LeaseKeeper(std::move(config), std::move(workload), std::move(listener)));
  ASSIGN_OR_RETURN(std::shared_ptr<Lease> lease, OpenFirst(keeper->config_, keeper->workload_));
  // Messages to an earlier agent of this name are not for this one.
  ASSIGN_OR_RETURN(const std::string page,
                   lease->Request("POST", "/v1/completions:poll",
                                  PollBody(keeper->workload_, std::nullopt, 0, false), 0));
  {
    const MutexLock lock(keeper->mutex_);
    keeper->lease_ = std::move(lease);
    keeper->cursor_ = CursorOf(page);
  }
  ASSIGN_OR_RETURN(keeper->thread_,
                   StartThread("gantry-nixl", [keeper = keeper.get()](std::stop_token stop) {
                     keeper->Run(stop);
                   }));
  return keeper;
}

LeaseKeeper::LeaseKeeper(PluginConfig config, std::string workload, Listener listener)
    : config_(std::move(config)), workload_(std::move(workload)), listener_(std::move(listener)) {}

LeaseKeeper::~LeaseKeeper() {
  thread_.request_stop();
  stopped_.NotifyAll();
  if (const auto last = lease()) last->Close(last->IsSilent() ? 0 : kCloseMs);
  if (thread_.joinable()) thread_.join();
  // One that came while the thread ended.
  if (const auto last = lease()) last->Close(0);
}

std::shared_ptr<Lease> LeaseKeeper::lease() const {
  const MutexLock lock(mutex_);
  return lease_;
}

void LeaseKeeper::Run(const std::stop_token& stop) {
  static log::RateLimiter limiter;
  // Nothing may leave a thread of the engine's process: that would end it.
  while (!stop.stop_requested()) {
    try {
      Step(stop);
      continue;
    } catch (const std::exception& failure) {
      try {
        plugin_log::Seldom(limiter, std::string("events are not taken: ") + failure.what());
      } catch (...) {  // NOLINT: no memory is left for the line
      }
    }
    Pause(kPauseMin, stop);
  }
}

void LeaseKeeper::Step(const std::stop_token& stop) {
  if (const auto current = lease()) {
    Listen(current, stop);
  } else {
    Reopen(stop);
  }
}

void LeaseKeeper::Listen(const std::shared_ptr<Lease>& lease, const std::stop_token& stop) {
  std::optional<uint64_t> cursor;
  {
    const MutexLock lock(mutex_);
    cursor = cursor_;
  }
  const uint64_t wait_ms = listener_.repair(lease) ? kPollMs : kRepairMs;
  const bool has_room = listener_.has_room();
  const auto page = has_room
                        ? lease->Request("POST", "/v1/completions:poll",
                                         PollBody(workload_, cursor, wait_ms, has_filter_), wait_ms)
                        : lease->Request("GET", "/v1/info", "", 0);  // whether the sidecar lives
  if (!page) {
    if (stop.stop_requested()) return;
    if (IsLost(page.error().code)) return Lose(*lease, page.error());
    // A sidecar of before knows no filter.
    if (has_filter_ && page.error().code == ErrorCode::kMalformedBody) {
      has_filter_ = false;
      return;
    }
    if (page.error().code == ErrorCode::kDeadlineExceeded) lease->NoteSilence();
    return Pause(kPauseMin, stop);
  }
  lease->NoteAnswer();
  if (!has_room) return Pause(kFullPause, stop);
  {
    const MutexLock lock(mutex_);
    cursor_ = CursorOf(*page);
  }
  listener_.heard(lease, *page);
}

void LeaseKeeper::Lose(Lease& lease, const Error& why) {
  plugin_log::Warning("the sidecar is lost; transfers fail until it is back", why);
  {
    const MutexLock lock(mutex_);
    lease_ = nullptr;
    pause_ = kPauseMin;
  }
  lease.Close(0);
}

void LeaseKeeper::Reopen(const std::stop_token& stop) {
  auto opened = Lease::Open(config_, workload_);
  if (!opened) {
    milliseconds pause;
    {
      const MutexLock lock(mutex_);
      pause = pause_;
      pause_ = std::min(2 * pause_, kPauseMax);
    }
    return Pause(pause, stop);
  }
  listener_.renewed(*opened);
  plugin_log::Info("the sidecar is back; memory and peers are known to it again");
  const MutexLock lock(mutex_);
  lease_ = *std::move(opened);
  has_filter_ = true;
  cursor_ = 0;  // a new sidecar has nothing of before
}

void LeaseKeeper::Pause(milliseconds time, const std::stop_token& stop) {
  const TimePoint until = Clock::now() + time;
  MutexLock lock(mutex_);
  while (!stop.stop_requested() && stopped_.WaitUntil(lock, until)) {
  }
}

}  // namespace gantry::nixl
