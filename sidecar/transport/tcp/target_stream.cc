#include "sidecar/transport/tcp/target_stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/tcp/channel/monotonic_clock.h"

namespace gantry::transport {
namespace {

// Of one connection before others on the same loop get their turn.
constexpr uint64_t kTargetTurnBytes = 4 << 20;
constexpr int kTurnAnswers = 16;
// Memory that unanswered requests of one connection take, about.
constexpr size_t kAnswerBytesMax = 512 << 10;

}  // namespace

TargetStream::TargetStream(std::shared_ptr<TargetHub> hub, IoLoop& loop,
                           std::unique_ptr<SocketChannel> channel, std::string address)
    : hub_(std::move(hub)),
      loop_(loop),
      channel_(std::move(channel)),
      address_(std::move(address)),
      accepted_(Clock::now()),
      receiver_(FrameReader::kTarget, *this),
      moved_in_(accepted_),
      moved_out_(accepted_) {}

void TargetStream::Start() {
  if (closed_) return;
  watched_ = EPOLLIN;
  if (auto added = loop_.Add(channel_->fd(), watched_, shared_from_this()); !added) {
    closed_ = true;
    log::Error("a tcp connection could not be served", {{"error", added.error()}});
    hub_->Remove(this);
  }
}

void TargetStream::CloseSoon() {
  loop_.Post([self = shared_from_this()] {
    self->Close(Error(ErrorCode::kShuttingDown, "the session ended"));
  });
}

void TargetStream::OnReady(uint32_t events) {
  if (closed_ || !FinishHandshake()) return;
  Move();
  // epoll says this also of a connection that is not watched, again and again.
  if (!closed_ && watched_ == 0 && (events & (EPOLLERR | EPOLLHUP)) != 0) {
    Close(Error(ErrorCode::kPeerLost, "the other side ended the connection"));
  }
}

bool TargetStream::FinishHandshake() {
  if (secured_) return true;
  const IoResult result = channel_->Handshake();
  if (result.state == IoState::kBlocked) {
    WatchFor(true, channel_->ReceiveWantsSend());
    return false;
  }
  if (result.state == IoState::kEnded) {
    Close(Error(ErrorCode::kUnauthenticated, channel_->Why()));
    return false;
  }
  secured_ = true;
  return true;
}

void TargetStream::Move() {
  const Status received = last_words_ ? Status{} : Receive();
  const IoState sent = closed_ ? IoState::kEnded : Send();
  if (closed_) return;
  if (!received) return Close(received.error());
  if (sent == IoState::kEnded) return Close(Error(ErrorCode::kPeerLost, channel_->Why()));
  if (last_words_ && !sender_.busy() && answers_.empty())
    return Close(Error(ErrorCode::kUnauthenticated, "it was refused"));
  WatchFor(WantsToReceive(), HasToSend() || channel_->ReceiveWantsSend());
  if (channel_->HasReceived() && WantsToReceive()) {
    loop_.Post([self = shared_from_this()] { self->OnReady(0); });
  }
}

Status TargetStream::Receive() {
  const uint64_t before = receiver_.received();
  auto next = receiver_.Pump(*channel_, kTargetTurnBytes);
  if (receiver_.received() != before) moved_in_ = Clock::now();
  if (!next) return Fail(std::move(next).error());
  return {};
}

IoState TargetStream::Send() {
  for (int i = 0; i < kTurnAnswers; ++i) {
    StageAhead();
    if (!sender_.busy()) {
      if (answers_.empty() || !FrontIsReady()) return IoState::kMoved;
      BeginAnswer();
    }
    const uint64_t before = sender_.sent();
    const IoState state = sender_.Pump(*channel_);
    if (sender_.sent() != before) moved_out_ = Clock::now();
    if (state != IoState::kMoved) return state;
    hub_->totals.bytes_read += sending_.memory.total();
    sending_ = {};
  }
  return IoState::kMoved;
}

bool TargetStream::HasToSend() const {
  if (sender_.busy() || answers_.empty()) return sender_.busy();
  const Answer& front = answers_.front();
  return front.staged == nullptr || front.staged->ready;
}

bool TargetStream::FrontIsReady() {
  Answer& front = answers_.front();
  if (front.read && front.staged == nullptr) ResolveRead(&front);
  return front.staged == nullptr || front.staged->ready;
}

void TargetStream::ResolveRead(Answer* answer) {
  auto resolved =
      ResolveTarget(hub_->buffers, session_, *answer->read, /*for_write=*/false, hub_->staging);
  if (!resolved) return RefuseWith(resolved.error(), answer);
  reads_staged_ = resolved->staged != nullptr;
  Populate(*resolved);
  if (reads_staged_) return StageRead(*std::move(resolved), answer);
  sending_ = *std::move(resolved);
}

void TargetStream::BeginAnswer() {
  Answer answer = std::move(answers_.front());
  answers_.pop_front();
  answer_bytes_ -= answer.bytes;
  sending_since_ = moved_out_ = Clock::now();
  if (answer.staged != nullptr) TakeStaged(&answer);
  answer.header.clock = MonotonicNanoseconds();
  ScatterList* payload = answer.header.type == FrameType::kData ? &sending_.memory : nullptr;
  sender_.Begin(answer.header, answer.control, payload, answer.header.has_payload_crc);
}

bool TargetStream::Full() const {
  return last_words_ || answers_.size() >= hub_->options.requests_max ||
         answer_bytes_ >= kAnswerBytesMax;
}

Status TargetStream::OnHeader(const FrameHeader& header) {
  if (session_.empty() == (header.type == FrameType::kHello)) return {};
  return Fail(ErrorCode::kUnauthenticated,
              session_.empty() ? "a request before the ticket" : "a second ticket");
}

Result<ScatterList*> TargetStream::OnControl(const FrameHeader& header,
                                             std::span<const std::byte> control) {
  if (header.type == FrameType::kWrite) return OnWrite(header, control);
  if (header.type == FrameType::kHello) {
    RETURN_IF_ERROR(OnHello(control));
  } else if (header.type == FrameType::kRead) {
    RETURN_IF_ERROR(OnRead(header, control));
  } else {
    Reply(FrameType::kPong, FrameStatus::kOk, header.request, "");
  }
  return nullptr;
}

Status TargetStream::OnRead(const FrameHeader& header, std::span<const std::byte> control) {
  Answer answer;
  answer.header.type = FrameType::kData;
  answer.header.request = header.request;
  answer.header.has_payload_crc = header.has_payload_crc;
  ASSIGN_OR_RETURN(answer.read, DecodeRequest(control));
  answer.bytes = sizeof(Answer) + control.size() * 2;
  Queue(std::move(answer));
  return {};
}

Status TargetStream::OnHello(std::span<const std::byte> control) {
  ASSIGN_OR_RETURN(const HelloBody hello, DecodeHello(control));
  Result<std::string> session =
      hello.version_min > kTcpVersion || hello.version_max < kTcpVersionMin
          ? Fail(ErrorCode::kVersionMismatch,
                 "this sidecar speaks versions " + std::to_string(kTcpVersionMin) + " to " +
                     std::to_string(kTcpVersion) + " of the tcp transport")
          : hub_->Admit(this, hello.ticket);
  if (!session) {
    last_words_ = true;
    Reply(FrameType::kWelcome, FrameStatus::kRefused, 0, EncodeProblem(session.error()));
    return {};
  }
  session_ = *std::move(session);
  ahead_ = hub_->AheadOf(session_);
  WelcomeBody welcome;
  welcome.version = std::min(hello.version_max, kTcpVersion);
  welcome.requests_max = static_cast<uint16_t>(std::min<size_t>(hub_->options.requests_max, 4096));
  Reply(FrameType::kWelcome, FrameStatus::kOk, 0, EncodeWelcome(welcome));
  return {};
}

Result<ScatterList*> TargetStream::OnWrite(const FrameHeader& header,
                                           std::span<const std::byte> control) {
  ASSIGN_OR_RETURN(const RequestBody request, DecodeRequest(control));
  if (request.bytes != header.payload_bytes) {
    return Fail(ErrorCode::kMalformedBody, "a write's ranges and its payload differ in length");
  }
  Write write;
  write.request = header.request;
  write.begun = Clock::now();
  const auto lease_max = std::chrono::nanoseconds(hub_->options.lease_max).count();
  write.lease_end =
      std::min(header.clock, MonotonicNanoseconds() + static_cast<uint64_t>(lease_max));
  write.number = ++writes_;
  auto resolved =
      ResolveTarget(hub_->buffers, session_, request, /*for_write=*/true, hub_->staging);
  if (resolved) {
    write.target = *std::move(resolved);
    Populate(write.target);
  } else {
    write.refusal = std::move(resolved).error();
  }
  write_ = std::move(write);
  if (write_->target.staged != nullptr) AwaitSlices();
  return write_->refusal ? nullptr : &write_->target.memory;
}

bool TargetStream::MayPlace() {
  if (write_ && MonotonicNanoseconds() < write_->lease_end) return true;
  if (write_) {
    write_->target.staged.reset();
    write_->target.uses.clear();
    write_->placed = true;  // it waits for slices no longer
  }
  return false;
}

Status TargetStream::OnFrame(const FrameHeader& header, Outcome outcome) {
  if (header.type != FrameType::kWrite) return {};
  if (write_->target.staged != nullptr && outcome.intact) {
    Apply(*std::exchange(write_, std::nullopt));
    return {};
  }
  write_->target = {};
  if (write_->refusal) {
    Refuse(write_->request, *write_->refusal);
  } else if (!outcome.placed) {
    Reply(FrameType::kDone, FrameStatus::kLeaseExpired, write_->request, "");
  } else if (!outcome.intact) {
    Reply(FrameType::kDone, FrameStatus::kDamaged, write_->request, "");
  } else {
    hub_->totals.bytes_written += header.payload_bytes;
    Reply(FrameType::kDone, FrameStatus::kOk, write_->request, "");
  }
  write_.reset();
  return {};
}

void TargetStream::Reply(FrameType type, FrameStatus status, uint64_t request,
                         std::string control) {
  Answer answer;
  answer.header.type = type;
  answer.header.status = status;
  answer.header.request = request;
  answer.bytes = sizeof(Answer) + control.size();
  answer.control = std::move(control);
  Queue(std::move(answer));
}

void TargetStream::Queue(Answer answer) {
  answer_bytes_ += answer.bytes;
  answers_.push_back(std::move(answer));
}

void TargetStream::Refuse(uint64_t request, const Error& error) {
  ++hub_->totals.refused;
  Reply(FrameType::kDone, FrameStatus::kRefused, request, EncodeProblem(error));
}

void TargetStream::RefuseWith(const Error& error, Answer* answer) {
  ++hub_->totals.refused;
  answer->read.reset();
  answer->header.type = FrameType::kDone;
  answer->header.status = FrameStatus::kRefused;
  answer->control = EncodeProblem(error);
}

void TargetStream::Populate(const ResolvedTarget& target) {
  for (const auto& use : target.uses) {
    for (const auto& allocation : use->allocations()) hub_->helpers.Populate(allocation);
  }
}

Status TargetStream::CheckTimes(TimePoint now) const {
  const TcpServerOptions& options = hub_->options;
  if (session_.empty() && now - accepted_ > options.hello_timeout) {
    return Fail(ErrorCode::kUnauthenticated, "no ticket came in time");
  }
  if (sender_.busy() && now - moved_out_ > options.progress_timeout) {
    return Fail(ErrorCode::kPeerLost, "it does not take its answers");
  }
  if (WantsToReceive() && receiver_.within_frame() && now - moved_in_ > options.progress_timeout) {
    return Fail(ErrorCode::kPeerLost, "it stopped in the middle of a frame");
  }
  // A peer that moves a byte now and then must not hold a buffer for ever.
  const bool read_hangs = !sending_.uses.empty() && now - sending_since_ > options.request_time_max;
  const bool copy_hangs = !answers_.empty() && answers_.front().staged != nullptr &&
                          now - answers_.front().staged->since > options.request_time_max;
  if (read_hangs || copy_hangs || (write_ && now - write_->begun > options.request_time_max)) {
    return Fail(ErrorCode::kPeerLost, "it is too slow: a request took longer than it may");
  }
  if (now - std::max(moved_in_, moved_out_) > options.idle_timeout) {
    return Fail(ErrorCode::kPeerLost, "it said nothing for too long");
  }
  return {};
}

void TargetStream::OnTick(TimePoint now) {
  if (closed_) return;
  if (auto times = CheckTimes(now); !times) return Close(times.error());
  // A lease ends also when no byte comes that would be refused.
  const bool waited = !HasPlace();
  if (write_ && !write_->refusal && !MayPlace()) receiver_.StopPlacing();
  if (waited && HasPlace()) Move();
}

void TargetStream::WatchFor(bool receive, bool send) {
  const uint32_t events = (receive ? EPOLLIN : 0u) | (send ? EPOLLOUT : 0u);
  if (events == watched_) return;
  watched_ = events;
  loop_.Change(channel_->fd(), events);
}

void TargetStream::Close(const Error& why) {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  loop_.Remove(channel_->fd());
  ::shutdown(channel_->fd(), SHUT_RDWR);
  write_.reset();
  sending_ = {};
  answers_.clear();
  // One without a session is turned away, and counted there.
  if (why.code == ErrorCode::kMalformedBody && !session_.empty()) ++hub_->totals.broken;
  if (why.code != ErrorCode::kShuttingDown) hub_->LogEnd(address_, session_.empty(), why);
  if (copies_ == 0) return hub_->Remove(this);
  EndCopies();
}

}  // namespace gantry::transport
