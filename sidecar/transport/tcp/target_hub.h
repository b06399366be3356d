// The shared state of a TcpServer's connections: settings, tickets and buffers. It lists
// connections by session, so that a session's can be ended. Thread-safe.
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
#include "sidecar/transport/tcp/stream_tickets.h"
#include "sidecar/transport/tcp/tcp_options.h"

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
  StagingHalf* const staging;  // null: GPU memory is not served
  StreamTickets tickets;

  struct Totals {
    std::atomic<uint64_t> accepted{0};     // connections with a valid ticket
    std::atomic<uint64_t> turned_away{0};  // without a ticket, or beyond a limit
    std::atomic<uint64_t> broken{0};       // ended by a protocol violation
    std::atomic<uint64_t> bytes_read{0};   // by peers
    std::atomic<uint64_t> bytes_written{0};
    std::atomic<uint64_t> refused{0};  // requests
  } totals;

  // Adds a connection without a session. Beyond the limit the oldest such connection is closed.
  // Returns false if `stream` must be closed: the server is ending, or no room is free yet.
  bool AddUnauthenticated(const std::shared_ptr<TargetStream>& stream) EXCLUDES(mutex_);
  // Redeems a ticket for the connection and returns its session. A concurrent End either prevents
  // this or also ends this connection.
  Result<std::string> Admit(TargetStream* stream, std::string_view ticket) EXCLUDES(mutex_);
  // The number of slices that the session's connections use for reads staged ahead.
  std::shared_ptr<std::atomic<size_t>> AheadOf(const std::string& session) EXCLUDES(mutex_);
  // Call when the connection touches no memory any more.
  void Remove(TargetStream* stream) EXCLUDES(mutex_);

  // Revokes the session's tickets, closes its connections and waits until they touch no memory.
  // Returns false at the deadline. An empty session ends all connections and admits no new ones.
  bool End(const std::string& session, TimePoint deadline) EXCLUDES(mutex_);
  size_t connections() const EXCLUDES(mutex_);      // with a valid ticket
  size_t unauthenticated() const EXCLUDES(mutex_);  // without a ticket yet
  // Logs at most one line a second, so that a client cannot fill a disk.
  void LogEnd(const std::string& address, bool stranger, const Error& why) EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<TargetStream> stream;
    std::string session;  // empty: no ticket yet
    uint64_t number = 0;  // order of arrival
    bool ending = false;  // being closed to make room
  };
  void MakeRoomForUnauthenticated() REQUIRES(mutex_);
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
