// The initiating side of a peer session's queue pairs. Connects when there is work, and again after
// errors. Posts the operations' work requests: higher priority first, equal ones in turn. The
// driver makes all calls, except where a comment says "any thread".
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

// Shared by all peers. Everything outlives them.
struct RdmaCore {
  const RdmaDevices& devices;
  HelperThreads& helpers;
  // Run a task on the driver soon, or at a time. Any thread; not after the transport is gone.
  std::function<void(std::function<void()> task)> post;
  std::function<void(TimePoint when, std::function<void()> task)> post_at;
  // Start waiting for the completions of a connection, for all queues or none; and stop it.
  std::function<Status(RdmaConnection& connection)> watch;
  std::function<void(RdmaConnection& connection)> unwatch;
  std::function<void(const Error& why)> count_error;
};

class RdmaPeer : public std::enable_shared_from_this<RdmaPeer> {
 public:
  // `name` is for messages.
  RdmaPeer(const RdmaCore& core, std::string name, std::shared_ptr<QueuePairExchange> exchange);
  RdmaPeer(const RdmaPeer&) = delete;
  RdmaPeer& operator=(const RdmaPeer&) = delete;

  const std::string& name() const { return name_; }
  size_t peer_devices() const { return exchange_->peer_devices().size(); }  // any thread
  uint64_t slice_bytes() const { return core_.devices.SliceBytesTo(exchange_->peer_devices()); }
  // The last failure to connect, until the next attempt is due. Any thread.
  Status Usable() const EXCLUDES(mutex_);
  // The last failure to connect, until a connection works; for status reports. Any thread.
  Status Reached() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return last_failure_ ? Fail(*last_failure_) : Status();
  }
  // Ends the session: every operation fails and nothing connects again. Any thread.
  void Close(Error why) EXCLUDES(mutex_);
  // True while queue pairs exist here, or are being made. Any thread.
  bool holds_memory() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return holds_memory_;
  }
  // Returns when its queue pairs touch no local memory any more. Any thread except the driver's.
  void AwaitClosed() EXCLUDES(mutex_);

  void Add(RdmaOperation* operation, int priority);
  void Remove(RdmaOperation* operation);  // finished, or about to be destroyed
  // Forcibly ends what is in flight, soon. Work of other operations is sent again.
  void Abort();
  // Posts work and takes completions; returns true when anything progressed.
  bool Drive(TimePoint now);
  // Number of work requests in flight.
  size_t in_flight() const { return connection_ == nullptr ? 0 : connection_->in_flight(); }
  // Requests completion events; a connection that cannot is broken.
  void Arm();

 private:
  void Connect(TimePoint now);
  void Connected(Result<std::unique_ptr<RdmaConnection>> made);
  // Logs once which links the connection lacks, and schedules another connection that tries them.
  void NoteLeftOut(TimePoint now);
  bool UsesWhatItMay(TimePoint now) const;
  // Schedules the next attempt, with growing backoff.
  void PutOff(TimePoint now);
  void HandleFailure(const RdmaConnection::Failure& failure);
  // Breaks connections over ports that are down: devices should end such work, but do not always.
  void GiveUpLostPorts(TimePoint now, bool moved);
  void CheckPorts();
  void GiveUp(const std::string& device);
  // The connection broke without a failed work request.
  void HandleBreakdown(TimePoint now);
  // Connects over other links, if possible, for work that no lane fits.
  void HandleMisfit(RdmaOperation* operation, const RdmaConnection::Misfit& misfit);
  void FlushWritten();
  bool PostInTurn(TimePoint now);
  bool HasWork() const;
  // Passes the connection to a helper thread, since devices may block for ever. Its memory may be
  // touched, and its work counts as in flight, until TakenDown.
  void TakeDown(milliseconds flush);
  void TakenDown(RdmaConnection& connection);
  void EndedAtPeer(uint64_t connection, const Status& said);
  void LeaseIsOver(uint64_t connection);
  // The peer confirmed the end of its queue pairs, or their lease expired.
  void BecameQuiet();
  std::optional<Error> closed() const EXCLUDES(mutex_);
  void FailAll(const Error& why, bool is_counted);

  const RdmaCore core_;
  const std::string name_;
  const std::shared_ptr<QueuePairExchange> exchange_;

  mutable Mutex mutex_;
  Condition changed_;
  std::optional<Error> closed_ GUARDED_BY(mutex_);
  std::optional<Error> last_failure_ GUARDED_BY(mutex_);  // last failure to connect
  TimePoint refused_until_ GUARDED_BY(mutex_){};          // end of the backoff after last_failure_
  bool holds_memory_ GUARDED_BY(mutex_) = false;          // queue pairs exist here

  std::map<int, std::deque<RdmaOperation*>, std::greater<>> operations_;  // by priority
  std::unique_ptr<RdmaConnection> connection_;
  RdmaLinks links_;
  // Queue pair failures with this operation's work in flight.
  std::map<RdmaOperation*, int> failures_;
  std::vector<RdmaOperation*> waiting_;  // scratch of PostInTurn: without room
  std::vector<RdmaOperation*> unquiet_;  // waiting for the end of the last connection at the peer
  std::vector<uint64_t> unended_;        // connections that the peer may still have
  bool is_connecting_ = false;
  bool is_ending_ = false;          // the last connection is ending, here or at the peer
  std::optional<uint64_t> ending_;  // gone here, possibly not yet at the peer
  TimePoint stalled_since_{};       // when work in flight stopped progressing
  bool looks_again_ = false;        // another check is scheduled
  bool is_asking_ = false;          // port queries are running
  TimePoint next_attempt_{};
  milliseconds backoff_{0};
  int attempts_ = 0;  // failed attempts to connect in a row
};

}  // namespace gantry::transport
