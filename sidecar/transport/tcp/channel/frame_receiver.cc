#include "sidecar/transport/tcp/channel/frame_receiver.h"

#include <algorithm>

namespace gantry::transport {
namespace {

// A step is short enough for its bytes to be in the cache when their checksum is made, and for a
// lease to be looked at often.
constexpr uint64_t kStepBytesMax = 256 << 10;
constexpr size_t kThrownAwayBytes = 64 << 10;

std::byte* ThrownAway() {
  static thread_local std::array<std::byte, kThrownAwayBytes> bytes;
  return bytes.data();
}

}  // namespace

Result<FrameReceiver::Next> FrameReceiver::Pump(SocketChannel& channel, uint64_t bytes_max) {
  std::array<iovec, kPartsMax + 1> parts;
  const uint64_t begun_at = received_;
  while (true) {
    RETURN_IF_ERROR(FinishWhatIsComplete());
    if (state_ == State::kHeader && sink_.Full()) return Next::kFull;
    if (received_ - begun_at >= bytes_max) return Next::kMore;
    if (state_ == State::kPayload && payload_ != nullptr) {
      if (!sink_.HasPlace()) return Next::kFull;
      RETURN_IF_ERROR(CheckPlace());
    }
    const IoState fetched = channel.Fetch();
    if (fetched == IoState::kBlocked) return Next::kBlocked;
    if (fetched == IoState::kEnded) return Fail(ErrorCode::kPeerLost, channel.Why());
    if (state_ == State::kPayload && payload_ != nullptr && !sink_.MayPlace()) StopPlacing();
    const int count = Places(parts.data());
    const IoResult result = channel.Receive(parts.data(), count);
    if (result.state == IoState::kBlocked) return Next::kBlocked;
    if (result.state == IoState::kEnded) return Fail(ErrorCode::kPeerLost, channel.Why());
    Took(result.bytes);
  }
}

void FrameReceiver::StopPlacing() { payload_ = nullptr; }

bool FrameReceiver::Complete() const {
  switch (state_) {
    case State::kHeader:
      return header_filled_ == kFrameHeaderBytes;
    case State::kControl:
      return control_filled_ == control_.size();
    case State::kPayload:
      return payload_left_ == 0;
  }
  return false;
}

Status FrameReceiver::FinishWhatIsComplete() {
  while (Complete()) {
    switch (state_) {
      case State::kHeader:
        if (sink_.Full()) return {};
        RETURN_IF_ERROR(BeginControl());
        break;
      case State::kControl:
        RETURN_IF_ERROR(BeginPayload());
        break;
      case State::kPayload:
        RETURN_IF_ERROR(EndFrame());
        break;
    }
  }
  return {};
}

Status FrameReceiver::BeginControl() {
  ASSIGN_OR_RETURN(header_, DecodeHeader(header_bytes_, reader_));
  header_filled_ = 0;
  RETURN_IF_ERROR(sink_.OnHeader(header_));
  control_.resize(header_.control_bytes);
  control_filled_ = 0;
  state_ = State::kControl;
  return {};
}

Status FrameReceiver::BeginPayload() {
  RETURN_IF_ERROR(CheckControl(header_, control_));
  ASSIGN_OR_RETURN(payload_, sink_.OnControl(header_, control_));
  payload_left_ = header_.payload_bytes;
  state_ = State::kPayload;
  return payload_ != nullptr && sink_.HasPlace() ? CheckPlace() : Status();
}

Status FrameReceiver::CheckPlace() const {
  if (payload_->left() == payload_left_) return {};
  return Fail(ErrorCode::kInternal, "a payload does not fit its place");
}

Status FrameReceiver::EndFrame() {
  state_ = State::kHeader;
  FrameSink::Outcome outcome;
  // What was thrown away says nothing.
  outcome.placed = payload_ != nullptr;
  outcome.intact =
      outcome.placed && (!header_.has_payload_crc || payload_->crc() == header_.payload_crc);
  return sink_.OnFrame(header_, outcome);
}

int FrameReceiver::Places(iovec* parts) {
  const iovec next_header = {header_bytes_.data() + header_filled_,
                             kFrameHeaderBytes - header_filled_};
  int count = 0;
  if (state_ == State::kControl) {
    parts[count++] = {control_.data() + control_filled_, control_.size() - control_filled_};
    if (header_.payload_bytes > 0) return count;
  }
  if (state_ == State::kPayload && payload_ == nullptr) {
    parts[0] = {ThrownAway(), std::min<uint64_t>(payload_left_, kThrownAwayBytes)};
    return 1;
  }
  if (state_ == State::kPayload) {
    count = payload_->Fill(parts, kPartsMax, kStepBytesMax);
    uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
    if (bytes < payload_left_) return count;
  }
  parts[count++] = next_header;
  return count;
}

void FrameReceiver::Took(size_t bytes) {
  received_ += bytes;
  if (state_ == State::kControl) {
    const size_t here = std::min(bytes, control_.size() - control_filled_);
    control_filled_ += here;
    bytes -= here;
  } else if (state_ == State::kPayload) {
    const size_t here = std::min<uint64_t>(bytes, payload_left_);
    payload_left_ -= here;
    if (payload_ != nullptr) payload_->Advance(here, header_.has_payload_crc);
    bytes -= here;
  }
  header_filled_ += bytes;
}

}  // namespace gantry::transport
