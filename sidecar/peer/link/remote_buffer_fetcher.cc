#include "sidecar/peer/link/remote_buffer_fetcher.h"

#include <algorithm>
#include <utility>

#include "lib/base/random_id.h"
#include "sidecar/peer/link/buffer_import.h"

namespace gantry::peer {
namespace {

// For what the owner shows again while its revocation is still being acknowledged: after a resume.
constexpr milliseconds kAcknowledgementWait{250};
// More than what a link waits for what its last session left.
constexpr milliseconds kReturnWait{2'500};

}  // namespace

// Holds the peer's only fetch. Callers that want the same buffers wait for it, and find them in the
// cache.
class RemoteBufferFetcher::Turn {
 public:
  explicit Turn(RemoteBufferFetcher& fetcher) : fetcher_(fetcher) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!begun_) return;
    fetcher_.revocations_.EndFetch();
    fetcher_.wake_.Wake();  // a revocation may have waited for it
  }

  // The link closes when no fetch is in flight. Therefore the fetch begins before it looks whether
  // the link is closing.
  Status Begin(TimePoint deadline) {
    // A peer that is down costs no turn, whose end wakes the link's thread.
    if (fetcher_.state_.session() == nullptr && !fetcher_.state_.stopping()) {
      return Fail(fetcher_.state_.NotUp());
    }
    RETURN_IF_ERROR(fetcher_.revocations_.BeginFetch(deadline));
    begun_ = true;
    session_ = fetcher_.state_.session();
    if (session_ == nullptr || fetcher_.state_.closing()) return Fail(fetcher_.state_.NotUp());
    return {};
  }
  PeerSession& session() const { return *session_; }

 private:
  RemoteBufferFetcher& fetcher_;
  bool begun_ = false;
  std::shared_ptr<PeerSession> session_;
};

RemoteBufferFetcher::RemoteBufferFetcher(std::string peer, const Parts& parts,
                                         memory::MemoryMapper& mapper,
                                         std::shared_ptr<registry::FdBudget> fds)
    : peer_(std::move(peer)),
      number_(RandomGeneration()),
      state_(parts.state),
      revocations_(parts.revocations),
      cache_(parts.cache),
      wake_(parts.wake),
      allocations_(peer_, mapper, std::move(fds)) {}

Result<std::vector<RemoteBufferFetcher::Handle>> RemoteBufferFetcher::Acquire(
    const std::vector<wire::BufferReference>& references, engine::RemoteUse use,
    TimePoint deadline) {
  const TimePoint wait_until = std::min(deadline, Clock::now() + kAcknowledgementWait);
  for (;;) {
    uint64_t revoked = 0;
    auto handles = AcquireOnce(references, use, deadline, &revoked);
    if (handles || revoked == 0 || !revocations_.AwaitAcknowledged(revoked, wait_until)) {
      return handles;
    }
  }
}

// A peer that was restarted comes back soon. Others are not waited for, least of all by many.
void RemoteBufferFetcher::Refresh(const std::vector<uint64_t>& stale, const Error& why,
                                  TimePoint deadline) {
  for (const uint64_t generation : stale) cache_.Retire(generation, TimePoint::max(), why);
  wake_.Wake();  // unmaps what is unused
  state_.AwaitReturn(deadline, kReturnWait);
}

Result<std::vector<RemoteBufferFetcher::Handle>> RemoteBufferFetcher::AcquireOnce(
    const std::vector<wire::BufferReference>& references, engine::RemoteUse use, TimePoint deadline,
    uint64_t* revoked) {
  std::vector<Handle> handles;
  if (cache_.Acquire(references, use, &handles).empty()) return handles;
  if (deadline <= Clock::now()) {
    return Fail(ErrorCode::kDeadlineExceeded, "peer '" + peer_ + "' has to be asked first");
  }
  Turn turn(*this);
  RETURN_IF_ERROR(turn.Begin(deadline));
  std::vector<wire::BufferReference> wanted;
  for (const size_t i : cache_.Acquire(references, use, &handles)) {
    const auto same = [&](const wire::BufferReference& other) {
      return other.workload == references[i].workload && other.buffer == references[i].buffer;
    };
    if (std::none_of(wanted.begin(), wanted.end(), same)) wanted.push_back(references[i]);
  }
  if (!wanted.empty()) {
    if (Status fetched = Fetch(turn.session(), wanted, use, deadline, revoked); !fetched) {
      if (state_.stopping()) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
      if (fetched.error().code == ErrorCode::kCancelled) return Fail(state_.NotUp());
      return Fail(std::move(fetched).error());
    }
  }
  const std::vector<size_t> missing = cache_.Acquire(references, use, &handles);
  if (missing.empty()) return handles;
  return Fail(ErrorCode::kStaleGeneration, "buffer '" +
                                               FormatReference(references[missing.front()]) +
                                               "' was registered anew or taken back");
}

Status RemoteBufferFetcher::Fetch(PeerSession& session,
                                  const std::vector<wire::BufferReference>& references,
                                  engine::RemoteUse use, TimePoint deadline, uint64_t* revoked) {
  ASSIGN_OR_RETURN(const std::vector<wire::PeerBuffer> buffers,
                   Describe(session, references, deadline));
  if (!state_.IsUsable(session)) return Fail(state_.NotUp());
  RETURN_IF_ERROR(revocations_.Check(session.number(), buffers, revoked));
  std::vector<engine::RemoteBuffer> imported;
  for (const wire::PeerBuffer& buffer : buffers) {
    ASSIGN_OR_RETURN(engine::RemoteBuffer one, Import(session, buffer));
    imported.push_back(std::move(one));
  }
  if (use == engine::RemoteUse::kMove) {
    RETURN_IF_ERROR(allocations_.MapAll(session, buffers, &imported, deadline));
    for (engine::RemoteBuffer& buffer : imported) buffer.mapped = true;
  }
  if (!state_.IsUsable(session)) return Fail(state_.NotUp());
  return revocations_.Publish(session.number(), std::move(imported), session.client()->lease(),
                              revoked);
}

Result<std::vector<wire::PeerBuffer>> RemoteBufferFetcher::Describe(
    const PeerSession& session, const std::vector<wire::BufferReference>& references,
    TimePoint deadline) {
  auto answers = session.client()->Describe(references, deadline);
  if (!answers) {
    // The peer does not know this session: its stream is about to say so too.
    if (answers.error().code == ErrorCode::kStaleGeneration) session.client()->Break();
    return session.Failure(std::move(answers).error());
  }
  std::vector<wire::PeerBuffer> buffers;
  for (size_t i = 0; i < answers->size(); ++i) {
    auto& answer = (*answers)[i];
    if (!answer) {
      return Fail(std::move(answer).error().WithContext(FormatReference(references[i])));
    }
    buffers.push_back(*std::move(answer));
  }
  return buffers;
}

Result<engine::RemoteBuffer> RemoteBufferFetcher::Import(const PeerSession& session,
                                                         const wire::PeerBuffer& buffer) {
  auto imported = ImportBuffer(peer_, buffer);
  if (!imported) return Fail(std::move(imported).error().WithContext("peer '" + peer_ + "'"));
  RETURN_IF_ERROR(AddressFlat(buffer, session.paths(), &*imported));
  imported->peer_registration_id = number_;
  imported->peer_gpus = session.facts().gpus;
  return imported;
}

}  // namespace gantry::peer
