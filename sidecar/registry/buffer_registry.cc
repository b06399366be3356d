#include "sidecar/registry/buffer_registry.h"

#include <utility>

#include "lib/base/log.h"
#include "lib/base/random_id.h"
#include "sidecar/registry/allocation_table.h"
#include "sidecar/registry/buffer_index.h"
#include "sidecar/registry/nonce_check.h"
#include "sidecar/registry/registration_check.h"
#include "sidecar/registry/resolved_request.h"

namespace gantry::registry {
namespace {

constexpr size_t kUsersNamedMax = 4;
constexpr size_t kEverything = static_cast<size_t>(-1);

tl::unexpected<Error> NoBufferWithId(std::string_view id) {
  return Fail(ErrorCode::kNotFound, "there is no buffer with the id '" + std::string(id) + "'",
              "GET /v1/buffers lists those that are registered");
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ", ";
    text += name.empty() ? "(unnamed)" : name;
  }
  return text;
}

// Who keeps the buffer from being released.
Error StillUsed(const Buffer& buffer, const std::vector<std::string>& peers) {
  std::string message = "buffer '" + buffer.description().name + "' (" + buffer.description().id +
                        ") of workload '" + buffer.description().workload + "' is still in use:";
  if (const size_t uses = buffer.uses(); uses != 0) {
    message += " " + std::to_string(uses) + " running uses here (" +
               Joined(buffer.Users(kUsersNamedMax)) + (uses > kUsersNamedMax ? ", ..." : "") + ")";
  }
  if (!peers.empty()) message += " peers that have not confirmed (" + Joined(peers) + ")";
  return {ErrorCode::kDeadlineExceeded, std::move(message),
          "nothing new uses it any more: call again, with a longer drain time"};
}

// `done`: what has become of it nevertheless.
Error KeptByDevices(const Buffer& buffer, std::string_view done, const Error& first) {
  return {ErrorCode::kDeviceError,
          "buffer '" + buffer.description().name + "' (" + buffer.description().id +
              ") of workload '" + buffer.description().workload + "' is " + std::string(done) +
              ", but RDMA devices have not let go of all its memory: " + first.message,
          "its pages stay locked until this sidecar ends: see the log for each region and the "
          "kernel's for the device, and restart the sidecar when the memory is missed"};
}

}  // namespace

BufferRegistry::BufferRegistry(RegistryLimits limits, memory::MemoryMapper& mapper,
                               WorkloadTable& workloads)
    : limits_(limits),
      mapper_(mapper),
      workloads_(workloads),
      id_prefix_(RandomToken().substr(0, 8) + "-"),
      allocations_(std::make_unique<AllocationTable>(mapper)),
      index_(std::make_unique<BufferIndex>()) {}

BufferRegistry::~BufferRegistry() = default;

void BufferRegistry::SetRevocationSink(RevocationSink* sink) { sink_ = sink; }
void BufferRegistry::SetNicRegistrar(memory::NicRegistrar* registrar) { nics_ = registrar; }

Result<BufferRegistry::Buffers> BufferRegistry::Register(const wire::RegistrationRequest& request) {
  ASSIGN_OR_RETURN(std::vector<CheckedBuffer> checked, CheckRegistration(request, limits_));
  ASSIGN_OR_RETURN(const ResolvedRequest resolved,
                   ResolveRequest(request, std::move(checked), workloads_, *allocations_));
  std::vector<Existing> existing;
  {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(existing, FindExisting(request, resolved));
  }
  // Until it is published only `made` holds it: an error here unmaps what was mapped.
  std::vector<RegisteredBuffer> made(request.buffers.size());
  for (size_t i = 0; i < made.size(); ++i) {
    if (existing[i].IsAnswer()) continue;
    auto buffer = MakeBuffer(request, resolved, i, existing[i].buffer.get());
    if (!buffer) return Fail(Below(ElementPointer("buffers", i), std::move(buffer).error()));
    made[i] = *std::move(buffer);
  }
  RETURN_IF_ERROR(CheckNonces(request, resolved, mapper_));
  return Publish(request, resolved, existing, std::move(made));
}

Result<std::vector<BufferRegistry::Existing>> BufferRegistry::FindExisting(
    const wire::RegistrationRequest& request, const ResolvedRequest& resolved) const {
  // A workload leaves its table before its buffers are removed: what is published under this lock
  // while the workload is current is found by that removal.
  if (!workloads_.IsCurrent(request.workload, resolved.workload_generation)) {
    return Fail(ErrorCode::kStaleGeneration,
                "workload '" + request.workload + "' ended during the registration",
                "register the workload again", "/workload");
  }
  std::vector<Existing> existing(request.buffers.size());
  size_t added = 0;
  for (size_t i = 0; i < existing.size(); ++i) {
    const wire::BufferSpec& asked = request.buffers[i];
    auto& [buffer, is_replaced] = existing[i];
    buffer = index_->ByName(request.workload, resolved.workload_generation, asked.name);
    if (buffer == nullptr) {
      ++added;
      continue;
    }
    Status same = CheckSame(*buffer, asked, resolved, i);
    const bool has_memory = !index_->ById(buffer->description().id)->allocations.empty();
    is_replaced = (!same || !has_memory) && MayTakeMemory(*buffer, asked, resolved, i);
    if (!is_replaced && !same) return Fail(std::move(same).error());
  }
  if (added > limits_.buffers_max || index_->size() > limits_.buffers_max - added) {
    return Fail(ErrorCode::kResourceExhausted,
                "there are " + std::to_string(index_->size()) + " buffers, and with " +
                    std::to_string(added) + " more there would be over " +
                    std::to_string(limits_.buffers_max),
                "delete buffers that are not needed any more", "/buffers");
  }
  return existing;
}

Result<RegisteredBuffer> BufferRegistry::MakeBuffer(const wire::RegistrationRequest& request,
                                                    const ResolvedRequest& resolved, size_t buffer,
                                                    const Buffer* replaced) {
  const wire::BufferSpec& asked = request.buffers[buffer];
  RegisteredBuffer made;
  made.allocations = resolved.AllocationsOf(buffer);
  Buffer::Description description;
  Buffer::Allocations mapped;
  mapped.reserve(made.allocations.size());
  for (const auto& record : made.allocations) {
    ASSIGN_OR_RETURN(auto mapping, record->Map());
    mapped.push_back(std::move(mapping));
    description.allocation_ids.push_back(record->id());
  }
  description.id = replaced != nullptr ? replaced->description().id : NextId();
  description.workload = request.workload;
  description.workload_generation = resolved.workload_generation;
  description.name = asked.name;
  description.generation =
      replaced != nullptr ? replaced->description().generation : RandomGeneration();
  description.access = asked.access;
  description.layout = asked.layout;
  description.pieces = resolved.buffers[buffer].pieces;
  ASSIGN_OR_RETURN(Buffer::NicRegistration nic_registration,
                   RegisterOnNics(description.pieces, mapped, description.access));
  made.buffer = std::make_shared<Buffer>(std::move(description), std::move(mapped),
                                         std::move(nic_registration));
  if (!asked.verify.empty()) made.buffer->StopUses(BufferState::kSuspended);
  return made;
}

Result<Buffer::NicRegistration> BufferRegistry::RegisterOnNics(const memory::PieceMap& pieces,
                                                               const Buffer::Allocations& mapped,
                                                               const wire::Access& access) const {
  if (nics_ == nullptr) return Buffer::WithoutNics();
  std::vector<memory::NicPiece> nic_pieces;
  for (const wire::Piece& piece : pieces.pieces()) {
    nic_pieces.push_back({mapped[piece.allocation], piece.offset, piece.length});
  }
  Buffer::NicRegistration registered = nics_->Register(nic_pieces, access);
  if (registered || registered.error().code == ErrorCode::kPathUnavailable) return registered;
  return Fail(std::move(registered).error().WithContext("registering on RDMA devices"));
}

Result<BufferRegistry::Buffers> BufferRegistry::Publish(const wire::RegistrationRequest& request,
                                                        const ResolvedRequest& resolved,
                                                        const std::vector<Existing>& seen,
                                                        std::vector<RegisteredBuffer> made) {
  Buffers buffers(made.size());
  std::vector<RegisteredBuffer> replaced;  // closes descriptors after the lock
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const std::vector<Existing> existing, FindExisting(request, resolved));
  for (size_t i = 0; i < existing.size(); ++i) {
    const bool as_seen = made[i].buffer != nullptr && existing[i].buffer == seen[i].buffer;
    if (existing[i].IsAnswer() || as_seen) continue;
    return Fail(ErrorCode::kConflict,
                "buffer '" + request.buffers[i].name +
                    "' was removed, suspended or resumed during the registration",
                "send the request again", ElementPointer("buffers", i) + "/name");
  }
  for (size_t i = 0; i < existing.size(); ++i) {
    buffers[i] = existing[i].IsAnswer() ? existing[i].buffer : made[i].buffer;
    if (existing[i].IsAnswer()) continue;
    if (closed_) buffers[i]->EndWaits();
    if (existing[i].is_replaced) {
      existing[i].buffer->StopUses(BufferState::kDraining);
      replaced.push_back(index_->Replace(std::move(made[i])));
    } else {
      index_->Publish(std::move(made[i]));
    }
  }
  return buffers;
}

std::string BufferRegistry::NextId() {
  return id_prefix_ + HexOf(next_id_.fetch_add(1, std::memory_order_relaxed)).substr(4);
}

Status BufferRegistry::Remove(std::string_view id, TimePoint deadline,
                              std::vector<PeerRelease>* peers) {
  Buffers removed;
  {
    MutexLock lock(mutex_);
    const RegisteredBuffer* registered = index_->ById(id);
    if (registered == nullptr) return NoBufferWithId(id);
    removed.push_back(registered->buffer);
    index_->Unpublish(*registered->buffer, deadline);
    registered->buffer->StopUses(BufferState::kDraining);
  }
  return FinishRemoval(removed, deadline, peers);
}

Status BufferRegistry::RemoveAll(std::string_view workload, uint64_t workload_generation,
                                 TimePoint deadline) {
  Buffers removed;
  {
    MutexLock lock(mutex_);
    for (const auto& buffer : index_->List(workload, {}, kEverything)) {
      const bool meant = workload_generation == 0 ||
                         buffer->description().workload_generation == workload_generation;
      if (!meant) continue;
      index_->Unpublish(*buffer, deadline);
      buffer->StopUses(BufferState::kDraining);
      removed.push_back(buffer);
    }
  }
  return FinishRemoval(removed, deadline);
}

Status BufferRegistry::FinishRemovals(TimePoint deadline) {
  Buffers draining;
  {
    MutexLock lock(mutex_);
    draining = index_->Overdue(Clock::now());
  }
  return FinishRemoval(draining, deadline);
}

Status BufferRegistry::FinishRemoval(const Buffers& buffers, TimePoint deadline,
                                     std::vector<PeerRelease>* peers) {
  const std::vector<std::vector<std::string>> holding = RevokeAtPeers(buffers, deadline, peers);
  Status first;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& buffer = buffers[i];
    if (!buffer->AwaitUnused(deadline) || !holding[i].empty()) {
      if (first && buffer->state() != BufferState::kGone) {
        first = Fail(StillUsed(*buffer, holding[i]));
      }
      continue;
    }
    Status on_devices;
    if (!buffer->Release(&on_devices)) continue;  // another call did
    if (first && !on_devices) first = Fail(KeptByDevices(*buffer, "deleted", on_devices.error()));
    RegisteredBuffer erased;  // closes descriptors after the lock
    MutexLock lock(mutex_);
    erased = index_->Erase(buffer->description().id);
  }
  return first;
}

std::vector<std::vector<std::string>> BufferRegistry::RevokeAtPeers(
    const Buffers& buffers, TimePoint deadline, std::vector<PeerRelease>* peers) const {
  std::vector<std::vector<std::string>> holding(buffers.size());
  if (sink_ == nullptr || buffers.empty()) return holding;
  const auto releases = sink_->Revoke({buffers.begin(), buffers.end()}, deadline);
  for (size_t i = 0; i < buffers.size(); ++i) {
    holding[i] = PeersThat(PeerOutcome::kHolding, Summary({releases[i]}));
  }
  if (peers != nullptr) *peers = Summary(releases);
  return holding;
}

Status BufferRegistry::Suspend(std::string_view id, TimePoint deadline) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> buffer, ById(id));
  return SuspendAll({buffer}, deadline);
}

Status BufferRegistry::SuspendAll(const Buffers& buffers, TimePoint deadline,
                                  std::vector<PeerRelease>* peers) {
  const auto named = [](const Buffer& buffer) {
    return "buffer '" + buffer.description().id + "'";
  };
  Status first;
  Buffers stopped;
  for (const auto& buffer : buffers) {
    if (buffer->StopUses(BufferState::kSuspended)) {
      stopped.push_back(buffer);
    } else if (first) {
      first = Fail(ErrorCode::kDraining, named(*buffer) + " is being deleted");
    }
  }
  const std::vector<std::vector<std::string>> holding = RevokeAtPeers(stopped, deadline, peers);
  for (size_t i = 0; i < stopped.size(); ++i) {
    const auto& buffer = stopped[i];
    const bool unused = buffer->AwaitUnused(deadline);
    if (buffer->state() == BufferState::kActive) {
      if (first) first = Fail(ErrorCode::kConflict, named(*buffer) + " was resumed meanwhile");
    } else if (!unused || !holding[i].empty()) {
      if (first) first = Fail(StillUsed(*buffer, holding[i]));
    } else {
      Status on_devices;
      buffer->Release(&on_devices);
      if (first && !on_devices) {
        first = Fail(KeptByDevices(*buffer, "suspended", on_devices.error()));
      }
    }
  }
  return first;
}

Status BufferRegistry::Resume(std::string_view id) {
  std::shared_ptr<Buffer> buffer;
  std::vector<std::shared_ptr<AllocationRecord>> records;
  {
    MutexLock lock(mutex_);
    const RegisteredBuffer* registered = index_->ById(id);
    if (registered == nullptr) return NoBufferWithId(id);
    buffer = registered->buffer;
    records = registered->allocations;
  }
  if (buffer->state() == BufferState::kActive) return {};
  if (records.empty()) {
    return Fail(
        ErrorCode::kConflict,
        "buffer '" + buffer->description().name + "' gave its memory up when it was suspended",
        "register the memory that is there now under the same name, with POST /v1/buffers");
  }
  Buffer::Allocations mapped;
  mapped.reserve(records.size());
  for (const auto& record : records) {
    ASSIGN_OR_RETURN(auto mapping, record->Map());
    mapped.push_back(std::move(mapping));
  }
  const Buffer::Description& description = buffer->description();
  ASSIGN_OR_RETURN(Buffer::NicRegistration nic_registration,
                   RegisterOnNics(description.pieces, mapped, description.access));
  {
    // A registration may give it other memory, and then looks at its state under this lock.
    MutexLock lock(mutex_);
    if (buffer->Resume(std::move(mapped), std::move(nic_registration))) return {};
  }
  if (buffer->state() == BufferState::kActive) return {};
  return Fail(ErrorCode::kDraining, "buffer '" + std::string(id) + "' is being deleted");
}

void BufferRegistry::ReleaseMemory(const Buffers& buffers) {
  std::vector<std::vector<std::shared_ptr<AllocationRecord>>> released;  // closes after the lock
  MutexLock lock(mutex_);
  for (const auto& buffer : buffers) {
    if (!buffer->IsAsleep()) continue;
    released.push_back(index_->TakeAllocations(buffer->description().id));
  }
}

void BufferRegistry::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  for (const auto& buffer : index_->List({}, {}, kEverything)) buffer->EndWaits();
}

Result<std::shared_ptr<Buffer>> BufferRegistry::ById(std::string_view id) const {
  MutexLock lock(mutex_);
  const RegisteredBuffer* registered = index_->ById(id);
  if (registered == nullptr) return NoBufferWithId(id);
  return registered->buffer;
}

std::vector<std::shared_ptr<Buffer>> BufferRegistry::List(std::string_view workload,
                                                          std::string_view cursor,
                                                          size_t limit) const {
  MutexLock lock(mutex_);
  return index_->List(workload, cursor, limit);
}

RegistryTotals BufferRegistry::Totals() const {
  RegistryTotals totals;
  const AllocationTable::Totals mapped = allocations_->TotalsNow();
  totals.allocations = mapped.mapped;
  totals.mapped_bytes = mapped.mapped_bytes;
  MutexLock lock(mutex_);
  totals.buffers = index_->size();
  totals.registered_bytes = index_->bytes();
  return totals;
}

}  // namespace gantry::registry
