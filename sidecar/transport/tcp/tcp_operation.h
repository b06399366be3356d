// The engine's view of one tcp transfer: the job's state at the last Poll. Used by the driver.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sidecar/transport/tcp/tcp_job.h"
#include "sidecar/transport/tcp/tcp_peer.h"

namespace gantry::transport {

class TcpOperation final : public Operation {
 public:
  TcpOperation(std::shared_ptr<TcpJob> job, std::shared_ptr<TcpPeer> peer)
      : job_(std::move(job)), peer_(std::move(peer)) {
    job_->operation = this;
  }
  ~TcpOperation() override { job_->operation = nullptr; }

  void Stop() override { job_->Stop(); }
  void Abort() override {
    job_->Stop();
    if (peer_ != nullptr) peer_->Abort(job_);
  }
  bool finished() const override { return state_.finished; }
  const std::optional<Error>& error() const override { return state_.error; }
  const Progress& progress() const override {
    if (!state_.finished) state_.progress = job_->Snapshot().progress;
    return state_.progress;
  }
  std::vector<uint32_t> UnfinishedItems() const override { return job_->UnfinishedItems(); }

  // Returns true when the engine has to handle it.
  bool Update() {
    const bool finished = state_.finished;
    const bool failed = state_.error.has_value();
    if (finished) return false;
    state_ = job_->Snapshot();
    return state_.finished || state_.error.has_value() != failed;
  }

 private:
  const std::shared_ptr<TcpJob> job_;
  const std::shared_ptr<TcpPeer> peer_;  // null: it failed at its start
  mutable TcpJob::State state_;
};

}  // namespace gantry::transport
