// Serves one connection of an initiator: receives requests, sends answers in order. Each request
// resolves its buffers anew and holds them only while its bytes move. It lives on one I/O loop. All
// calls but CloseSoon are made on that loop's thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sidecar/transport/tcp/channel/frame_receiver.h"
#include "sidecar/transport/tcp/channel/frame_sender.h"
#include "sidecar/transport/tcp/channel/io_loop.h"
#include "sidecar/transport/tcp/resolved_target.h"
#include "sidecar/transport/tcp/target_hub.h"

namespace gantry::transport {

class TargetStream final : public IoHandler,
                           private FrameSink,
                           public std::enable_shared_from_this<TargetStream> {
 public:
  TargetStream(std::shared_ptr<TargetHub> hub, IoLoop& loop, std::unique_ptr<SocketChannel> channel,
               std::string address);

  void Start();
  // Any thread.
  void CloseSoon();

  void OnReady(uint32_t events) override;
  void OnTick(TimePoint now) override;

 private:
  struct StagedAnswer;
  struct Answer {
    FrameHeader header;
    std::string control;
    std::optional<RequestBody> read;                 // resolved when it is next to be sent
    size_t bytes = 0;                                // memory that it takes while waiting
    std::shared_ptr<StagedAnswer> staged = nullptr;  // if staged: the copy it waits for
  };
  // An answer that involves staged memory: a read's copy into slices, or a write's copy out of
  // them. Its uses of buffers end with the copy.
  struct StagedAnswer {
    ResolvedTarget target;
    uint64_t written = 0;  // bytes of a write
    TimePoint since;
    bool ready = false;
    std::optional<Error> refusal;
    FrameStatus status = FrameStatus::kOk;
    std::shared_ptr<void> share;  // share of the session's slices, if staged ahead
  };
  // The write that is being received.
  struct Write {
    uint64_t request = 0;
    uint64_t lease_end = 0;  // in nanoseconds of the monotonic clock
    TimePoint begun;
    std::optional<Error> refusal;
    ResolvedTarget target;
    uint64_t number = 0;  // assigned by this side
    bool placed = true;   // false: waits for slices
  };

  Status OnHeader(const FrameHeader& header) override;
  Result<ScatterList*> OnControl(const FrameHeader& header,
                                 std::span<const std::byte> control) override;
  bool HasPlace() const override { return !write_ || write_->placed; }
  bool MayPlace() override;
  Status OnFrame(const FrameHeader& header, Outcome outcome) override;
  bool Full() const override;

  Status OnHello(std::span<const std::byte> control);
  Result<ScatterList*> OnWrite(const FrameHeader& header, std::span<const std::byte> control);
  Status OnRead(const FrameHeader& header, std::span<const std::byte> control);
  void Reply(FrameType type, FrameStatus status, uint64_t request, std::string control);
  void Queue(Answer answer);
  void Refuse(uint64_t request, const Error& error);
  void RefuseWith(const Error& error, Answer* answer);

  // These are for staged memory: of GPUs, and files that can shrink.
  void AwaitSlices();
  void WritePlaced(uint64_t number, SliceLease lease);
  void Apply(Write write);
  void StageRead(ResolvedTarget target, Answer* answer);
  void ReadPlaced(const std::shared_ptr<StagedAnswer>& answer, SliceLease lease);
  void CopyOut(const std::shared_ptr<StagedAnswer>& answer);
  void Copied(const std::shared_ptr<StagedAnswer>& answer, const Status& copied);
  void TakeStaged(Answer* answer);
  // Stages the next reads early, when they are likely to be staged, too.
  void StageAhead();
  // Returns null when the session has its full share.
  std::shared_ptr<void> TakeShare(size_t slices) const;
  // Called after Close: a wait for the connection's end also waits for its copies.
  void EndCopies();

  bool FinishHandshake();
  void Move();
  Status Receive();
  IoState Send();
  // Resolves a front read, or turns it into a refusal. False: it waits for a copy.
  bool FrontIsReady();
  void ResolveRead(Answer* answer);
  // Passes the front answer to the sender. REQUIRES that it is ready.
  void BeginAnswer();
  void Populate(const ResolvedTarget& target);
  bool WantsToReceive() const { return !Full() && HasPlace(); }
  bool HasToSend() const;
  Status CheckTimes(TimePoint now) const;
  void WatchFor(bool receive, bool send);
  void Close(const Error& why);

  const std::shared_ptr<TargetHub> hub_;
  IoLoop& loop_;
  const std::unique_ptr<SocketChannel> channel_;
  const std::string address_;  // for messages
  const TimePoint accepted_;

  bool secured_ = false;
  bool closed_ = false;
  bool last_words_ = false;  // closes once everything is sent
  std::string session_;      // empty: no ticket yet
  // The session's slices staged ahead; null without a session.
  std::shared_ptr<std::atomic<size_t>> ahead_;
  uint32_t watched_ = 0;
  FrameReceiver receiver_;
  FrameSender sender_;
  std::deque<Answer> answers_;
  size_t answer_bytes_ = 0;
  std::optional<Write> write_;
  uint64_t writes_ = 0;
  ResolvedTarget sending_;
  bool reads_staged_ = false;  // the last read was staged: stage the next ones early
  size_t copies_ = 0;          // running copies of staged memory
  TimePoint sending_since_;
  TimePoint moved_in_;
  TimePoint moved_out_;
};

}  // namespace gantry::transport
