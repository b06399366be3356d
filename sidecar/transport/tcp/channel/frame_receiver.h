// Receives frames from a connection. Headers and control parts go into its own buffer, payloads
// directly to the sink's memory. Used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "sidecar/transport/tcp/channel/scatter_list.h"
#include "sidecar/transport/tcp/channel/socket_channel.h"
#include "sidecar/transport/tcp/channel/tcp_frame.h"

namespace gantry::transport {

// Any error ends the connection.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Called before anything is allocated for the frame.
  virtual Status OnHeader(const FrameHeader& header) = 0;
  // Returns where the payload goes: header.payload_bytes in all, valid until OnFrame. Null discards
  // it.
  virtual Result<ScatterList*> OnControl(const FrameHeader& header,
                                         std::span<const std::byte> control) = 0;
  // False while that list is not filled in yet: nothing more is received until it is.
  virtual bool HasPlace() const { return true; }
  // Called right before each write into that memory; false discards the rest.
  virtual bool MayPlace() = 0;
  struct Outcome {
    bool placed = false;  // every byte is in its place
    bool intact = false;  // the checksum matches, if there was one
  };
  virtual Status OnFrame(const FrameHeader& header, Outcome outcome) = 0;
  // Called between frames; true pauses receiving.
  virtual bool Full() const = 0;
};

class FrameReceiver {
 public:
  FrameReceiver(FrameReader reader, FrameSink& sink) : reader_(reader), sink_(sink) {}

  enum class Next { kBlocked, kFull, kMore };
  // Receives what is available, up to about `bytes_max`.
  Result<Next> Pump(SocketChannel& channel, uint64_t bytes_max);

  // Stops writing to the payload's memory; the rest is discarded.
  void StopPlacing();

  uint64_t received() const { return received_; }
  // True within a frame.
  bool within_frame() const { return state_ != State::kHeader || header_filled_ > 0; }

 private:
  enum class State { kHeader, kControl, kPayload };
  static constexpr int kPartsMax = 256;

  Status FinishWhatIsComplete();
  Status BeginControl();
  Status BeginPayload();
  Status CheckPlace() const;
  Status EndFrame();
  // Fills in where the next bytes go. The next header comes last if the frame ends before it.
  int Places(iovec* parts);
  void Took(size_t bytes);
  bool Complete() const;

  const FrameReader reader_;
  FrameSink& sink_;
  State state_ = State::kHeader;
  FrameHeader header_;
  std::array<std::byte, kFrameHeaderBytes> header_bytes_ = {};
  size_t header_filled_ = 0;  // the next header's, while a frame is being received
  std::vector<std::byte> control_;
  size_t control_filled_ = 0;
  ScatterList* payload_ = nullptr;  // null: discarded
  uint64_t payload_left_ = 0;
  uint64_t received_ = 0;
};

}  // namespace gantry::transport
