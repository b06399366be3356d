// What the connections of a TcpServer share: settings, tickets, buffers, and the list of who is
// connected, by session, so that a session's connections can be ended. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/copy/staging_half.h"
#include "sidecar/transport/helper_threads.h"
#include "sidecar/transport/target_buffers.h"
#include "sidecar/transport/tcp/tcp_options.h"
#include "sidecar/transport/tcp/tcp_ticket_book.h"

namespace gantry::transport {

class TargetStream;

class TargetHub {
 public:
  TargetHub(TcpServerOptions options_in, TargetBuffers& buffers_in, HelperThreads& helpers_in,
            StagingHalf* staging_in)
      : options(options_in),
        buffers(buffers_in),
        helpers(helpers_in),
        staging(staging_in),
        tickets(options_in.tickets_per_session_max) {}

  const TcpServerOptions options;
  TargetBuffers& buffers;
  HelperThreads& helpers;
  StagingHalf* const staging;  // null: no memory of GPUs is served
  TcpTicketBook tickets;

  struct Totals {
    std::atomic<uint64_t> accepted{0};     // connections that showed a ticket
    std::atomic<uint64_t> turned_away{0};  // that did not, or for which there was no room
    std::atomic<uint64_t> broken{0};       // ended for something that an honest peer does not say
    std::atomic<uint64_t> bytes_read{0};   // by peers
    std::atomic<uint64_t> bytes_written{0};
    std::atomic<uint64_t> refused{0};  // requests
  } totals;

  // A connection that has no session yet. Where there are too many, the oldest of these gives way.
  // False: close it, as the server ends or those have not gone yet.
  bool AddStranger(const std::shared_ptr<TargetStream>& stream) EXCLUDES(mutex_);
  // It showed a ticket of this session. Redeems the ticket, so that a session that is ended at the
  // same time gets either no connection or one that is ended with it.
  Result<std::string> Admit(TargetStream* stream, std::string_view ticket) EXCLUDES(mutex_);
  // How many slices the session's connections have taken for reads before their turn.
  std::shared_ptr<std::atomic<size_t>> AheadOf(const std::string& session) EXCLUDES(mutex_);
  // It will touch no memory any more.
  void Remove(TargetStream* stream) EXCLUDES(mutex_);

  // Revokes the session's tickets, closes its connections and waits until they touch no memory;
  // false at the deadline. An empty session: all connections, and no new ones.
  bool End(const std::string& session, TimePoint deadline) EXCLUDES(mutex_);
  size_t connections() const EXCLUDES(mutex_);  // that showed a ticket
  size_t strangers() const EXCLUDES(mutex_);    // that did not yet
  // One line a second at most: whoever can connect must not be able to fill a disk.
  void LogEnd(const std::string& address, bool stranger, const Error& why) EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<TargetStream> stream;
    std::string session;  // empty: a stranger
    uint64_t number = 0;  // in the order in which they came
    bool ending = false;  // it gave way
  };
  void MakeRoomForStranger() REQUIRES(mutex_);
  size_t CountOf(const std::string& session) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Condition removed_;
  bool closed_ GUARDED_BY(mutex_) = false;
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;
  std::map<TargetStream*, Entry> entries_ GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<std::atomic<size_t>>> ahead_ GUARDED_BY(mutex_);
  TimePoint last_logged_ GUARDED_BY(mutex_){};
  uint64_t not_logged_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry::transport
