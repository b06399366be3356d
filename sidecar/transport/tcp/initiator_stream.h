// One connection to a peer: requests out, bytes and answers in, in their order. Takes its next
// request from the peer whenever its window has room. Lives on one io loop; all but Start, Kick,
// BreakIfCarries and CloseSoon belongs to that loop's thread.
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
  uint64_t peer_clock = 0;       // what the peer's clock said
  TimePoint peer_clock_read_at;  // not before that
  uint16_t version = 0;          // that the peer chose
  size_t requests_max = 0;       // that the peer reads before it has answered any
};
// Connects, secures, shows one of the tickets. Blocks up to the deadline; `cancelled` ends the
// connecting.
Result<WelcomedChannel> OpenChannel(const TcpStreamOpener::Offer& offer, const std::string& ticket,
                                    ChannelSecurity* security, TimePoint deadline,
                                    const net::Cancelled& cancelled = {});

class InitiatorStream final : public IoHandler,
                              private FrameSink,
                              public std::enable_shared_from_this<InitiatorStream> {
 public:
  InitiatorStream(std::shared_ptr<TcpPeer> peer, IoLoop& loop, WelcomedChannel welcomed);

  void Start();
  // There may be work. Cheap when the stream knows already.
  void Kick();
  // Breaks the connection if a request of this job is under way on it.
  void BreakIfCarries(std::shared_ptr<TcpJob> job);
  void CloseSoon(Error why);

  void OnReady(uint32_t events) override;
  void OnTick(TimePoint now) override;

 private:
  struct Request {
    uint64_t id = 0;
    MovePart part;
    bool begun = false;    // some of it may have left
    TimePoint quiet_from;  // a write: the peer applies nothing of it any more
  };

  Status OnHeader(const FrameHeader& header) override;
  Result<ScatterList*> OnControl(const FrameHeader& header,
                                 std::span<const std::byte> control) override;
  bool MayPlace() override { return true; }
  Status OnFrame(const FrameHeader& header, Outcome outcome) override;
  bool Full() const override { return false; }

  // Of parts in memory of GPUs: from their slices on, and for writes from their copies on, they are
  // requests as others are; a read that has arrived is copied on after it was one.
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
  // The answer to the oldest request came.
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
  std::deque<Request> requests_;           // the oldest first
  size_t begun_ = 0;                       // of these, from the front
  std::map<uint64_t, MovePart> unplaced_;  // wait for slices
  uint64_t next_unplaced_ = 1;
  size_t copying_out_ = 0;
  uint64_t window_ = 0;
  uint64_t window_used_ = 0;
  uint64_t next_id_ = 1;
  bool ping_sent_ = false;
  std::optional<Error> refusal_;  // in the frame that is being received
  uint64_t peer_clock_;
  TimePoint peer_clock_read_at_;
  TimePoint moved_;
};

}  // namespace gantry::transport
