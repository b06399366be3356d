#include "connectors/nixl/transfer/transfer_reaper.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "lib/base/thread.h"

namespace gantry::nixl {
namespace {

constexpr milliseconds kPause{50};
constexpr milliseconds kIdlePause{1'000};

}  // namespace

TransferReaper::~TransferReaper() {
  std::jthread thread;
  {
    const MutexLock lock(mutex_);
    thread.swap(thread_);
  }
  thread.request_stop();
  changed_.NotifyAll();
}

void TransferReaper::Take(std::shared_ptr<NixlTransfer> transfer) {
  const MutexLock lock(mutex_);
  if (std::find(all_.begin(), all_.end(), transfer) != all_.end()) return;
  all_.push_back(std::move(transfer));
  if (!thread_.joinable()) {
    auto started = StartThread("gantry-reaper", [this](std::stop_token stop) { Run(stop); });
    if (started) thread_ = *std::move(started);
  }
  changed_.NotifyAll();
}

void TransferReaper::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool any = true;
    try {
      any = StopAll();
    } catch (const std::exception&) {  // NOLINT: no memory is left; it is tried again
    }
    MutexLock lock(mutex_);
    const TimePoint until = Clock::now() + (any ? kPause : kIdlePause);
    while (!stop.stop_requested() && (any || all_.empty()) && Clock::now() < until)
      changed_.WaitUntil(lock, until);
  }
}

bool TransferReaper::StopAll() {
  std::vector<std::shared_ptr<NixlTransfer>> all;
  {
    const MutexLock lock(mutex_);
    all = all_;
  }
  std::vector<const NixlTransfer*> over;
  for (const auto& transfer : all)
    if (transfer->StopSoon()) over.push_back(transfer.get());
  const MutexLock lock(mutex_);
  std::erase_if(all_, [&](const auto& transfer) {
    return std::find(over.begin(), over.end(), transfer.get()) != over.end();
  });
  return !all_.empty();
}

}  // namespace gantry::nixl
