// One connection to a peer: sends requests, receives answers in order. Takes a job's next part when
// its window has room. It lives on one I/O loop. All calls but Start, Kick, BreakIfCarries and
// CloseSoon are made on that loop's thread.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sidecar/transport/tcp/channel/frame_receiver.h"
#include "sidecar/transport/tcp/channel/frame_sender.h"
#include "sidecar/transport/tcp/channel/io_loop.h"
#include "sidecar/transport/tcp/tcp_peer.h"

namespace gantry::transport {

// A connection that the peer has accepted.
struct WelcomedChannel {
  std::unique_ptr<SocketChannel> channel;
  std::string address;           // "10.0.0.7:7201"
  uint64_t peer_clock = 0;       // time of the peer's clock
  TimePoint peer_clock_read_at;  // a time at or before which peer_clock was read
  uint16_t version = 0;          // chosen by the peer
  size_t requests_max = 0;       // unanswered requests that the peer reads
};
// Connects, secures the connection and presents one ticket. Blocks until the deadline; `cancelled`
// ends the attempt.
Result<WelcomedChannel> OpenChannel(const TcpStreamOpener::Offer& offer, const std::string& ticket,
                                    ChannelSecurity* security, TimePoint deadline,
                                    const net::Cancelled& cancelled = {});

class InitiatorStream final : public IoHandler,
                              private FrameSink,
                              public std::enable_shared_from_this<InitiatorStream> {
 public:
  InitiatorStream(std::shared_ptr<TcpPeer> peer, IoLoop& loop, WelcomedChannel welcomed);

  void Start();
  // Signals that there may be work. Cheap when already signalled.
  void Kick();
  // Breaks the connection if a request of this job is in flight on it.
  void BreakIfCarries(std::shared_ptr<TcpJob> job);
  void CloseSoon(Error why);

  void OnReady(uint32_t events) override;
  void OnTick(TimePoint now) override;

 private:
  struct Request {
    uint64_t id = 0;
    MovePart part;
    bool begun = false;    // part of it may have been sent
    TimePoint quiet_from;  // for a write: from then on the peer applies nothing
  };

  Status OnHeader(const FrameHeader& header) override;
  Result<ScatterList*> OnControl(const FrameHeader& header,
                                 std::span<const std::byte> control) override;
  bool MayPlace() override { return true; }
  Status OnFrame(const FrameHeader& header, Outcome outcome) override;
  bool Full() const override { return false; }

  // For parts in GPU memory. A part becomes an ordinary request once it has slices and, for a
  // write, once its bytes are copied. After a read has arrived its bytes are copied to the GPU.
  void Stage(MovePart part);
  void Placed(uint64_t id, SliceLease lease);
  void CopyOut(MovePart part);
  void CopiedOut(MovePart part, const Status& copied);
  void Land(MovePart part);
  void Unstage(MovePart part, const Error& why);
  void DropStopped();

  void Move();
  void Enqueue(MovePart part);
  void MeasureWindow();
  void TakeMore();
  IoState Send();
  void TakeBack();
  void BeginRequest(Request* request);
  // Handles the answer to the oldest request.
  void Answered(const FrameHeader& header, Outcome outcome);
  void WatchFor(bool send);
  void Close(const Error& why, bool innocent);
  std::string Describe() const;

  const std::shared_ptr<TcpPeer> peer_;
  IoLoop& loop_;
  const std::unique_ptr<SocketChannel> channel_;
  const std::string address_;
  const uint16_t version_;
  const size_t requests_max_;

  std::atomic<bool> kicked_{false};
  bool started_ = false;
  bool closed_ = false;
  bool sends_are_watched_ = false;
  FrameReceiver receiver_;
  FrameSender sender_;
  std::deque<Request> requests_;           // oldest first
  size_t begun_ = 0;                       // number begun, from the front
  std::map<uint64_t, MovePart> unplaced_;  // waiting for slices
  uint64_t next_unplaced_ = 1;
  size_t copying_out_ = 0;
  uint64_t window_ = 0;
  uint64_t window_used_ = 0;
  uint64_t next_id_ = 1;
  bool ping_sent_ = false;
  std::optional<Error> refusal_;  // from the frame that is being received
  uint64_t peer_clock_;
  TimePoint peer_clock_read_at_;
  TimePoint moved_;
};

}  // namespace gantry::transport
