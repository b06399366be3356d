#include "sidecar/transport/tcp/channel/frame_sender.h"

#include <algorithm>
#include <array>

#include "sidecar/transport/tcp/channel/crc32c.h"

namespace gantry::transport {
namespace {

constexpr int kPartsMax = 512;

}  // namespace

void FrameSender::Begin(FrameHeader header, std::string_view control, ScatterList* payload,
                        bool checksum) {
  header.control_bytes = static_cast<uint32_t>(control.size());
  header.control_crc = Crc32c(0, control.data(), control.size());
  header.payload_bytes = payload == nullptr ? 0 : static_cast<uint32_t>(payload->total());
  header.has_payload_crc = checksum;
  header.payload_crc = checksum && payload != nullptr ? payload->WholeCrc() : 0;
  prefix_.resize(kFrameHeaderBytes);
  EncodeHeader(header, std::span<std::byte, kFrameHeaderBytes>(
                           reinterpret_cast<std::byte*>(prefix_.data()), kFrameHeaderBytes));
  prefix_ += control;
  prefix_sent_ = 0;
  payload_ = payload;
}

IoState FrameSender::Pump(SocketChannel& channel) {
  std::array<iovec, kPartsMax> parts;
  while (busy()) {
    int count = 0;
    if (prefix_sent_ < prefix_.size()) {
      parts[0] = {prefix_.data() + prefix_sent_, prefix_.size() - prefix_sent_};
      count = 1;
    }
    if (payload_ != nullptr) {
      count += payload_->Fill(parts.data() + count, kPartsMax - count, UINT64_MAX);
    }
    const IoResult result = channel.Send(parts.data(), count);
    if (result.state != IoState::kMoved) return result.state;
    sent_ += result.bytes;
    const size_t of_prefix = std::min(result.bytes, prefix_.size() - prefix_sent_);
    prefix_sent_ += of_prefix;
    if (payload_ == nullptr) continue;
    payload_->Advance(result.bytes - of_prefix, /*crc=*/false);
    if (payload_->done()) payload_ = nullptr;
  }
  return IoState::kMoved;
}

}  // namespace gantry::transport
