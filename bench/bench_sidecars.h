// Two sidecars as child processes in a folder of their own. They end with this object, with
// gantry-bench's death however it comes, and with Ctrl-C, which also removes the folder.
// Used by one thread at a time.
#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/bench_options.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"

namespace gantry::bench {

class BenchSidecars {
 public:
  // Blocks SIGINT and SIGTERM in the calling thread: call it before other threads start. Both
  // sidecars are ready when it returns.
  static Result<std::unique_ptr<BenchSidecars>> Start(const BenchOptions& options);
  ~BenchSidecars();

  static constexpr const char* kNames[] = {"local", "remote"};
  std::string RunFolder(int index) const;
  std::string ApiSocket(int index) const { return RunFolder(index) + "/api.sock"; }
  Result<std::string> PeerAddress(int index) const;
  // The costs of copies from /v1/status, by the GPU's UUID.
  Result<nlohmann::json> CopyCosts(int index) const;
  const std::string& folder() const { return folder_; }
  // The end of a sidecar's log, for messages.
  std::string LogTail(int index) const;

 private:
  BenchSidecars(std::string folder, bool keep);
  Status Launch(int index, const BenchOptions& options, const std::string& binary);
  Status AwaitReady(int index);
  void End() EXCLUDES(mutex_);
  void AwaitInterrupt(const std::stop_token& stop);

  const std::string folder_;
  const bool keep_;

  Mutex mutex_;
  std::vector<pid_t> children_ GUARDED_BY(mutex_);
  std::jthread interrupt_watch_;
};

}  // namespace gantry::bench
