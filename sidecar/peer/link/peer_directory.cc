#include "sidecar/peer/link/peer_directory.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/name.h"
#include "sidecar/peer/client/peer_channel.h"
#include "sidecar/peer/identity/peer_address.h"
#include "sidecar/peer/link/peer_link.h"

namespace gantry::peer {
namespace {

Error NoPeer(const std::string& peer) {
  return {ErrorCode::kNotFound, "no peer '" + peer + "'", "PUT /v1/peers/" + peer + " first"};
}

}  // namespace

PeerDirectory::PeerDirectory(PeerDirectoryOptions options, memory::MemoryMapper& mapper,
                             engine::EventLog& events, StopTransfers stop_transfers)
    : options_(std::move(options)),
      mapper_(mapper),
      events_(events),
      stop_transfers_(std::move(stop_transfers)),
      fds_(std::make_shared<registry::FdBudget>(options_.fds_max)) {}

PeerDirectory::~PeerDirectory() {
  Close();
  std::map<std::string, std::shared_ptr<PeerLink>, std::less<>> links;
  {
    const MutexLock lock(mutex_);
    links.swap(links_);
  }
  const TimePoint deadline = Clock::now() + options_.close_timeout;
  for (const auto& [name, link] : links) link->Close(Clock::now());  // all at once
  for (const auto& [name, link] : links) {
    if (!link->AwaitClosed(deadline)) {
      log::Warning("a peer's memory is still in use", {{"peer", name}});
    }
  }
}

void PeerDirectory::Close() {
  std::vector<std::shared_ptr<PeerLink>> links;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    for (const auto& [name, link] : links_) links.push_back(link);
  }
  for (const auto& link : links) link->StopWaiting();
}

Status PeerDirectory::CheckOpen() const {
  const MutexLock lock(mutex_);
  if (!closed_) return {};
  return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
}

std::shared_ptr<PeerLink> PeerDirectory::Find(std::string_view peer) const {
  const MutexLock lock(mutex_);
  const auto found = links_.find(peer);
  return found == links_.end() ? nullptr : found->second;
}

Result<std::vector<std::shared_ptr<const engine::RemoteBuffer>>> PeerDirectory::Acquire(
    const std::string& peer, const std::vector<wire::BufferReference>& references,
    engine::RemoteUse use, TimePoint deadline) {
  const std::shared_ptr<PeerLink> link = Find(peer);
  if (link != nullptr) return link->buffers().Acquire(references, use, deadline);
  return Fail(NoPeer(peer));
}

void PeerDirectory::Refresh(const std::string& peer, const std::vector<uint64_t>& stale,
                            const Error& why, TimePoint deadline) {
  if (const std::shared_ptr<PeerLink> link = Find(peer))
    link->buffers().Refresh(stale, why, deadline);
}

Status PeerDirectory::Notify(const std::string& peer, const wire::Notification& notification,
                             TimePoint deadline, std::optional<milliseconds> down_max) {
  const std::shared_ptr<PeerLink> link = Find(peer);
  if (link != nullptr) return link->calls().Notify(notification, deadline, down_max);
  return Fail(NoPeer(peer));
}

Result<size_t> PeerDirectory::EndHoldUses(const std::string& peer,
                                          std::span<const wire::HoldUseEnd> ends,
                                          TimePoint deadline) {
  const std::shared_ptr<PeerLink> link = Find(peer);
  if (link != nullptr) return link->calls().EndHoldUses(ends, deadline);
  return Fail(NoPeer(peer));
}

Result<uint64_t> PeerDirectory::UseHold(const std::string& peer, const wire::HoldUse& use,
                                        TimePoint deadline) {
  const std::shared_ptr<PeerLink> link = Find(peer);
  if (link != nullptr) return link->calls().UseHold(use, deadline);
  return Fail(NoPeer(peer));
}

std::optional<std::string> PeerDirectory::NameByProofs(
    const std::vector<std::string>& proofs) const {
  const MutexLock lock(mutex_);
  for (const auto& [name, link] : links_) {
    if (link->ProvesSession(proofs)) return name;
  }
  return std::nullopt;
}

Result<std::shared_ptr<PeerClient>> PeerDirectory::ClientOf(const std::string& peer,
                                                            TimePoint deadline) const {
  std::shared_ptr<PeerLink> link = Find(peer);
  if (link == nullptr) return Fail(NoPeer(peer));
  ASSIGN_OR_RETURN(std::shared_ptr<PeerClient> client, link->AwaitClient(deadline));
  // Its events go to the link, which therefore outlives it.
  PeerClient* const plain = client.get();
  return std::shared_ptr<PeerClient>(
      plain, [link = std::move(link), client = std::move(client)](PeerClient*) mutable {
        client.reset();
        link.reset();
      });
}

Result<engine::PeerInfo> PeerDirectory::Put(std::string_view name, std::string_view address,
                                            TimePoint deadline) {
  RETURN_IF_ERROR(CheckName(name, "/name"));
  ASSIGN_OR_RETURN(PeerAddress parsed, ParsePeerAddress(address));
  RETURN_IF_ERROR(CheckMayReach(parsed, options_.security.get()));
  RETURN_IF_ERROR(CheckOpen());
  std::shared_ptr<PeerLink> old = Find(name);
  if (old != nullptr && (old->address() != address || old->closing())) {
    RETURN_IF_ERROR(Remove(name, std::max(deadline, Clock::now() + options_.call_timeout)));
  }
  old.reset();  // its thread ends, and there may be no other
  std::shared_ptr<PeerLink> link;
  {
    const MutexLock lock(mutex_);
    if (closed_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
    if (links_.size() >= options_.peers_max && links_.find(name) == links_.end()) {
      return Fail(ErrorCode::kResourceExhausted,
                  "there are " + std::to_string(links_.size()) + " peers, the most allowed",
                  "DELETE those that are not needed");
    }
    auto place = links_.find(name);
    if (place == links_.end()) {
      PeerLink::Peer peer = {std::string(name), std::string(address), std::move(parsed)};
      auto made = std::make_shared<PeerLink>(options_, std::move(peer), mapper_, events_,
                                             stop_transfers_, fds_);
      RETURN_IF_ERROR(made->started());
      place = links_.emplace(std::string(name), std::move(made)).first;
    }
    link = place->second;
  }
  if (link->address() != address) {
    return Fail(ErrorCode::kConflict, "another caller gave the peer another address meanwhile");
  }
  RETURN_IF_ERROR(link->AwaitUp(deadline));
  return link->Info();
}

Result<engine::PeerInfo> PeerDirectory::Get(std::string_view name) const {
  const std::shared_ptr<PeerLink> link = Find(name);
  if (link != nullptr) return link->Info();
  return Fail(ErrorCode::kNotFound, "no peer '" + std::string(name) + "'",
              "GET /v1/peers lists them");
}

std::vector<engine::PeerInfo> PeerDirectory::List() const {
  std::vector<engine::PeerInfo> infos;
  const MutexLock lock(mutex_);
  infos.reserve(links_.size());
  for (const auto& [name, link] : links_) infos.push_back(link->Info());
  return infos;
}

Status PeerDirectory::Remove(std::string_view name, TimePoint deadline) {
  const std::shared_ptr<PeerLink> link = Find(name);
  if (link == nullptr) {
    return Fail(ErrorCode::kNotFound, "no peer '" + std::string(name) + "'",
                "GET /v1/peers lists them");
  }
  if (!link->Close(deadline)) {
    RETURN_IF_ERROR(CheckOpen());
    return Fail(ErrorCode::kDeadlineExceeded,
                "transfers still use memory of peer '" + std::string(name) + "'",
                "they were told to stop: call again");
  }
  const MutexLock lock(mutex_);
  if (const auto found = links_.find(name); found != links_.end() && found->second == link) {
    links_.erase(found);
  }
  return {};
}

size_t PeerDirectory::mapped_allocations() const {
  size_t count = 0;
  const MutexLock lock(mutex_);
  for (const auto& [name, link] : links_) count += link->mapped_allocations();
  return count;
}

}  // namespace gantry::peer
