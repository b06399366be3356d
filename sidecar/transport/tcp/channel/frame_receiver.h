// Takes frames off a connection: headers and control parts into a buffer of its own, payloads
// straight to where the sink wants them. Used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "sidecar/transport/tcp/channel/scatter_list.h"
#include "sidecar/transport/tcp/channel/socket_channel.h"
#include "sidecar/transport/tcp/channel/tcp_frame.h"

namespace gantry::transport {

// Errors end the connection.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Before anything is allocated for the frame.
  virtual Status OnHeader(const FrameHeader& header) = 0;
  // Says where the payload goes: header.payload_bytes in all, kept until OnFrame; null throws it
  // away.
  virtual Result<ScatterList*> OnControl(const FrameHeader& header,
                                         std::span<const std::byte> control) = 0;
  // Whether that list is filled by now; until it is nothing more is taken.
  virtual bool HasPlace() const { return true; }
  // Asked right before each step into that memory; false: the rest is thrown away.
  virtual bool MayPlace() = 0;
  struct Outcome {
    bool placed = false;  // every byte is where it belongs
    bool intact = false;  // and has its checksum, if one came along
  };
  virtual Status OnFrame(const FrameHeader& header, Outcome outcome) = 0;
  // Asked between frames; true: nothing more is taken for now.
  virtual bool Full() const = 0;
};

class FrameReceiver {
 public:
  FrameReceiver(FrameReader reader, FrameSink& sink) : reader_(reader), sink_(sink) {}

  enum class Next { kBlocked, kFull, kMore };
  // Takes what is there, up to about `bytes_max`.
  Result<Next> Pump(SocketChannel& channel, uint64_t bytes_max);

  // The memory that the payload goes to is not touched any more; the rest is thrown away.
  void StopPlacing();

  uint64_t received() const { return received_; }
  // A frame has begun and not ended.
  bool within_frame() const { return state_ != State::kHeader || header_filled_ > 0; }

 private:
  enum class State { kHeader, kControl, kPayload };
  static constexpr int kPartsMax = 256;

  Status FinishWhatIsComplete();
  Status BeginControl();
  Status BeginPayload();
  Status CheckPlace() const;
  Status EndFrame();
  // Where the next bytes go; the next header is at the end when the frame ends before it.
  int Places(iovec* parts);
  void Took(size_t bytes);
  bool Complete() const;

  const FrameReader reader_;
  FrameSink& sink_;
  State state_ = State::kHeader;
  FrameHeader header_;
  std::array<std::byte, kFrameHeaderBytes> header_bytes_ = {};
  size_t header_filled_ = 0;  // of the next header, when the frame is under way
  std::vector<std::byte> control_;
  size_t control_filled_ = 0;
  ScatterList* payload_ = nullptr;  // null: thrown away
  uint64_t payload_left_ = 0;
  uint64_t received_ = 0;
};

}  // namespace gantry::transport
