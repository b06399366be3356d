#include "sidecar/transport/tcp/initiator_stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "sidecar/transport/tcp/channel/monotonic_clock.h"
#include "sidecar/transport/tcp/channel/tcp_socket.h"

namespace gantry::transport {
namespace {

// Of one connection before others on the same loop get their turn.
constexpr uint64_t kInitiatorTurnBytes = 4 << 20;
constexpr int kTurnRequests = 16;
constexpr uint64_t kPingId = 0;

constexpr uint64_t kWindowBytesPerMicrosecond = 4'000;

}  // namespace

uint64_t WindowFor(const TcpOptions& options, microseconds round_trip) {
  if (round_trip.count() == 0) return options.window_bytes_max;
  const auto wanted = static_cast<uint64_t>(round_trip.count()) * kWindowBytesPerMicrosecond;
  return std::clamp(wanted, options.window_bytes_min, options.window_bytes_max);
}

InitiatorStream::InitiatorStream(std::shared_ptr<TcpPeer> peer, IoLoop& loop,
                                 WelcomedChannel welcomed)
    : peer_(std::move(peer)),
      loop_(loop),
      channel_(std::move(welcomed.channel)),
      address_(std::move(welcomed.address)),
      version_(welcomed.version),
      requests_max_(std::min(welcomed.requests_max, peer_->options().window_requests)),
      receiver_(FrameReader::kInitiator, *this),
      peer_clock_(welcomed.peer_clock),
      peer_clock_read_at_(welcomed.peer_clock_read_at),
      moved_(Clock::now()) {}

std::string InitiatorStream::Describe() const {
  return "tcp stream to peer '" + peer_->name() + "' at " + address_;
}

void InitiatorStream::Start() {
  loop_.Post([self = shared_from_this()] {
    if (self->closed_) return;
    if (auto added = self->loop_.Add(self->channel_->fd(), EPOLLIN, self); !added) {
      return self->Close(added.error(), false);
    }
    self->started_ = true;
    self->MeasureWindow();
    self->Move();
  });
}

void InitiatorStream::Kick() {
  if (kicked_.exchange(true)) return;
  loop_.Post([self = shared_from_this()] {
    self->kicked_ = false;
    if (self->started_ && !self->closed_) self->Move();
  });
}

void InitiatorStream::BreakIfCarries(std::shared_ptr<TcpJob> job) {
  loop_.Post([self = shared_from_this(), job = std::move(job)] {
    const bool carries =
        std::any_of(self->requests_.begin(), self->requests_.end(),
                    [&](const Request& request) { return request.part.job == job; });
    if (carries) {
      self->Close(Error(ErrorCode::kCancelled, "a transfer on it was ended by force"), true);
    }
  });
}

void InitiatorStream::CloseSoon(Error why) {
  loop_.Post([self = shared_from_this(), why = std::move(why)] { self->Close(why, false); });
}

void InitiatorStream::OnReady(uint32_t) {
  if (!closed_) Move();
}

void InitiatorStream::Move() {
  const uint64_t before = receiver_.received() + sender_.sent();
  auto received = receiver_.Pump(*channel_, kInitiatorTurnBytes);
  if (!received) return Close(received.error(), false);
  TakeMore();
  const IoState sent = Send();
  if (receiver_.received() + sender_.sent() != before) moved_ = Clock::now();
  if (sent == IoState::kEnded) {
    return Close(Error(ErrorCode::kPeerLost, channel_->Why()), false);
  }
  WatchFor(sender_.busy() || begun_ < requests_.size() || channel_->ReceiveWantsSend());
  if (channel_->HasReceived()) Kick();
}

void InitiatorStream::MeasureWindow() {
  window_ = WindowFor(peer_->options(), RoundTripOf(channel_->fd()));
}

void InitiatorStream::TakeMore() {
  while (requests_.size() + unplaced_.size() + copying_out_ < requests_max_ &&
         window_used_ < window_) {
    auto part = peer_->Take(this);
    if (!part) return;
    window_used_ += part->body.bytes;
    if (part->staged != nullptr) {
      Stage(*std::move(part));
    } else {
      Enqueue(*std::move(part));
    }
  }
}

void InitiatorStream::Enqueue(MovePart part) {
  if (requests_.empty()) moved_ = Clock::now();
  requests_.push_back({next_id_++, std::move(part), false, {}});
}

IoState InitiatorStream::Send() {
  for (int i = 0; i < kTurnRequests; ++i) {
    if (!sender_.busy()) {
      if (begun_ == requests_.size()) return IoState::kMoved;
      if (requests_[begun_].part.job->stopped()) {
        TakeBack();
        continue;
      }
      BeginRequest(&requests_[begun_++]);
    }
    const IoState state = sender_.Pump(*channel_);
    if (state != IoState::kMoved) return state;
  }
  return IoState::kMoved;
}

// What is not sent needs no lease: a job that was stopped is quiet the sooner.
void InitiatorStream::TakeBack() {
  Request request = std::move(requests_[begun_]);
  requests_.erase(requests_.begin() + static_cast<ptrdiff_t>(begun_));
  window_used_ -= request.part.body.bytes;
  const std::shared_ptr<TcpJob> job = request.part.job;
  job->Lost(std::move(request.part), Error(ErrorCode::kCancelled, "it was stopped"), {}, true);
  Kick();  // the window has room again
}

void InitiatorStream::BeginRequest(Request* request) {
  const bool write = request->part.job->is_write();
  FrameHeader header;
  header.type = write ? FrameType::kWrite : FrameType::kRead;
  header.request = request->id;
  request->begun = true;
  if (write) {
    // When the peer's clock was read it was at least this; so the lease is over when this side has
    // counted it to its end, whatever the way there takes.
    const TimePoint now = Clock::now();
    const TcpOptions& options = peer_->options();
    const nanoseconds since = now - peer_clock_read_at_;
    header.clock = peer_clock_ + static_cast<uint64_t>((since + options.lease).count());
    request->quiet_from = now + options.lease + options.lease_margin;
  }
  sender_.Begin(header, EncodeRequest(request->part.body, version_),
                write ? &request->part.local : nullptr, peer_->options().checksum);
}

Status InitiatorStream::OnHeader(const FrameHeader& header) {
  // Taken after the header came: the peer's clock is this or later now.
  if (header.type == FrameType::kPong && ping_sent_) return {};
  if (header.type == FrameType::kPong || header.type == FrameType::kWelcome || begun_ == 0 ||
      requests_.front().id != header.request || (begun_ == 1 && sender_.busy())) {
    return Fail(ErrorCode::kMalformedBody, "the peer answers what was not asked");
  }
  const Request& request = requests_.front();
  const bool write = request.part.job->is_write();
  if (header.type == FrameType::kData &&
      (write || header.payload_bytes != request.part.body.bytes ||
       header.status != FrameStatus::kOk)) {
    return Fail(ErrorCode::kMalformedBody, "the peer's answer does not fit what was asked");
  }
  if (header.type == FrameType::kDone && !write && header.status != FrameStatus::kRefused) {
    return Fail(ErrorCode::kMalformedBody, "the peer answers a read without bytes");
  }
  return {};
}

Result<ScatterList*> InitiatorStream::OnControl(const FrameHeader& header,
                                                std::span<const std::byte> control) {
  refusal_.reset();
  if (header.status == FrameStatus::kRefused) {
    ASSIGN_OR_RETURN(refusal_, DecodeProblem(control));
  }
  return header.type == FrameType::kData ? &requests_.front().part.local : nullptr;
}

Status InitiatorStream::OnFrame(const FrameHeader& header, Outcome outcome) {
  peer_clock_ = header.clock;
  peer_clock_read_at_ = Clock::now();
  if (header.type == FrameType::kPong) {
    ping_sent_ = false;
  } else {
    Answered(header, outcome);
  }
  return {};
}

void InitiatorStream::Answered(const FrameHeader& header, Outcome outcome) {
  Request request = std::move(requests_.front());
  requests_.pop_front();
  --begun_;
  window_used_ -= request.part.body.bytes;
  const std::shared_ptr<TcpJob> job = request.part.job;
  if (refusal_) {
    Error error = std::move(*refusal_);
    job->Refused(request.part,
                 std::move(error).WithContext("peer '" + peer_->name() + "' refused"));
    return;
  }
  const bool damaged = header.status == FrameStatus::kDamaged ||
                       (header.type == FrameType::kData && !outcome.intact);
  if (damaged) {
    job->Lost(
        std::move(request.part),
        Error(ErrorCode::kDeviceError, Describe() + ": bytes arrived with another checksum, twice",
              "either the network damages them, or the workload changed them while "
              "they were on their way"),
        {}, false);
    return peer_->Resubmit(job);
  }
  if (header.status == FrameStatus::kLeaseExpired) {
    job->Lost(std::move(request.part),
              Error(ErrorCode::kDeadlineExceeded,
                    Describe() + ": a write took longer than its lease, twice",
                    "the network is too slow for the window: see the tcp settings"),
              {}, false);
    return peer_->Resubmit(job);
  }
  if (request.part.staged != nullptr && !job->is_write()) return Land(std::move(request.part));
  job->Done(request.part);
}

void InitiatorStream::OnTick(TimePoint now) {
  if (closed_) return;
  DropStopped();
  const TcpOptions& options = peer_->options();
  const bool waiting = !requests_.empty() || ping_sent_;
  if (waiting && now - moved_ > options.progress_timeout) {
    return Close(Error(ErrorCode::kPeerLost,
                       "no byte moved for " + std::to_string(options.progress_timeout.count()) +
                           " ms with " + std::to_string(requests_.size()) + " requests under way"),
                 false);
  }
  if (waiting) MeasureWindow();
  if (waiting || sender_.busy() || now - moved_ < options.ping_interval) return;
  FrameHeader ping;
  ping.request = kPingId;
  ping_sent_ = true;
  moved_ = now;
  sender_.Begin(ping, "", nullptr, false);
  Move();
}

void InitiatorStream::WatchFor(bool send) {
  if (send == sends_are_watched_) return;
  sends_are_watched_ = send;
  loop_.Change(channel_->fd(), EPOLLIN | (send ? EPOLLOUT : 0u));
}

void InitiatorStream::Close(const Error& why, bool innocent) {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  loop_.Remove(channel_->fd());
  ::shutdown(channel_->fd(), SHUT_RDWR);
  const Error named = Error(why).WithContext(Describe());
  std::deque<Request> requests = std::exchange(requests_, {});
  begun_ = 0;
  for (auto& [id, part] : std::exchange(unplaced_, {})) Unstage(std::move(part), named);
  std::vector<std::shared_ptr<TcpJob>> jobs;
  for (Request& request : requests) {
    const std::shared_ptr<TcpJob> job = request.part.job;
    if (jobs.empty() || jobs.back() != job) jobs.push_back(job);
    const bool in_doubt = request.begun && job->is_write();
    job->Lost(std::move(request.part), named, in_doubt ? request.quiet_from : TimePoint(),
              innocent || !request.begun);
  }
  peer_->Ended(this, named);
  for (const auto& job : jobs) peer_->Resubmit(job);
}

}  // namespace gantry::transport
