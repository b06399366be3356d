// A peer session's tcp connections on the initiating side: opens them when there is work, opens
// them again after they broke, and hands them parts of the jobs, highest priority first, equal ones
// in turn. Thread-safe.
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

// Where a peer listens, and what lets this side in there. Owned here, implemented by the peer API.
class TcpStreamOpener {
 public:
  virtual ~TcpStreamOpener() = default;
  struct Offer {
    std::string host;
    uint16_t port = 0;
    std::vector<std::string> tickets;  // one for each connection
    bool tls = false;
    std::string certificate_sha256 = {};  // with TLS: 32 bytes, of the one that it shows
  };
  // Up to `streams` tickets, at least one. Called by a thread of this transport; may block up to
  // the deadline.
  virtual Result<Offer> Open(size_t streams, TimePoint deadline) = 0;
};

// Of all peers of a transport, also of those that are gone.
struct TcpCounts {
  std::atomic<uint64_t> opened{0};
  std::atomic<uint64_t> ended{0};
  std::atomic<uint64_t> failed{0};
};

// What all peers share. Everything outlives them.
struct TcpCore {
  TcpOptions options;
  IoLoops& loops;
  HelperThreads& helpers;
  ChannelSecurity* security = nullptr;  // null: plain connections only
  StagingHalf* staging = nullptr;       // null: none, and no memory of GPUs moves
  std::shared_ptr<TcpCounts> counts = std::make_shared<TcpCounts>();
};

class TcpPeer : public std::enable_shared_from_this<TcpPeer> {
 public:
  // `name`: for messages.
  TcpPeer(const TcpCore& core, std::string name, std::shared_ptr<TcpStreamOpener> opener);
  ~TcpPeer();

  const std::string& name() const { return name_; }
  // Why it cannot be reached right now, if that is known.
  Status Usable() const EXCLUDES(mutex_);
  // Why nothing reached it the last time, for who asks what works: unlike Usable this does not wait
  // for the next transfer to find out again.
  Status Reached() const EXCLUDES(mutex_);
  // Makes a connection and closes it, so that Reached knows before there is work. Blocks. After a
  // failure it is repeated now and then, in the background, until something worked.
  void Check(TimePoint deadline, const net::Cancelled& cancelled) EXCLUDES(mutex_);

  void Submit(const std::shared_ptr<TcpJob>& job) EXCLUDES(mutex_);
  // Breaks the streams that carry the job: their other requests are sent again.
  void Abort(const std::shared_ptr<TcpJob>& job) EXCLUDES(mutex_);
  // The session is over: every job on it fails, every stream closes, nothing is opened again.
  void Close(Error why) EXCLUDES(mutex_);
  // Returns when its streams touch no memory any more. After Close, not from an io thread.
  void AwaitClosed() EXCLUDES(mutex_);

  // Of all peers of the transport.
  const TcpCounts& counts() const { return *core_.counts; }

  // For its streams.
  std::optional<MovePart> Take(const InitiatorStream* stream) EXCLUDES(mutex_);
  void Ended(InitiatorStream* stream, const Error& why) EXCLUDES(mutex_);
  const TcpOptions& options() const { return core_.options; }
  // Parts of it came back: somebody should take them.
  void Resubmit(const std::shared_ptr<TcpJob>& job) EXCLUDES(mutex_);

 private:
  void OpenIfWanted(TimePoint now) REQUIRES(mutex_);
  void Open() EXCLUDES(mutex_);  // on a helper thread
  Status OpenStreams(size_t count);
  Result<TcpStreamOpener::Offer> AskForOffer(size_t count, TimePoint deadline);
  // Counts down in `count` what it opened.
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
  bool opening_ GUARDED_BY(mutex_) = false;               // a helper thread is at it, or will be
  bool scheduled_ GUARDED_BY(mutex_) = false;             // for when the backoff is over
  std::optional<Error> last_failure_ GUARDED_BY(mutex_);  // of opening, until it works
  bool check_later_ GUARDED_BY(mutex_) = false;           // scheduled, or running
  milliseconds backoff_ GUARDED_BY(mutex_){0};
  TimePoint next_attempt_ GUARDED_BY(mutex_){};
};

}  // namespace gantry::transport
