#include "sidecar/transport/tcp/tcp_peer.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/tcp/initiator_stream.h"

namespace gantry::transport {
namespace {

constexpr int kOffersMax = 2;  // of one attempt

}  // namespace

TcpPeer::TcpPeer(const TcpCore& core, std::string name, std::shared_ptr<TcpStreamOpener> opener)
    : core_(core), name_(std::move(name)), opener_(std::move(opener)) {}

TcpPeer::~TcpPeer() = default;

Status TcpPeer::Usable() const {
  const MutexLock lock(mutex_);
  if (closed_) return Fail(*closed_);
  // Afterwards it is the next transfer that makes the next attempt.
  if (streams_.empty() && last_failure_ && Clock::now() < next_attempt_) {
    return Fail(*last_failure_);
  }
  return {};
}

Status TcpPeer::Reached() const {
  const MutexLock lock(mutex_);
  if (closed_) return Fail(*closed_);
  if (streams_.empty() && last_failure_) return Fail(*last_failure_);
  return {};
}

Status TcpPeer::CheckOnce(TimePoint deadline, const net::Cancelled& cancelled) {
  ASSIGN_OR_RETURN(const TcpStreamOpener::Offer offer, RequestOffer(1, deadline));
  RETURN_IF_ERROR(OpenChannel(offer, offer.tickets.front(), core_.security, deadline, cancelled));
  return {};
}

void TcpPeer::Check(TimePoint deadline, const net::Cancelled& cancelled) {
  const Status reached = CheckOnce(deadline, cancelled);
  std::optional<Error> news;
  {
    const MutexLock lock(mutex_);
    if (closed_ || (!reached && reached.error().code == ErrorCode::kCancelled)) return;
    if (reached) {
      last_failure_.reset();
      return;
    }
    Error failure = Unreached(reached.error());
    if (!last_failure_) news = failure;
    last_failure_ = std::move(failure);
    CheckLater();
  }
  if (!news) return;
  ++core_.counts->failed;
  log::Warning("no data connection reaches a peer", {{"peer", name_}, {"error", *news}});
}

void TcpPeer::CheckLater() {
  if (std::exchange(check_later_, true)) return;
  core_.loops.Next().PostAt(Clock::now() + core_.options.check_again, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    const MutexLock lock(self->mutex_);
    if (!self->closed_) self->core_.helpers.Run([self] { self->CheckAgain(); });
  });
}

void TcpPeer::CheckAgain() {
  {
    const MutexLock lock(mutex_);
    check_later_ = false;
    if (closed_ || !last_failure_ || opening_ || !streams_.empty()) return;
  }
  Check(Clock::now() + core_.options.check_timeout, [this] {
    const MutexLock lock(mutex_);
    return closed_.has_value();
  });
}

Error TcpPeer::Unreached(const Error& why) const {
  Error error = Error(why).WithContext("no tcp stream to peer '" + name_ + "'");
  // The peer does not know the session any more: what it described is stale.
  if (error.code != ErrorCode::kStaleGeneration) error.code = ErrorCode::kPeerUnavailable;
  return error;
}

bool TcpPeer::HasJobs() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const auto& queue) { return !queue.second.empty(); });
}

void TcpPeer::Submit(const std::shared_ptr<TcpJob>& job) {
  std::optional<Error> closed;
  {
    const MutexLock lock(mutex_);
    closed = closed_;
    if (!closed) {
      waiting_[job->priority()].push_back(job);
      OpenIfWanted(Clock::now());
      // As many as there will be parts for.
      const size_t parts = job->bytes() / job->part_bytes() + 1;
      for (size_t i = 0; i < std::min(parts, streams_.size()); ++i) {
        streams_[next_kicked_++ % streams_.size()]->Kick();
      }
    }
  }
  if (closed) job->Fail(*closed);
}

std::optional<MovePart> TcpPeer::Take(const InitiatorStream* stream) {
  // A job's part is cut under this lock too: streams of one peer take turns.
  const MutexLock lock(mutex_);
  for (auto& [priority, queue] : waiting_) {
    while (!queue.empty()) {
      const std::shared_ptr<TcpJob> job = std::move(queue.front());
      queue.pop_front();
      auto part = job->Take(stream);
      if (job->HasWork()) queue.push_back(job);
      if (part) return part;
    }
  }
  return std::nullopt;
}

void TcpPeer::Resubmit(const std::shared_ptr<TcpJob>& job) {
  {
    const MutexLock lock(mutex_);
    if (!job->HasWork()) return;
    if (!closed_) {
      std::deque<std::shared_ptr<TcpJob>>& queue = waiting_[job->priority()];
      if (std::find(queue.begin(), queue.end(), job) == queue.end()) queue.push_front(job);
      OpenIfWanted(Clock::now());
      for (const auto& stream : streams_) stream->Kick();
      return;
    }
  }
  job->Fail(Usable().error());
}

void TcpPeer::Abort(const std::shared_ptr<TcpJob>& job) {
  if (core_.staging != nullptr) core_.staging->copier.Abort(job.get());
  const MutexLock lock(mutex_);
  for (const auto& stream : streams_) stream->BreakIfCarries(job);
}

std::vector<std::shared_ptr<TcpJob>> TcpPeer::TakeAllJobs() {
  std::vector<std::shared_ptr<TcpJob>> jobs;
  for (auto& [priority, queue] : waiting_) {
    jobs.insert(jobs.end(), queue.begin(), queue.end());
    queue.clear();
  }
  return jobs;
}

void TcpPeer::Close(Error why) {
  std::vector<std::shared_ptr<TcpJob>> jobs;
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = std::move(why);
    jobs = TakeAllJobs();
    for (const auto& stream : streams_) stream->CloseSoon(*closed_);
  }
  for (const auto& job : jobs) job->Fail(Usable().error());
}

void TcpPeer::AwaitClosed() {
  MutexLock lock(mutex_);
  while (!streams_.empty() || opening_) stream_ended_.Wait(lock);
}

void TcpPeer::Ended(InitiatorStream* stream, const Error& why) {
  const MutexLock lock(mutex_);
  core_.counts->ended +=
      std::erase_if(streams_, [&](const auto& entry) { return entry.get() == stream; });
  stream_ended_.NotifyAll();
  if (closed_) return;
  log::Info("a tcp stream ended", {{"peer", name_}, {"error", why}});
  if (HasJobs()) OpenIfWanted(Clock::now());
}

void TcpPeer::OpenIfWanted(TimePoint now) {
  const auto wanted = static_cast<size_t>(std::max(core_.options.streams_per_peer, 1));
  if (closed_ || opening_ || scheduled_ || streams_.size() >= wanted) return;
  if (next_attempt_ <= now) {
    opening_ = true;
    return core_.helpers.Run([self = shared_from_this()] { self->Open(); });
  }
  scheduled_ = true;
  core_.loops.Next().PostAt(next_attempt_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    const MutexLock lock(self->mutex_);
    self->scheduled_ = false;
    self->OpenIfWanted(Clock::now());
  });
}

void TcpPeer::Open() {
  size_t missing = 0;
  {
    const MutexLock lock(mutex_);
    const auto wanted = static_cast<size_t>(std::max(core_.options.streams_per_peer, 1));
    if (!closed_ && streams_.size() < wanted) missing = wanted - streams_.size();
  }
  OpeningEnded(missing == 0 ? Status{} : OpenStreams(missing));
}

Status TcpPeer::OpenStreams(size_t count) {
  const TimePoint deadline = Clock::now() + core_.options.connect_timeout;
  for (int offers = 1;; ++offers) {
    ASSIGN_OR_RETURN(const TcpStreamOpener::Offer offer, RequestOffer(count, deadline));
    Status opened = OpenOffered(offer, &count, deadline);
    // What the peer offered may be out of date when it is used: its certificate was replaced.
    const bool outdated = !opened && opened.error().code == ErrorCode::kUnauthenticated;
    if (!outdated || offers == kOffersMax) return opened;
    log::Info("a peer is asked again how to connect", {{"peer", name_}, {"error", opened.error()}});
  }
}

Result<TcpStreamOpener::Offer> TcpPeer::RequestOffer(size_t count, TimePoint deadline) {
  ASSIGN_OR_RETURN(TcpStreamOpener::Offer offer, opener_->Open(count, deadline));
  if (offer.tickets.empty() || offer.host.empty()) {
    return Fail(ErrorCode::kPeerUnavailable, "it gave no address or no ticket for a connection");
  }
  if (offer.tls && core_.security == nullptr) {
    return Fail(ErrorCode::kPathUnavailable, "the peer takes data connections with TLS alone",
                "give this sidecar certificates too");
  }
  if (!offer.tls && core_.options.tls_required) {
    return Fail(ErrorCode::kPathUnavailable, "the peer takes data connections without TLS alone",
                "start it with --data-tls, or this one without");
  }
  return offer;
}

Status TcpPeer::OpenOffered(const TcpStreamOpener::Offer& offer, size_t* count,
                            TimePoint deadline) {
  for (const std::string& ticket : offer.tickets) {
    if (*count == 0) break;
    ASSIGN_OR_RETURN(WelcomedChannel welcomed,
                     OpenChannel(offer, ticket, core_.security, deadline));
    Attach(std::make_shared<InitiatorStream>(shared_from_this(), core_.loops.Next(),
                                             std::move(welcomed)));
    --*count;
  }
  return {};
}

void TcpPeer::Attach(const std::shared_ptr<InitiatorStream>& stream) {
  const MutexLock lock(mutex_);
  streams_.push_back(stream);
  ++core_.counts->opened;
  stream->Start();
  if (closed_) stream->CloseSoon(*closed_);
}

void TcpPeer::OpeningEnded(const Status& outcome) {
  std::vector<std::shared_ptr<TcpJob>> jobs;
  std::optional<Error> failure;
  {
    const MutexLock lock(mutex_);
    opening_ = false;
    stream_ended_.NotifyAll();
    if (outcome) {
      last_failure_.reset();
      backoff_ = milliseconds(0);
      // One of them may have broken already.
      if (HasJobs()) OpenIfWanted(Clock::now());
      return;
    }
    ++core_.counts->failed;
    backoff_ = std::clamp(backoff_ * 2, core_.options.backoff_min, core_.options.backoff_max);
    next_attempt_ = Clock::now() + backoff_;
    failure = Unreached(outcome.error());
    last_failure_ = failure;
    CheckLater();
    if (streams_.empty()) jobs = TakeAllJobs();
  }
  log::Warning("a tcp stream could not be opened", {{"peer", name_}, {"error", *failure}});
  for (const auto& job : jobs) job->Fail(*failure);
}

}  // namespace gantry::transport
