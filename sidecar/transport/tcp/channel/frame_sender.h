// Sends frames over a connection: header and control part from its own buffer, the payload directly
// from memory. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sidecar/transport/tcp/channel/scatter_list.h"
#include "sidecar/transport/tcp/channel/socket_channel.h"
#include "sidecar/transport/tcp/channel/tcp_frame.h"

namespace gantry::transport {

class FrameSender {
 public:
  // Starts a frame and fills in the header's sizes and checksums. REQUIRES !busy(). `payload` must
  // stay unchanged until the frame is sent; null: none. `checksum` adds the payload's checksum or,
  // in a read, requests it.
  void Begin(FrameHeader header, std::string_view control, ScatterList* payload, bool checksum);

  bool busy() const { return prefix_sent_ < prefix_.size() || payload_ != nullptr; }
  // Sends as much as possible; kMoved when the whole frame is sent.
  IoState Pump(SocketChannel& channel);
  uint64_t sent() const { return sent_; }

 private:
  std::string prefix_;  // header and control part
  size_t prefix_sent_ = 0;
  ScatterList* payload_ = nullptr;
  uint64_t sent_ = 0;
};

}  // namespace gantry::transport
