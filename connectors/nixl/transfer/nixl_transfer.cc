#include "connectors/nixl/transfer/nixl_transfer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "connectors/nixl/agent/peer_agents.h"
#include "connectors/nixl/transfer/nixl_status.h"
#include "connectors/nixl/transfer/quiet_time.h"
#include "lib/base/url_escape.h"
#include "lib/codec/body_fields.h"
#include "lib/wire/session_times.h"

namespace gantry::nixl {
namespace {

// How long a release waits: the first one, and those after it, when a sidecar's limit has passed.
constexpr milliseconds kFirstStop{10};
constexpr milliseconds kLaterStop = wire::kQuiesceMax + wire::kExecutionMargin;

// Small transfers are over within the request that begins them.
constexpr uint64_t kSmallBytes = 1 << 20;
constexpr uint64_t kSmallWaitMs = 1;

// A transfer is looked at again after an eighth of its age.
constexpr int kLookShare = 8;
constexpr milliseconds kLookMax{5};
constexpr milliseconds kUnclearLook{100};

// The meaning of an error in the place of an answer about a transfer.
enum class Verdict {
  kLost,     // the sidecar is gone, or the lease: nothing more will be heard of the transfer
  kSilent,   // no answer in time
  kUnclear,  // this process, or the answer, was the cause: nothing is known
  kAnswer,   // the sidecar refused, or knows no such transfer
};

Verdict VerdictOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kSidecarLost:
    case ErrorCode::kCancelled:  // the client was closed
      return Verdict::kLost;
    case ErrorCode::kDeadlineExceeded:
      return Verdict::kSilent;
    case ErrorCode::kInternal:
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kVersionMismatch:
      return Verdict::kUnclear;
    default:
      return Verdict::kAnswer;
  }
}

// Why the notification of a transfer that succeeded did not arrive; nothing: it did.
std::optional<Error> NotificationError(const gantry_transfer* transfer) {
  static constexpr std::array<std::string_view, 3> kKeys = {"notified", "code", "detail"};
  const Owned<char> json(gantry_transfer_json(transfer));
  if (json == nullptr) return std::nullopt;
  const auto fields = wire::BodyFields::Read(json.get(), kKeys);
  if (!fields || fields->Flag("notified")) return std::nullopt;
  return Error(ErrorCodeByName(fields->Text("notify_error/code")),
               fields->Text("notify_error/detail"));
}

}  // namespace

Status NixlTransfer::Submit(Post post) {
  const MutexLock lock(mutex_);
  if (state_ != State::kIdle)
    return Fail(ErrorCode::kConflict, "the transfer of before is not over");
  if (post.lease == nullptr)
    return Fail(ErrorCode::kSidecarLost, "the sidecar is lost, and is not back yet");
  if (post.lease->IsSilent())
    return Fail(ErrorCode::kSidecarLost, "the sidecar gave no answer in time a moment ago");
  post_ = std::move(post);
  transfer_ = nullptr;
  was_stopped_ = false;
  last_ = {};
  posted_ = next_look_ = Clock::now();
  return Send();
}

Status NixlTransfer::Send() {
  gantry_transfer_spec spec = {};
  spec.id = post_.id.c_str();
  spec.operation = operation_ == Operation::kWrite ? GANTRY_WRITE : GANTRY_READ;
  spec.deadline_ms = config_.deadline_ms;
  if (!config_.require_path.empty()) spec.require_path = config_.require_path.c_str();
  const gantry_message message = {post_.target.workload.c_str(), post_.message.data(),
                                  post_.message.size(), nullptr};
  if (!post_.message.empty()) spec.notify = &message;
  auto sent = post_.view != nullptr ? SendBlocks(spec) : SendRanges(spec);
  if (sent) {
    transfer_ = *std::move(sent);
    state_ = State::kRunning;
    return {};
  }
  const Verdict verdict = VerdictOf(sent.error().code);
  // A first request that the sidecar refused began nothing. After another failure it may have.
  const bool may_move = state_ == State::kUnanswered || verdict != Verdict::kAnswer;
  if (may_move && (verdict == Verdict::kLost || verdict == Verdict::kSilent)) {
    // The same id asks again, and begins nothing twice.
    state_ = State::kUnanswered;
    NoteFailure(sent.error());
    return {};
  }
  if (may_move && !EndById()) return {};
  state_ = State::kIdle;
  return Fail(std::move(sent).error());
}

bool NixlTransfer::EndById() {
  static constexpr std::array<std::string_view, 1> kKeys = {"state"};
  static constexpr std::array<std::string_view, 4> kOver = {"succeeded", "failed", "cancelled",
                                                            "expired"};
  state_ = State::kUnanswered;
  const auto answer = post_.lease->Request("DELETE",
                                           "/v1/transfers/" + UrlEscape(post_.id) + "?workload=" +
                                               UrlEscape(post_.workload) + "&wait_ms=0",
                                           "", 0);
  if (!answer) {
    if (answer.error().code == ErrorCode::kNotFound) return true;
    NoteFailure(answer.error());
    return false;
  }
  const auto fields = wire::BodyFields::Read(*answer, kKeys);
  next_look_ = Clock::now() + kUnclearLook;
  return fields && std::count(kOver.begin(), kOver.end(), fields->Text("state")) > 0;
}

Result<Owned<gantry_transfer>> NixlTransfer::SendRanges(gantry_transfer_spec spec) {
  const std::string peer = PeerNameOf(post_.target, *post_.lease);
  const std::string prefix = (peer.empty() ? "" : peer + "/") + post_.target.workload + "/";
  std::vector<std::string> references;
  std::vector<const char*> remote;
  references.reserve(ranges_.remote.size());
  remote.reserve(ranges_.remote.size());
  for (const std::string& buffer : ranges_.remote) references.push_back(prefix + buffer);
  for (const std::string& reference : references) remote.push_back(reference.c_str());
  std::vector<BufferHandle> buffers;
  std::vector<gantry_buffer*> local;
  for (const LocalMemoryPointer& memory : ranges_.local) {
    buffers.push_back(memory->BufferAt(post_.lease));
    if (buffers.back() == nullptr)
      return Fail(ErrorCode::kUnregistered, "memory of this agent is not registered now", {},
                  "local");
    local.push_back(buffers.back().get());
  }
  static constexpr uint64_t kNoBlock = 0;
  spec.local = local.data();
  spec.local_count = local.size();
  spec.remote = remote.data();
  spec.remote_count = remote.size();
  if (ranges_.ranges.empty()) {
    spec.local_blocks = spec.remote_blocks = &kNoBlock;
  } else {
    spec.ranges = ranges_.ranges.data();
    spec.range_count = ranges_.ranges.size();
  }
  return SendSpec(spec);
}

Result<Owned<gantry_transfer>> NixlTransfer::SendBlocks(gantry_transfer_spec spec) {
  std::vector<gantry_block_group> groups;
  for (const BlockGroup& group : blocks_->groups) {
    gantry_block_group named = {};
    named.group = static_cast<uint32_t>(groups.size());
    named.local_blocks = group.local_blocks.data();
    named.local_count = group.local_blocks.size();
    named.remote_blocks = group.remote_blocks.data();
    named.remote_count = group.remote_blocks.size();
    groups.push_back(named);
  }
  spec.view = post_.view.get();
  spec.groups = groups.data();
  spec.group_count = groups.size();
  return SendSpec(spec);
}

Result<Owned<gantry_transfer>> NixlTransfer::SendSpec(const gantry_transfer_spec& spec) {
  gantry_transfer* sent = nullptr;
  const uint64_t wait_ms = ranges_.bytes <= kSmallBytes ? kSmallWaitMs : 0;
  RETURN_IF_ERROR(Take(gantry_transfer_submit(post_.lease->client(), &spec, wait_ms, &sent)));
  return Owned<gantry_transfer>(sent);
}

std::optional<TransferEnd> NixlTransfer::Look() {
  const MutexLock lock(mutex_);
  const TimePoint now = Clock::now();
  if (state_ == State::kIdle || now < next_look_) return std::nullopt;
  if (state_ == State::kLost)
    return End(Error(ErrorCode::kSidecarLost, "the sidecar was lost during the transfer"));
  if (post_.lease->IsSilent()) return std::nullopt;
  if (state_ == State::kUnanswered) {
    if (Status sent = Send(); !sent) return End(std::move(sent).error());
    return std::nullopt;
  }
  return LookAtRunning();
}

std::optional<TransferEnd> NixlTransfer::LookAtRunning() {
  gantry_transfer_status status = {};
  status.state = -1;
  Status waited = Take(gantry_transfer_wait(transfer_.get(), 0, &status));
  if (status.state < 0) {
    NoteFailure(waited.error());
    // A sidecar forgets no transfer that moves bytes.
    if (waited.error().code != ErrorCode::kNotFound) return std::nullopt;
    return End(Error(ErrorCode::kInternal, "the sidecar does not know any more how it ended"));
  }
  post_.lease->NoteAnswer();
  last_ = status;
  if (status.state < GANTRY_SUCCEEDED) {
    const auto now = Clock::now();
    next_look_ = now + std::min<Clock::duration>((now - posted_) / kLookShare, kLookMax);
    return std::nullopt;
  }
  if (!waited) return End(std::move(waited).error());
  return End(post_.message.empty() ? std::nullopt : NotificationError(transfer_.get()));
}

void NixlTransfer::NoteFailure(const Error& error) {
  next_look_ = Clock::now() + kUnclearLook;
  const Verdict verdict = VerdictOf(error.code);
  if (verdict == Verdict::kSilent) post_.lease->NoteSilence();
  if (verdict != Verdict::kLost) return;
  next_look_ = Clock::now() + QuietTimeAfterLoss(operation_, last_.executor, last_.path);
  state_ = State::kLost;
}

TransferEnd NixlTransfer::End(std::optional<Error> error) {
  state_ = State::kIdle;
  TransferEnd end;
  if (error) end.status = StatusOf(*error);
  end.error = std::move(error);
  end.path = last_.path;
  end.took = std::chrono::duration_cast<microseconds>(Clock::now() - posted_);
  return end;
}

bool NixlTransfer::Stop() {
  const MutexLock lock(mutex_);
  const milliseconds wait = was_stopped_ ? kLaterStop : kFirstStop;
  if (state_ == State::kIdle) return true;
  was_stopped_ = true;
  Cancel(wait);
  if (state_ == State::kLost && next_look_ - Clock::now() <= wait) {
    std::this_thread::sleep_until(next_look_);
    state_ = State::kIdle;
  }
  return state_ == State::kIdle;
}

void NixlTransfer::Hold() {
  const MutexLock lock(mutex_);
  self_ = shared_from_this();
}

void NixlTransfer::Drop() {
  std::shared_ptr<NixlTransfer> last;  // ends after the lock
  const MutexLock lock(mutex_);
  last.swap(self_);
}

bool NixlTransfer::was_refused() const {
  const MutexLock lock(mutex_);
  return was_stopped_;
}

bool NixlTransfer::StopSoon() {
  const MutexLock lock(mutex_);
  if (state_ == State::kIdle || !was_stopped_) return true;
  Cancel(milliseconds(0));
  if (state_ == State::kLost && Clock::now() >= next_look_) state_ = State::kIdle;
  return state_ == State::kIdle;
}

void NixlTransfer::Cancel(milliseconds wait) {
  if (post_.lease == nullptr || post_.lease->IsSilent()) return;
  // A transfer that the sidecar may have got, without an answer, is known after this.
  if (state_ == State::kUnanswered) static_cast<void>(Send());
  if (state_ != State::kRunning) return;
  gantry_transfer_status status = {};
  status.state = -1;
  const auto wait_ms = static_cast<uint64_t>(wait.count());
  const Status asked = Take(gantry_transfer_cancel(transfer_.get(), wait_ms, &status));
  if (!asked && status.state < 0) NoteFailure(asked.error());
  const bool is_forgotten = !asked && asked.error().code == ErrorCode::kNotFound;
  if (is_forgotten || status.state >= GANTRY_SUCCEEDED) state_ = State::kIdle;
}

std::string NixlTransfer::SlowPathReasons() const {
  static constexpr std::array<std::string_view, 3> kKeys = {"path", "available", "reason"};
  const MutexLock lock(mutex_);
  if (transfer_ == nullptr) return "";
  const Owned<char> json(gantry_transfer_json(transfer_.get()));
  const auto fields = json == nullptr ? std::nullopt : wire::BodyFields::Read(json.get(), kKeys);
  std::string reasons;
  for (size_t i = 0; fields; ++i) {
    const std::string at = "paths/" + std::to_string(i) + "/";
    const std::string path = fields->Text(at + "path");
    if (path.empty() || path == last_.path) break;
    reasons += (reasons.empty() ? "" : "; ") + path + ": " + fields->Text(at + "reason");
  }
  return reasons;
}

bool NixlTransfer::is_active() const {
  const MutexLock lock(mutex_);
  return state_ != State::kIdle;
}

}  // namespace gantry::nixl
