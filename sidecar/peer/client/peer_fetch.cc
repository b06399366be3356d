// The half of PeerLink that callers of Acquire run: describe what is missing, map it where it is to
// be moved, publish it.
#include <algorithm>
#include <iterator>
#include <utility>

#include "sidecar/peer/client/buffer_import.h"
#include "sidecar/peer/client/peer_link.h"

namespace gantry::peer {
namespace {

// For what the owner shows again while its revocation is still being acknowledged: after a resume.
constexpr milliseconds kAcknowledgementWait{250};
// More than what a link waits for what its last session left.
constexpr milliseconds kReturnWait{2'500};

bool IsOutOfReach(const Error& error) {
  return error.code == ErrorCode::kPathUnavailable || error.code == ErrorCode::kNotFound;
}

bool MayBeMapped(const wire::PeerBuffer& buffer) {
  return buffer.paths[static_cast<size_t>(wire::Path::kIpc)].available ||
         buffer.paths[static_cast<size_t>(wire::Path::kShm)].available;
}

// A session or ticket that the peer does not know any more is no failure of the caller to say who
// it is: what was described has been taken back meanwhile.
tl::unexpected<Error> FailureOf(const std::string& peer, Error error) {
  if (error.code == ErrorCode::kUnauthenticated) {
    error.code = ErrorCode::kStaleGeneration;
    error.hint = "submit again: the buffer was being deleted or registered anew";
  }
  return Fail(std::move(error).WithContext("peer '" + peer + "'"));
}

}  // namespace

// Holds the peer's only fetch: those who want the same buffers wait for it and find them there.
class PeerLink::FetchTurn {
 public:
  explicit FetchTurn(PeerLink& link) : link_(link) {}
  FetchTurn(const FetchTurn&) = delete;
  FetchTurn& operator=(const FetchTurn&) = delete;
  ~FetchTurn() {
    if (session_ == nullptr) return;
    {
      const MutexLock lock(link_.mutex_);
      link_.fetching_ = false;
      link_.changed_.NotifyAll();
    }
    link_.bell_->Ring();  // a revocation may have waited for it
  }

  Status Begin(TimePoint deadline) {
    MutexLock lock(link_.mutex_);
    while (link_.fetching_ && !link_.stopping_) {
      if (!link_.changed_.WaitUntil(lock, deadline)) {
        return Fail(ErrorCode::kDeadlineExceeded, "waiting to map buffers of the peer");
      }
    }
    if (link_.stopping_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
    if (link_.session_ == nullptr || link_.closing_) return Fail(link_.NotUp());
    link_.fetching_ = true;
    ++link_.last_fetch_;
    session_ = link_.session_;
    session_->revoked = 0;
    return {};
  }
  Session& session() const { return *session_; }

 private:
  PeerLink& link_;
  std::shared_ptr<Session> session_;
};

Result<std::vector<PeerLink::Handle>> PeerLink::Acquire(
    const std::vector<wire::BufferReference>& references, engine::RemoteUse use,
    TimePoint deadline) {
  const TimePoint wait_until = std::min(deadline, Clock::now() + kAcknowledgementWait);
  for (;;) {
    uint64_t revoked = 0;
    auto handles = AcquireOnce(references, use, deadline, &revoked);
    if (handles || revoked == 0 || !AwaitAcknowledged(revoked, wait_until)) return handles;
  }
}

bool PeerLink::AwaitAcknowledged(uint64_t generation, TimePoint deadline) {
  MutexLock lock(mutex_);
  while (IsRevoked(generation)) {
    if (stopping_ || !changed_.WaitUntil(lock, deadline)) return false;
  }
  return true;
}

void PeerLink::Refresh(const std::vector<uint64_t>& stale, const Error& why, TimePoint deadline) {
  for (const uint64_t generation : stale) cache_.Retire(generation, TimePoint::max(), why);
  bell_->Ring();  // what nobody uses is unmapped
  MutexLock lock(mutex_);
  // One that was restarted comes back soon; others are not waited for, least of all by many.
  const TimePoint soon = (session_ == nullptr ? went_down_ : Clock::now()) + kReturnWait;
  while ((session_ == nullptr || ended_) && !closing_ && !stopping_) {
    if (!changed_.WaitUntil(lock, std::min(deadline, soon))) return;
  }
}

Result<std::vector<PeerLink::Handle>> PeerLink::AcquireOnce(
    const std::vector<wire::BufferReference>& references, engine::RemoteUse use, TimePoint deadline,
    uint64_t* revoked) {
  std::vector<Handle> handles;
  if (cache_.Acquire(references, use, &handles).empty()) return handles;
  if (deadline <= Clock::now()) {
    return Fail(ErrorCode::kDeadlineExceeded, "peer '" + name_ + "' has to be asked first");
  }
  FetchTurn turn(*this);
  RETURN_IF_ERROR(turn.Begin(deadline));
  std::vector<wire::BufferReference> wanted;
  for (const size_t i : cache_.Acquire(references, use, &handles)) {
    const auto same = [&](const wire::BufferReference& other) {
      return other.workload == references[i].workload && other.buffer == references[i].buffer;
    };
    if (std::none_of(wanted.begin(), wanted.end(), same)) wanted.push_back(references[i]);
  }
  if (!wanted.empty()) {
    if (Status fetched = Fetch(turn.session(), wanted, use, deadline); !fetched) {
      const MutexLock lock(mutex_);
      if (stopping_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
      if (fetched.error().code == ErrorCode::kCancelled) return Fail(NotUp());
      *revoked = turn.session().revoked;
      return Fail(std::move(fetched).error());
    }
  }
  const std::vector<size_t> missing = cache_.Acquire(references, use, &handles);
  if (missing.empty()) return handles;
  return Fail(ErrorCode::kStaleGeneration, "buffer '" +
                                               FormatReference(references[missing.front()]) +
                                               "' was registered anew or taken back");
}

Status PeerLink::Fetch(Session& session, const std::vector<wire::BufferReference>& references,
                       engine::RemoteUse use, TimePoint deadline) {
  ASSIGN_OR_RETURN(const std::vector<wire::PeerBuffer> buffers,
                   Describe(session, references, deadline));
  std::vector<engine::RemoteBuffer> imported;
  for (const wire::PeerBuffer& buffer : buffers) {
    auto one = ImportBuffer(name_, buffer);
    if (!one) return Fail(std::move(one).error().WithContext("peer '" + name_ + "'"));
    RETURN_IF_ERROR(
        AddressFlat(buffer, {session.streams, session.queue_pairs, session.stage}, &*one));
    one->acquaintance = number_;
    one->peer_gpus = session.client->facts().gpus;
    imported.push_back(*std::move(one));
  }
  if (use == engine::RemoteUse::kMove) {
    RETURN_IF_ERROR(MapAll(session, buffers, &imported, deadline));
    for (engine::RemoteBuffer& buffer : imported) buffer.mapped = true;
  }
  return Publish(session, std::move(imported));
}

Result<std::vector<wire::PeerBuffer>> PeerLink::Describe(
    Session& session, const std::vector<wire::BufferReference>& references, TimePoint deadline) {
  auto answers = session.client->Describe(references, deadline);
  if (!answers) {
    // The peer does not know this session: its stream is about to say so too.
    if (answers.error().code == ErrorCode::kStaleGeneration) session.client->Break();
    return FailureOf(name_, std::move(answers).error());
  }
  std::vector<wire::PeerBuffer> buffers;
  for (size_t i = 0; i < answers->size(); ++i) {
    auto& answer = (*answers)[i];
    if (!answer) {
      return Fail(std::move(answer).error().WithContext(FormatReference(references[i])));
    }
    buffers.push_back(*std::move(answer));
  }
  // A revocation that was there before this answer was asked for may be acknowledged any time now.
  const MutexLock lock(mutex_);
  for (const wire::PeerBuffer& buffer : buffers) {
    RETURN_IF_ERROR(CheckNotRevoked(session, buffer.generation));
  }
  return buffers;
}

Status PeerLink::MapAll(Session& session, const std::vector<wire::PeerBuffer>& buffers,
                        std::vector<engine::RemoteBuffer>* imported, TimePoint deadline) {
  if (session.mapped.size() >= session.prune_at) {
    std::erase_if(session.mapped, [](const auto& item) { return item.second.expired(); });
    session.prune_at = 2 * session.mapped.size() + 256;
  }
  using Mapped = std::shared_ptr<const memory::MappedAllocation>;
  std::map<std::pair<uint64_t, bool>, Mapped> here;
  std::vector<wire::WantedAllocation> wanted;
  std::vector<wire::PeerAllocation> to_map;
  std::map<uint64_t, std::string> refused;  // of allocations, why
  for (const wire::PeerBuffer& buffer : buffers) {
    if (!MayBeMapped(buffer)) continue;
    for (const wire::PeerAllocation& allocation : buffer.allocations) {
      const std::pair key(allocation.id, buffer.access.remote_write);
      const auto [place, is_new] = here.try_emplace(key, session.mapped[key].lock());
      if (!is_new || place->second != nullptr) continue;
      wanted.push_back({buffer.id, buffer.generation, allocation.id, key.second});
      to_map.push_back(allocation);
    }
  }
  if (!wanted.empty()) {
    ASSIGN_OR_RETURN(const auto fds, FetchDescriptors(session, wanted, deadline));
    for (size_t i = 0; i < fds.size(); ++i) {
      const std::pair key(to_map[i].id, wanted[i].writable);
      auto mapped = MapDescriptor(mapper_, to_map[i], fds[i], key.second,
                                  std::to_string(session.client->facts().owner.generation));
      // A GPU may be out of reach from here; then another path is taken, or the peer executes.
      if (!mapped && IsOutOfReach(mapped.error())) {
        refused[to_map[i].id] = mapped.error().message;
        continue;
      }
      if (!mapped) return Fail(std::move(mapped).error().WithContext("peer '" + name_ + "'"));
      session.mapped[key] = *mapped;
      here[key] = *std::move(mapped);
    }
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (size_t j = 0; j < buffers[i].allocations.size(); ++j) {
      const wire::PeerAllocation& allocation = buffers[i].allocations[j];
      const auto found = here.find({allocation.id, buffers[i].access.remote_write});
      if (found == here.end()) continue;
      if (found->second == nullptr) {
        (*imported)[i].allocations[j].why_not_mapped = refused[allocation.id];
        continue;
      }
      if (found->second->size() != allocation.size) {
        return Fail(ErrorCode::kMalformedBody, "the peer says two sizes of one allocation");
      }
      (*imported)[i].allocations[j].mapped = found->second;
    }
  }
  return {};
}

Result<std::vector<std::shared_ptr<const UniqueFd>>> PeerLink::FetchDescriptors(
    Session& session, const std::vector<wire::WantedAllocation>& wanted, TimePoint deadline) {
  if (!fds_->Take(wanted.size())) {
    return Fail(
        ErrorCode::kResourceExhausted,
        std::to_string(wanted.size()) + " more descriptors of peer '" + name_ +
            "' would be over the limit of " + std::to_string(fds_->fds_max()),
        "use fewer or larger allocations at a time, DELETE peers that are not needed, or raise "
        "--peer-fds-max, which is an eighth of the process's limit of descriptors at most");
  }
  auto fds = session.client->FetchDescriptors(wanted, deadline);
  if (!fds) {
    fds_->GiveBack(wanted.size());
    return FailureOf(name_, std::move(fds).error());
  }
  std::vector<std::shared_ptr<const UniqueFd>> counted;  // as many as wanted
  for (UniqueFd& fd : *fds) counted.push_back(registry::CountedFd(std::move(fd), fds_));
  return counted;
}

Status PeerLink::Publish(Session& session, std::vector<engine::RemoteBuffer> buffers) {
  const MutexLock lock(mutex_);
  for (const engine::RemoteBuffer& buffer : buffers) {
    RETURN_IF_ERROR(CheckNotRevoked(session, buffer.reference.generation));
  }
  for (engine::RemoteBuffer& buffer : buffers) {
    cache_.Add(std::move(buffer), session.client->lease());
  }
  return {};
}

bool PeerLink::IsRevoked(uint64_t generation) const {
  return std::any_of(revocations_.begin(), revocations_.end(), [&](const Revocation& revocation) {
    return revocation.what.buffer_generation == generation;
  });
}

Status PeerLink::CheckNotRevoked(Session& session, uint64_t generation) const {
  if (session_.get() != &session || ended_) return Fail(NotUp());
  if (!IsRevoked(generation)) return {};
  session.revoked = generation;
  return Fail(ErrorCode::kDraining, "peer '" + name_ + "' is taking the buffer back");
}

Error PeerLink::NotUp() const {
  std::string why = info_.error ? info_.error->message : "it has not answered yet";
  return {ErrorCode::kPeerUnavailable, "peer '" + name_ + "' is not up: " + why,
          "GET /v1/peers/" + name_ + " shows its state; it is connected to again by itself"};
}

}  // namespace gantry::peer
