// The initiating side of a peer session's TCP connections. Opens them when there is work, reopens
// them after failures, and assigns them parts of the jobs. Higher priority goes first; equal ones
// take turns. Thread-safe.
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
#include "lib/net/name_lookup.h"
#include "sidecar/transport/helper_threads.h"
#include "sidecar/transport/tcp/channel/io_loop.h"
#include "sidecar/transport/tcp/channel/socket_channel.h"
#include "sidecar/transport/tcp/tcp_job.h"
#include "sidecar/transport/tcp/tcp_options.h"

namespace gantry::transport {

class InitiatorStream;

// Asks a peer where it listens and for tickets to connect. This folder owns the interface; the peer
// API implements it.
class TcpStreamOpener {
 public:
  virtual ~TcpStreamOpener() = default;
  struct Offer {
    std::string host;
    uint16_t port = 0;
    std::vector<std::string> tickets;  // one per connection
    bool tls = false;
    std::string certificate_sha256 = {};  // with TLS: SHA-256 of the peer's certificate, 32 bytes
  };
  // Returns up to `streams` tickets, at least one. Called on a helper thread; may block until the
  // deadline.
  virtual Result<Offer> Open(size_t streams, TimePoint deadline) = 0;
};

// Totals over all peers of a transport, including closed ones.
struct TcpCounts {
  std::atomic<uint64_t> opened{0};
  std::atomic<uint64_t> ended{0};
  std::atomic<uint64_t> failed{0};
};

// Shared by all peers. Everything outlives them.
struct TcpCore {
  TcpOptions options;
  IoLoops& loops;
  HelperThreads& helpers;
  ChannelSecurity* security = nullptr;  // null: plain connections only
  StagingHalf* staging = nullptr;       // null: GPU memory cannot be moved
  std::shared_ptr<TcpCounts> counts = std::make_shared<TcpCounts>();
};

class TcpPeer : public std::enable_shared_from_this<TcpPeer> {
 public:
  // `name` is for messages.
  TcpPeer(const TcpCore& core, std::string name, std::shared_ptr<TcpStreamOpener> opener);
  ~TcpPeer();

  const std::string& name() const { return name_; }
  // The last failure to connect, until the next attempt is due. Transfers use it.
  Status Usable() const EXCLUDES(mutex_);
  // The last failure to connect, until a connection works. Status reports use it.
  Status Reached() const EXCLUDES(mutex_);
  // Opens and closes one connection, so that Reached is known before there is work. Blocks. After a
  // failure it is repeated in the background until something works.
  void Check(TimePoint deadline, const net::Cancelled& cancelled) EXCLUDES(mutex_);

  void Submit(const std::shared_ptr<TcpJob>& job) EXCLUDES(mutex_);
  // Breaks the streams that carry the job; their other requests are sent again.
  void Abort(const std::shared_ptr<TcpJob>& job) EXCLUDES(mutex_);
  // Ends the session: all jobs fail, all streams close, and none opens again.
  void Close(Error why) EXCLUDES(mutex_);
  // Returns when its streams touch no memory any more. Call after Close, not on an I/O thread.
  void AwaitClosed() EXCLUDES(mutex_);

  // Totals over all peers of the transport.
  const TcpCounts& counts() const { return *core_.counts; }

  // These are for its streams.
  std::optional<MovePart> Take(const InitiatorStream* stream) EXCLUDES(mutex_);
  void Ended(InitiatorStream* stream, const Error& why) EXCLUDES(mutex_);
  const TcpOptions& options() const { return core_.options; }
  // Parts of the job came back: wakes streams to take them.
  void Resubmit(const std::shared_ptr<TcpJob>& job) EXCLUDES(mutex_);

 private:
  void OpenIfWanted(TimePoint now) REQUIRES(mutex_);
  void Open() EXCLUDES(mutex_);  // on a helper thread
  Status OpenStreams(size_t count);
  Result<TcpStreamOpener::Offer> RequestOffer(size_t count, TimePoint deadline);
  // Decrements `count` for each stream that it opened.
  Status OpenOffered(const TcpStreamOpener::Offer& offer, size_t* count, TimePoint deadline);
  void Attach(const std::shared_ptr<InitiatorStream>& stream) EXCLUDES(mutex_);
  void OpeningEnded(const Status& outcome) EXCLUDES(mutex_);
  Status CheckOnce(TimePoint deadline, const net::Cancelled& cancelled);
  void CheckLater() REQUIRES(mutex_);
  void CheckAgain() EXCLUDES(mutex_);  // on a helper thread
  Error Unreached(const Error& why) const;
  bool HasJobs() const REQUIRES(mutex_);
  std::vector<std::shared_ptr<TcpJob>> TakeAllJobs() REQUIRES(mutex_);

  const TcpCore core_;
  const std::string name_;
  const std::shared_ptr<TcpStreamOpener> opener_;

  mutable Mutex mutex_;
  Condition stream_ended_;
  std::map<int, std::deque<std::shared_ptr<TcpJob>>, std::greater<>> waiting_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<InitiatorStream>> streams_ GUARDED_BY(mutex_);
  size_t next_kicked_ GUARDED_BY(mutex_) = 0;
  std::optional<Error> closed_ GUARDED_BY(mutex_);
  bool opening_ GUARDED_BY(mutex_) = false;               // a helper thread opens, or will soon
  bool scheduled_ GUARDED_BY(mutex_) = false;             // an attempt is due after the backoff
  std::optional<Error> last_failure_ GUARDED_BY(mutex_);  // of opening, until it works
  bool check_later_ GUARDED_BY(mutex_) = false;           // scheduled or running
  milliseconds backoff_ GUARDED_BY(mutex_){0};
  TimePoint next_attempt_ GUARDED_BY(mutex_){};
};

}  // namespace gantry::transport
