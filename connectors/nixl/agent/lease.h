// One life of an agent's workload at its sidecar. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "connectors/nixl/agent/c_handles.h"
#include "connectors/nixl/agent/nixl_plugin_config.h"
#include "lib/base/clock.h"

namespace gantry::nixl {

struct SidecarInfo {
  std::string name;
  std::string version;
  std::string node_id;
  std::string peer_address;
  std::string tcp_address;
};

class Lease {
 public:
  static Result<std::shared_ptr<Lease>> Open(const PluginConfig& config,
                                             const std::string& workload);

  gantry_client* client() const { return client_.get(); }
  const SidecarInfo& sidecar() const { return sidecar_; }

  // As gantry_client_request. Calls of an engine's step do not ask a silent sidecar.
  Result<std::string> Request(const char* method, const std::string& target,
                              const std::string& body, uint64_t wait_ms) const;

  // A request had no answer in time: for some seconds nothing is asked in an engine's step.
  void NoteSilence() const { silent_until_ = (Clock::now() + kSilence).time_since_epoch(); }
  void NoteAnswer() const { silent_until_ = Clock::duration::zero(); }
  // The outcome of a call of this lease, after it was looked at for silence.
  Status Noted(Status outcome) const;
  bool IsSilent() const { return Clock::now().time_since_epoch() < silent_until_.load(); }

  // Ends it, and the calls that wait. `wait_ms` 0: the sidecar is not asked.
  void Close(uint64_t wait_ms);

 private:
  Lease(Owned<gantry_client> client, SidecarInfo sidecar)
      : client_(std::move(client)), sidecar_(std::move(sidecar)) {}

  static constexpr milliseconds kSilence{5'000};

  const Owned<gantry_client> client_;
  const SidecarInfo sidecar_;
  mutable std::atomic<Clock::duration> silent_until_{};
};

}  // namespace gantry::nixl
