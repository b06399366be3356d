// A peer session's queue pairs on the initiating side: connects when there is work, anew after an
// error, and posts the operations' work requests, highest priority first, equal ones in turn.
// Belongs to the engine's driver, but for what says otherwise.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/transport/helper_threads.h"
#include "sidecar/transport/rdma/rdma_connection.h"
#include "sidecar/transport/rdma/rdma_links.h"

namespace gantry::transport {

// What all peers share. Everything outlives them.
struct RdmaCore {
  const RdmaDevices& devices;
  HelperThreads& helpers;
  // Runs it with the driver, soon, or at that time. Any thread; not after the transport is gone.
  std::function<void(std::function<void()> task)> post;
  std::function<void(TimePoint when, std::function<void()> task)> post_at;
  // A connection's completions can be waited for, all or none; or not any more.
  std::function<Status(RdmaConnection& connection)> watch;
  std::function<void(RdmaConnection& connection)> unwatch;
  std::function<void(const Error& why)> count_error;
};

class RdmaPeer : public std::enable_shared_from_this<RdmaPeer> {
 public:
  // `name`: for messages.
  RdmaPeer(const RdmaCore& core, std::string name, std::shared_ptr<QueuePairExchange> exchange);
  RdmaPeer(const RdmaPeer&) = delete;
  RdmaPeer& operator=(const RdmaPeer&) = delete;

  const std::string& name() const { return name_; }
  size_t peer_devices() const { return exchange_->peer_devices().size(); }  // any thread
  uint64_t slice_bytes() const { return core_.devices.SliceBytesTo(exchange_->peer_devices()); }
  // Any thread: why it cannot be reached right now, if that is known.
  Status Usable() const EXCLUDES(mutex_);
  // Any thread: why the last connecting failed, for who asks what works.
  Status Reached() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return last_failure_ ? Fail(*last_failure_) : Status();
  }
  // Any thread. The session is over: every operation on it fails, and nothing connects again.
  void Close(Error why) EXCLUDES(mutex_);
  // Any thread: there are queue pairs here, or will be.
  bool holds_memory() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return holds_memory_;
  }
  // Any thread but the driver's. Returns when its queue pairs touch no memory here any more.
  void AwaitClosed() EXCLUDES(mutex_);

  void Add(RdmaOperation* operation, int priority);
  void Remove(RdmaOperation* operation);  // finished, or going away
  // Ends what is in flight by force, soon: the others' is sent again.
  void Abort();
  // Posts and takes completions; true when anything moved on.
  bool Drive(TimePoint now);
  // Work requests are on their way.
  size_t in_flight() const { return connection_ == nullptr ? 0 : connection_->in_flight(); }
  // Completions are waited for from now on; a connection that cannot breaks.
  void Arm();

 private:
  void Connect(TimePoint now);
  void Connected(Result<std::unique_ptr<RdmaConnection>> made);
  // What the connection does without is told once, and tried again by another one later.
  void NoteLeftOut(TimePoint now);
  bool UsesWhatItMay(TimePoint now) const;
  // The next connection is made later, ever later the more often.
  void PutOff(TimePoint now);
  void HandleFailure(const RdmaConnection::Failure& failure);
  // A device should end its work when its port is down, and does not always.
  void GiveUpLostPorts(TimePoint now, bool moved);
  void AskPorts();
  void GiveUp(const std::string& device);
  // Of a connection that broke by no fault of a work request.
  void HandleBreakdown(TimePoint now);
  // Has lanes made for work that none fits, where there can be some.
  void HandleMisfit(RdmaOperation* operation, const RdmaConnection::Misfit& misfit);
  void FlushWritten();
  bool PostInTurn(TimePoint now);
  bool HasWork() const;
  // Hands the connection to a helper: devices may take for ever. Until TakenDown its memory may be
  // touched, and what is in flight stays so.
  void TakeDown(milliseconds flush);
  void TakenDown(RdmaConnection& connection);
  void EndedAtPeer(uint64_t connection, const Status& said);
  void LeaseIsOver(uint64_t connection);
  // By the peer's word or by the lease of its ends, whichever is first.
  void BecameQuiet();
  std::optional<Error> closed() const EXCLUDES(mutex_);
  void FailAll(const Error& why, bool is_counted);

  const RdmaCore core_;
  const std::string name_;
  const std::shared_ptr<QueuePairExchange> exchange_;

  mutable Mutex mutex_;
  Condition changed_;
  std::optional<Error> closed_ GUARDED_BY(mutex_);
  std::optional<Error> last_failure_ GUARDED_BY(mutex_);  // of connecting, until it works
  TimePoint refused_until_ GUARDED_BY(mutex_){};          // because of it
  bool holds_memory_ GUARDED_BY(mutex_) = false;          // there are queue pairs here

  std::map<int, std::deque<RdmaOperation*>, std::greater<>> operations_;  // by priority
  std::unique_ptr<RdmaConnection> connection_;
  RdmaLinks links_;
  std::map<RdmaOperation*, int> failures_;  // of queue pairs, with work of this in flight
  std::vector<RdmaOperation*> waiting_;     // scratch of PostInTurn: for room
  std::vector<RdmaOperation*> unquiet_;     // wait for the peer's ends of the last connection
  std::vector<uint64_t> unended_;           // connections that the peer may still have
  bool is_connecting_ = false;
  bool is_ending_ = false;          // the last connection is, here or at the peer
  std::optional<uint64_t> ending_;  // it is gone here, and maybe not yet at the peer
  TimePoint stalled_since_{};       // with work in flight of which nothing came back
  bool looks_again_ = false;        // whether it still is
  bool is_asking_ = false;          // devices for their ports
  TimePoint next_attempt_{};
  milliseconds backoff_{0};
  int attempts_ = 0;  // to connect, that failed in a row
};

}  // namespace gantry::transport
