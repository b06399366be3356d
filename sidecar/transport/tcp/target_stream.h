// One connection of an initiator, served: requests in, bytes and answers out, in their order. Each
// request resolves its buffers anew and holds them only while its bytes move. Lives on one io loop;
// all but CloseSoon belongs to that loop's thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sidecar/transport/tcp/frame_receiver.h"
#include "sidecar/transport/tcp/frame_sender.h"
#include "sidecar/transport/tcp/io_loop.h"
#include "sidecar/transport/tcp/target_buffers.h"
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
  struct Answer {
    FrameHeader header;
    std::string control;
    std::optional<RequestBody> read;  // resolved when its turn comes
    size_t bytes = 0;                 // of memory that it takes while it waits
  };
  // The write that is being received.
  struct Write {
    uint64_t request = 0;
    uint64_t lease_end = 0;  // ns of the monotonic clock
    TimePoint begun;
    std::optional<Error> refusal;
    ResolvedTarget target;
  };

  Status OnHeader(const FrameHeader& header) override;
  Result<ScatterList*> OnControl(const FrameHeader& header,
                                 std::span<const std::byte> control) override;
  bool MayPlace() override;
  Status OnFrame(const FrameHeader& header, Outcome outcome) override;
  bool Full() const override;

  Status OnHello(std::span<const std::byte> control);
  Result<ScatterList*> OnWrite(const FrameHeader& header, std::span<const std::byte> control);
  Status OnRead(const FrameHeader& header, std::span<const std::byte> control);
  void Reply(FrameType type, FrameStatus status, uint64_t request, std::string control);
  void Queue(Answer answer);
  void Refuse(uint64_t request, const Error& error);

  bool FinishHandshake();
  void Move();
  Status Receive();
  IoState Send();
  // The next answer goes to the sender; a read that is refused becomes a refusal.
  void BeginAnswer();
  void Populate(const ResolvedTarget& target);
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
  bool last_words_ = false;  // close when everything is sent
  std::string session_;      // empty: no ticket yet
  uint32_t watched_ = 0;
  FrameReceiver receiver_;
  FrameSender sender_;
  std::deque<Answer> answers_;
  size_t answer_bytes_ = 0;
  std::optional<Write> write_;
  ResolvedTarget sending_;
  TimePoint sending_since_;
  TimePoint moved_in_;
  TimePoint moved_out_;
};

}  // namespace gantry::transport
