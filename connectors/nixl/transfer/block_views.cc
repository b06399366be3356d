#include "connectors/nixl/transfer/block_views.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "connectors/nixl/agent/layout_request.h"
#include "connectors/nixl/agent/peer_agents.h"
#include "connectors/nixl/agent/plugin_log.h"
#include "lib/base/thread.h"

namespace gantry::nixl {
namespace {

constexpr size_t kViewsMax = 128;
constexpr size_t kWantedMax = 64;
constexpr milliseconds kAgainAfter{30'000};
// The other agent needs a moment to offer its blocks.
constexpr milliseconds kPauseMin{5};
constexpr milliseconds kPauseMax{1'000};
constexpr int kTries = 10;

using Pairs = std::vector<std::pair<std::string, std::string>>;

Result<ViewHandle> CreateView(const Lease& lease, const AgentCard& target,
                              const std::vector<Pairs>& groups) {
  std::vector<std::vector<gantry_view_pair>> pairs;
  std::vector<gantry_view_group> made;
  for (const Pairs& group : groups) {
    auto& names = pairs.emplace_back();
    for (const auto& [local, remote] : group) names.push_back({local.c_str(), remote.c_str()});
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    gantry_view_group group = {};
    group.group = static_cast<uint32_t>(i);
    group.pairs = pairs[i].data();
    group.pair_count = pairs[i].size();
    made.push_back(group);
  }
  const std::string peer = PeerNameOf(target, lease);
  gantry_view_spec spec = {};
  spec.peer = peer.empty() ? nullptr : peer.c_str();
  spec.remote_workload = target.workload.c_str();
  spec.groups = made.data();
  spec.group_count = made.size();
  gantry_view* view = nullptr;
  RETURN_IF_ERROR(Take(gantry_view_create(lease.client(), &spec, &view)));
  return ViewHandle(view, DestroysHandle());
}

// The other agent offers its blocks, unless it is of before there were views.
Status AskForBlocks(const Lease& lease, const AgentCard& target, uint64_t block_bytes,
                    const std::vector<std::string>& buffers) {
  const std::string peer = PeerNameOf(target, lease);
  for (size_t at = 0; at < buffers.size(); at += kLayoutBuffersMax) {
    const size_t count = std::min(kLayoutBuffersMax, buffers.size() - at);
    const std::string text = TextOf(block_bytes, std::span(buffers).subspan(at, count));
    const gantry_message message = {target.workload.c_str(), text.data(), text.size(), nullptr};
    RETURN_IF_ERROR(Take(gantry_notify(lease.client(), peer.c_str(), &message, 0, nullptr)));
  }
  return {};
}

bool MayComeYet(ErrorCode code) {
  return code == ErrorCode::kUnregistered || code == ErrorCode::kNotFound ||
         code == ErrorCode::kPeerUnavailable;
}

}  // namespace

BlockViews::~BlockViews() {
  std::jthread thread;
  {
    const MutexLock lock(mutex_);
    thread.swap(thread_);
  }
  thread.request_stop();
  changed_.NotifyAll();
}

ViewHandle BlockViews::Find(const std::shared_ptr<Lease>& lease, const AgentCard& target,
                            const BlockPlan& plan) {
  std::string key = target.agent + "/" + plan.key;
  const MutexLock lock(mutex_);
  Entry& entry = all_[key];
  entry.used = ++uses_;
  if (entry.lease.lock() != lease) entry = {lease, nullptr, {}, entry.used};
  if (entry.view == nullptr && Clock::now() >= entry.not_before && wanted_.size() < kWantedMax) {
    entry.not_before = Clock::now() + kAgainAfter;
    Want(std::move(key), lease, target, plan);
  }
  return entry.view;
}

void BlockViews::Drop(const AgentCard& target, const BlockPlan& plan) {
  ViewHandle dropped;
  const MutexLock lock(mutex_);
  const auto found = all_.find(target.agent + "/" + plan.key);
  if (found == all_.end() || found->second.view == nullptr) return;
  dropped.swap(found->second.view);
  found->second.not_before = Clock::now() + kAgainAfter;
}

void BlockViews::Want(std::string key, const std::shared_ptr<Lease>& lease, const AgentCard& target,
                      const BlockPlan& plan) {
  Wanted wanted{std::move(key), lease, target, plan.block_bytes, {}};
  for (const BlockGroup& group : plan.groups) {
    Pairs& pairs = wanted.groups.emplace_back();
    for (size_t i = 0; i < group.local.size(); ++i)
      pairs.emplace_back(group.local[i]->card().buffer, group.remote[i]);
  }
  wanted_.push_back(std::move(wanted));
  StartRunning();
}

void BlockViews::Offer(const std::shared_ptr<Lease>& lease, const LayoutRequest& request) {
  const MutexLock lock(mutex_);
  if (offers_.size() >= kWantedMax) return;  // it is asked again
  offers_.emplace_back(lease, request);
  StartRunning();
}

void BlockViews::StartRunning() {
  if (!thread_.joinable()) {
    auto started = StartThread("gantry-views", [this](std::stop_token stop) { Run(stop); });
    if (started) thread_ = *std::move(started);
  }
  changed_.NotifyAll();
}

void BlockViews::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      Step(stop);
    } catch (const std::exception&) {  // NOLINT: no memory is left; ranges do as well
      Pause(kPauseMax, stop);
    }
  }
}

void BlockViews::OfferFirst() {
  std::pair<std::shared_ptr<Lease>, LayoutRequest> offer;
  {
    const MutexLock lock(mutex_);
    if (offers_.empty()) return;
    offer = std::move(offers_.front());
    offers_.pop_front();
  }
  memory_.Offer(offer.first, offer.second.block_bytes, offer.second.buffers);
}

void BlockViews::Step(const std::stop_token& stop) {
  OfferFirst();
  Wanted wanted;
  {
    MutexLock lock(mutex_);
    while (wanted_.empty() && offers_.empty() && !stop.stop_requested())
      changed_.WaitUntil(lock, Clock::now() + kPauseMax);
    if (stop.stop_requested() || wanted_.empty()) return;
    wanted = std::move(wanted_.front());
    wanted_.pop_front();
  }
  const ViewHandle view = Make(wanted, stop);
  std::vector<ViewHandle> forgotten;  // are deleted without the lock
  const MutexLock lock(mutex_);
  const auto found = all_.find(wanted.key);
  if (found != all_.end() && found->second.lease.lock() == wanted.lease) found->second.view = view;
  while (all_.size() > kViewsMax) {
    const auto oldest = std::min_element(
        all_.begin(), all_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    forgotten.push_back(std::move(oldest->second.view));
    all_.erase(oldest);
  }
}

ViewHandle BlockViews::Make(const Wanted& wanted, const std::stop_token& stop) {
  std::vector<std::string> local, remote;
  std::vector<Pairs> groups;
  for (const Pairs& group : wanted.groups) {
    Pairs& pairs = groups.emplace_back();
    for (const auto& [here, there] : group) {
      local.push_back(here);
      remote.push_back(there);
      pairs.emplace_back(LayoutName(here, wanted.block_bytes),
                         LayoutName(there, wanted.block_bytes));
    }
  }
  memory_.Offer(wanted.lease, wanted.block_bytes, local);
  Status asked = AskForBlocks(*wanted.lease, wanted.target, wanted.block_bytes, remote);
  Error why = asked ? Error() : asked.error();
  milliseconds pause = kPauseMin;
  for (int i = 0; asked && i < kTries && Pause(pause, stop); ++i) {
    OfferFirst();  // two agents may ask each other
    auto view = CreateView(*wanted.lease, wanted.target, groups);
    if (view) {
      plugin_log::Info("transfers with agent '" + wanted.target.agent + "' name blocks of " +
                       std::to_string(wanted.block_bytes) + " bytes by a view of " +
                       std::to_string(local.size()) + " pairs of buffers");
      return *std::move(view);
    }
    why = std::move(view).error();
    if (!MayComeYet(why.code)) break;
    pause = std::min(2 * pause, kPauseMax);
  }
  if (!stop.stop_requested())
    plugin_log::Warning("transfers with agent '" + wanted.target.agent + "' name ranges", why);
  return nullptr;
}

bool BlockViews::Pause(milliseconds time, const std::stop_token& stop) {
  const TimePoint until = Clock::now() + time;
  MutexLock lock(mutex_);
  while (!stop.stop_requested() && Clock::now() < until) changed_.WaitUntil(lock, until);
  return !stop.stop_requested();
}

}  // namespace gantry::nixl
