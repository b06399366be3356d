// A sidecar for the tests of the client alone: speaks the hand-off protocol and answers HTTP as the
// test says. It moves nothing and remembers little. Thread-safe.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/unique_fd.h"
#include "tests/fakes/test_folder.h"

namespace gantry::client {

struct FakeRequest {
  std::string method;
  std::string target;
  std::string head;
  std::string body;
};

class FakeSidecar {
 public:
  // The whole answer with its head; "": close the connection; see Json and Problem below.
  using Handler = std::function<std::string(const FakeRequest& request)>;

  FakeSidecar();
  ~FakeSidecar();
  FakeSidecar(const FakeSidecar&) = delete;
  FakeSidecar& operator=(const FakeSidecar&) = delete;

  std::string run_dir() const { return folder_.path(); }
  std::string api_socket() const { return folder_.File("api.sock"); }

  // Answers instead of the default for targets that start with `prefix`.
  void On(const std::string& prefix, Handler handler);
  // Ends every connection and listens no more, as a killed process does.
  void Kill();
  // Closes the HTTP connections that are open, between requests.
  void CloseConnections();

  std::vector<FakeRequest> requests() const;
  size_t connections_made() const;
  std::vector<struct stat> fds_received() const;
  std::vector<std::string> tokens_released() const;
  // The inode of the descriptor that a token stands for; 0: of none that is kept.
  ino_t InodeOf(const std::string& token) const;
  bool attached() const;

  static std::string Json(int status, const std::string& body);
  static std::string Problem(int status, const std::string& code, const std::string& detail);

 private:
  void Listen(int listener, bool handoff);
  void ServeHttp(int socket);
  void ServeHandoff(int socket);
  std::string Answer(const FakeRequest& request);
  std::string Default(const FakeRequest& request);

  const testing::TestFolder folder_;
  UniqueFd api_;
  UniqueFd handoff_;

  mutable Mutex mutex_;
  bool killed_ GUARDED_BY(mutex_) = false;
  bool attached_ GUARDED_BY(mutex_) = false;
  size_t connections_made_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, Handler> handlers_ GUARDED_BY(mutex_);
  std::vector<FakeRequest> requests_ GUARDED_BY(mutex_);
  std::vector<struct stat> fds_received_ GUARDED_BY(mutex_);
  std::vector<std::string> tokens_released_ GUARDED_BY(mutex_);
  std::map<std::string, ino_t> kept_ GUARDED_BY(mutex_);  // by token
  std::map<int, UniqueFd> sockets_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
  std::vector<std::thread> listeners_;
};

}  // namespace gantry::client
