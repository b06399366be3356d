// Puts one frame after the other on a connection: header and control part from a buffer of its
// own, the payload straight from memory. Used by one thread at a time.
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
  // REQUIRES !busy(). Fills in the header's sizes and checksums. `payload` stays where it is, and
  // as it is, until the frame is sent; null: none.
  // `checksum`: of the payload, or (in a read) asked for.
  void Begin(FrameHeader header, std::string_view control, ScatterList* payload, bool checksum);

  bool busy() const { return prefix_sent_ < prefix_.size() || payload_ != nullptr; }
  // Sends what it can; kMoved: the frame is gone, whole.
  IoState Pump(SocketChannel& channel);
  uint64_t sent() const { return sent_; }

 private:
  std::string prefix_;  // header and control part
  size_t prefix_sent_ = 0;
  ScatterList* payload_ = nullptr;
  uint64_t sent_ = 0;
};

}  // namespace gantry::transport
