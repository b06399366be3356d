// One connection of an initiator, served: requests in, bytes and answers out, in their order. Each
// request resolves its buffers anew and holds them only while its bytes move. Lives on one io loop;
// all but CloseSoon belongs to that loop's thread.
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
  // From any thread.
  void CloseSoon();

  void OnReady(uint32_t events) override;
  void OnTick(TimePoint now) override;

 private:
  struct StagedAnswer;
  struct Answer {
    FrameHeader header;
    std::string control;
    std::optional<RequestBody> read;                 // resolved when its turn comes
    size_t bytes = 0;                                // of memory that it takes while it waits
    std::shared_ptr<StagedAnswer> staged = nullptr;  // of memory of a GPU: what it waits for
  };
  // An answer that has to do with memory of a GPU: a read's bytes on their way into slices, or a
  // write's on their way out of them. Its uses end with the copy.
  struct StagedAnswer {
    ResolvedTarget target;
    uint64_t written = 0;  // bytes; of a write
    TimePoint since;
    bool ready = false;
    std::optional<Error> refusal;
    FrameStatus status = FrameStatus::kOk;
    std::shared_ptr<void> share;  // of the session's slices, when it was staged before its turn
  };
  // The write that is being received.
  struct Write {
    uint64_t request = 0;
    uint64_t lease_end = 0;  // ns of the monotonic clock
    TimePoint begun;
    std::optional<Error> refusal;
    ResolvedTarget target;
    uint64_t number = 0;  // of this side
    bool placed = true;   // false: it waits for slices
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

  // Of memory of GPUs.
  void AwaitSlices();
  void WritePlaced(uint64_t number, SliceLease lease);
  void Apply(Write write);
  void StageRead(ResolvedTarget target, Answer* answer);
  void ReadPlaced(const std::shared_ptr<StagedAnswer>& answer, SliceLease lease);
  void CopyOut(const std::shared_ptr<StagedAnswer>& answer);
  void Copied(const std::shared_ptr<StagedAnswer>& answer, const Status& copied);
  void TakeStaged(Answer* answer);
  // The next reads, when it is likely that they are of such memory, too.
  void StageAhead();
  // Null: the session has all that it may have.
  std::shared_ptr<void> TakeShare(size_t slices) const;
  // After Close: who waits for the connection's end waits for the copies.
  void EndCopies();

  bool FinishHandshake();
  void Move();
  Status Receive();
  IoState Send();
  // False: it waits for a GPU. A read is resolved; one that is refused becomes a refusal.
  bool FrontIsReady();
  void ResolveRead(Answer* answer);
  // The front answer goes to the sender. REQUIRES that it is ready.
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
  bool last_words_ = false;                     // close when everything is sent
  std::string session_;                         // empty: no ticket yet
  std::shared_ptr<std::atomic<size_t>> ahead_;  // of the session, when there is one
  uint32_t watched_ = 0;
  FrameReceiver receiver_;
  FrameSender sender_;
  std::deque<Answer> answers_;
  size_t answer_bytes_ = 0;
  std::optional<Write> write_;
  uint64_t writes_ = 0;
  ResolvedTarget sending_;
  bool reads_gpus_ = false;  // the last read was of such memory: the next ones begin early
  size_t copies_ = 0;        // of GPUs, that run
  TimePoint sending_since_;
  TimePoint moved_in_;
  TimePoint moved_out_;
};

}  // namespace gantry::transport
