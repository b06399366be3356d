#include "sidecar/transport/bounce/bounce_transport.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "sidecar/transport/bounce/bounce_job.h"
#include "sidecar/transport/bounce/bounce_remote_buffer.h"
#include "sidecar/transport/one_peer.h"
#include "sidecar/transport/rdma/verbs/memory_region_set.h"

namespace gantry::transport {
namespace {

class BounceOperation final : public Operation {
 public:
  explicit BounceOperation(std::shared_ptr<BounceJob> job) : job_(std::move(job)) {}

  void Stop() override { job_->Stop(); }
  void Abort() override { job_->Abort(); }
  bool finished() const override { return job_->finished(); }
  const std::optional<Error>& error() const override { return job_->error(); }
  const Progress& progress() const override { return job_->progress(); }
  std::vector<uint32_t> UnfinishedItems() const override { return job_->UnfinishedItems(); }

 private:
  const std::shared_ptr<BounceJob> job_;
};

bool IsOnGpu(const memory::MappedAllocation& memory) {
  return memory.kind() == wire::MemoryKind::kGpu;
}

}  // namespace

BounceTransport::BounceTransport(RdmaTransport& rdma, Result<Here> here)
    : rdma_(rdma),
      here_(std::move(here)),
      ready_tokens_(std::make_shared<std::vector<uint64_t>>()) {}

std::shared_ptr<RemoteStage> BounceTransport::AddStage(std::string name,
                                                       std::shared_ptr<RdmaPeer> peer,
                                                       std::shared_ptr<StageExchange> exchange,
                                                       const RemoteStage::Times& times) const {
  return std::make_shared<RemoteStage>(rdma_.core(), std::move(name), std::move(peer),
                                       std::move(exchange), times);
}

// Without GPUs on this side it still leads to those of peers.
Status BounceTransport::Probe() { return rdma_.Probe(); }

Status BounceTransport::CanCarry(const LocalSide& local,
                                 const std::vector<RemoteAllocation>& remote) const {
  const bool all_direct = !local.why_not_on_nics &&
                          std::none_of(remote.begin(), remote.end(), &BounceRemoteBuffer::IsStaged);
  if (all_direct) {
    return Fail(ErrorCode::kPathUnavailable,
                "RDMA devices have the buffers of both sides: nothing has to be staged");
  }
  if (local.why_not_on_nics) {
    RETURN_IF_ERROR(CanStage(local));
  }
  for (const auto& nic_memory : local.nic_memory) RETURN_IF_ERROR(rdma_.CanGoThrough(*nic_memory));
  return {};
}

// Of that some is on no RDMA device.
Status BounceTransport::CanStage(const LocalSide& local) const {
  std::unordered_set<const memory::MappedAllocation*> registered;
  for (const auto& one : local.nic_memory) {
    const auto* const set = dynamic_cast<const MemoryRegionSet*>(one.get());
    if (set == nullptr) continue;
    for (const memory::NicPiece& piece : set->pieces()) registered.insert(piece.allocation.get());
  }
  for (const auto& memory : local.allocations) {
    if (IsOnGpu(*memory) || registered.contains(memory.get())) continue;
    return Fail(ErrorCode::kPathUnavailable,
                "RDMA devices do not have the local buffer: " + local.why_not_on_nics->message);
  }
  const Status staged =
      here_ ? here_->half.copier.Usable(wire::MemoryKind::kGpu) : Fail(here_.error());
  if (!staged) return Fail(Error(staged.error()).WithContext("the local buffer is GPU memory"));
  return rdma_.CanGoThrough(*here_->stage.nic_memory);
}

Status BounceTransport::CanReach(const memory::MappedAllocation& /*local*/,
                                 const RemoteAllocation& remote) const {
  const BounceRemoteBuffer* const target = BounceRemoteBuffer::Of(remote);
  if (target == nullptr) {
    return Fail(ErrorCode::kPathUnavailable,
                "the remote buffer is on no RDMA device that leads here, and its owner stages "
                "nothing: it is this sidecar's own, or its peer has no such path");
  }
  if (auto usable = target->stage()->peer()->Usable(); !usable) {
    return Fail(ErrorCode::kPathUnavailable, usable.error().message);
  }
  return BounceRemoteBuffer::IsStaged(remote) ? target->stage()->Usable() : Status();
}

std::unique_ptr<Operation> BounceTransport::Start(std::shared_ptr<const MovePlan> plan,
                                                  int priority, uint64_t token) {
  auto remote = OnePeerOf(*plan, path(), &BounceRemoteBuffer::stage);
  BounceJob::Setup setup{.plan = std::move(plan), .priority = priority, .rdma = rdma_};
  if (remote) setup.remote = *remote;
  if (here_) {
    setup.half = &here_->half;
    setup.stage = here_->stage;
  } else {
    setup.why_no_half = here_.error();
  }
  setup.notify_driver = [tokens = ready_tokens_, token] { tokens->push_back(token); };
  auto job = std::make_shared<BounceJob>(std::move(setup));
  rdma_.core().post([] {});  // the engine asks again, and attends to it
  if (remote) {
    job->Begin();
  } else {
    job->FailWith(std::move(remote).error());
  }
  return std::make_unique<BounceOperation>(std::move(job));
}

PollOutcome BounceTransport::Poll(std::vector<uint64_t>* ready_tokens) {
  const PollOutcome outcome = {.progressed = !ready_tokens_->empty()};
  ready_tokens->insert(ready_tokens->end(), ready_tokens_->begin(), ready_tokens_->end());
  ready_tokens_->clear();
  return outcome;
}

}  // namespace gantry::transport
