#include "sidecar/transfer/delegation.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gantry::engine {

uint64_t RangesOf(const transport::MovePlan& plan) {
  uint64_t ranges = 0;
  for (const transport::MoveSegment segment : plan.segments) ranges += segment.count;
  return ranges;
}

namespace {

wire::PeerExecution ExecutionOf(const Delegation& delegation, const transport::MovePlan& plan,
                                int priority) {
  wire::PeerExecution execution;
  execution.operation = plan.operation;
  execution.callers = delegation.local;
  execution.callees = delegation.remote;
  execution.priority = priority;
  execution.require_path = delegation.require_path;
  execution.ranges.reserve(RangesOf(plan));
  for (const transport::MoveSegment segment : plan.segments) {
    for (uint64_t i = 0; i < segment.count; ++i) {
      execution.ranges.push_back(
          {segment.local_allocation, segment.local_offset + i * segment.local_stride,
           segment.remote_allocation, segment.remote_offset + i * segment.remote_stride,
           segment.length});
    }
  }
  return execution;
}

}  // namespace

// What the executor's threads said since the driver looked.
class DelegationWatcher final : public PeerExecutor::Watcher,
                                public std::enable_shared_from_this<DelegationWatcher> {
 public:
  DelegationWatcher(std::shared_ptr<DelegatedTransfers::Inbox> inbox, uint64_t token_in)
      : token(token_in), inbox_(std::move(inbox)) {}

  void OnAccepted(wire::Path path, std::vector<wire::PathReport> paths) override {
    Apply([&](News& news) {
      news.accepted = DelegatedTransfers::Accepted{0, path, std::move(paths)};
    });
  }
  void OnProgress(uint64_t bytes) override {
    Apply([&](News& news) { news.bytes = bytes; });
  }
  void OnEnded(const wire::PeerExecutionEnd& end) override {
    Apply([&](News& news) { news.end = end; });
  }

  struct News {
    std::optional<DelegatedTransfers::Accepted> accepted;
    std::optional<uint64_t> bytes;
    std::optional<wire::PeerExecutionEnd> end;
  };
  News Take() {
    const MutexLock lock(inbox_->mutex);
    queued_ = false;
    return std::exchange(news_, {});
  }

  const uint64_t token;
  DelegatedTransfers::DelegatedOperation* operation = nullptr;  // the driver's; null: it is gone

 private:
  template <typename Change>
  void Apply(const Change& change) {
    const MutexLock lock(inbox_->mutex);
    change(news_);
    if (std::exchange(queued_, true) || inbox_->wake == nullptr) return;
    inbox_->changed.push_back(shared_from_this());
    inbox_->wake();
  }

  const std::shared_ptr<DelegatedTransfers::Inbox> inbox_;
  News news_;            // under the inbox's mutex, as is
  bool queued_ = false;  // it stands in the inbox
};

class DelegatedTransfers::DelegatedOperation final : public transport::Operation {
 public:
  DelegatedOperation(std::shared_ptr<const Delegation> delegation,
                     std::shared_ptr<const transport::MovePlan> plan,
                     std::shared_ptr<DelegationWatcher> watcher)
      : delegation_(std::move(delegation)), plan_(std::move(plan)), watcher_(std::move(watcher)) {
    progress_.chunks_total = plan_->segments.size();
    watcher_->operation = this;
  }
  ~DelegatedOperation() override { watcher_->operation = nullptr; }

  void Stop() override {
    if (execution_ != nullptr) execution_->Stop();
  }
  // The executor sees to the rest by itself.
  void Abort() override { Stop(); }
  bool finished() const override { return finished_; }
  const std::optional<Error>& error() const override { return error_; }
  const transport::Progress& progress() const override { return progress_; }
  // Which of the ranges were moved the peer does not say.
  std::vector<uint32_t> UnfinishedItems() const override {
    if (progress_.chunks == progress_.chunks_total) return {};
    const bool in_order = plan_->item_order.empty();
    std::vector<uint32_t> items(in_order ? plan_->descriptors_in : plan_->item_order.size());
    std::iota(items.begin(), items.end(), 0u);
    return items;
  }

  void Run(std::unique_ptr<PeerExecutor::Execution> execution) {
    execution_ = std::move(execution);
  }
  // True when the loop should look at it.
  bool Update(DelegationWatcher::News news) {
    if (news.accepted) progress_.first_posted = Clock::now();
    if (news.bytes) progress_.bytes = std::min(*news.bytes, plan_->bytes);
    if (!news.end) return false;
    finished_ = true;
    error_ = std::move(news.end->error);
    // What the peer lacks is half of the answer.
    if (error_ && error_->code == ErrorCode::kPathUnavailable &&
        !delegation_->why_not_here.empty()) {
      error_->message += "; this sidecar: " + delegation_->why_not_here;
    }
    progress_.bytes = error_ ? std::min(news.end->bytes, plan_->bytes) : plan_->bytes;
    if (!error_) progress_.chunks = progress_.chunks_total;
    return true;
  }

 private:
  const std::shared_ptr<const Delegation> delegation_;
  const std::shared_ptr<const transport::MovePlan> plan_;
  const std::shared_ptr<DelegationWatcher> watcher_;
  std::unique_ptr<PeerExecutor::Execution> execution_;
  std::optional<Error> error_;
  transport::Progress progress_;
  bool finished_ = false;
};

DelegatedTransfers::~DelegatedTransfers() {
  std::vector<std::shared_ptr<DelegationWatcher>> changed;  // end after the lock
  const MutexLock lock(inbox_->mutex);
  inbox_->wake = nullptr;
  changed.swap(inbox_->changed);
}

Status DelegatedTransfers::CanExecute(const std::string& peer) const {
  if (executor_ != nullptr) return executor_->CanExecute(peer);
  return Fail(ErrorCode::kPeerUnavailable, "this sidecar has no peers");
}

std::unique_ptr<transport::Operation> DelegatedTransfers::Start(
    const std::shared_ptr<const Delegation>& delegation,
    std::shared_ptr<const transport::MovePlan> plan, TimePoint deadline, int priority,
    uint64_t token) {
  auto watcher = std::make_shared<DelegationWatcher>(inbox_, token);
  // Many ranges fold into few segments: they are written out when their turn has come.
  auto make = [delegation, plan, priority] { return ExecutionOf(*delegation, *plan, priority); };
  auto operation = std::make_unique<DelegatedOperation>(delegation, std::move(plan), watcher);
  operation->Run(
      executor_->Execute(delegation->peer, priority, std::move(make), deadline, watcher));
  return operation;
}

bool DelegatedTransfers::Poll(std::vector<uint64_t>* ready_tokens,
                              std::vector<Accepted>* accepted) {
  {
    const MutexLock lock(inbox_->mutex);
    updated_.swap(inbox_->changed);
  }
  const bool any = !updated_.empty();
  for (const auto& watcher : updated_) {
    DelegationWatcher::News news = watcher->Take();
    if (watcher->operation == nullptr) continue;
    if (news.accepted) {
      news.accepted->token = watcher->token;
      accepted->push_back(*news.accepted);
    }
    if (watcher->operation->Update(std::move(news))) ready_tokens->push_back(watcher->token);
  }
  updated_.clear();
  return any;
}

}  // namespace gantry::engine
