#include "sidecar/peer/server/known_buffers.h"

#include <algorithm>
#include <utility>

namespace gantry::peer {

void KnownBuffers::BeginDescribe(const std::string& buffer_id, uint64_t mark) {
  marks_[buffer_id].asked.insert(mark);
}

void KnownBuffers::CommitDescribe(const std::string& buffer_id, uint64_t mark,
                                  wire::Access access) {
  Marks& marks = marks_[buffer_id];
  marks.asked.erase(mark);
  marks.kept = std::max(marks.kept, mark);
  marks.access = access;
}

void KnownBuffers::AbortDescribe(const std::string& buffer_id, uint64_t mark) {
  marks_[buffer_id].asked.erase(mark);
  EraseIfUnknown(buffer_id);
}

bool KnownBuffers::IsDescribed(std::string_view buffer_id) const {
  const auto marks = marks_.find(buffer_id);
  return marks != marks_.end() && marks->second.kept != 0;
}

wire::Access KnownBuffers::AccessOf(std::string_view buffer_id) const {
  const auto marks = marks_.find(buffer_id);
  if (marks == marks_.end() || marks->second.kept == 0) return {};
  // A use that began before the revocation may go on there until the peer says that it does not.
  for (const auto& [revocation, pending] : pending_) {
    if (*pending.refused && pending.buffer.buffer_id == buffer_id) return {};
  }
  return marks->second.access;
}

uint64_t KnownBuffers::CoveringRevocation(const std::string& buffer_id) const {
  const auto found = marks_.find(buffer_id);
  if (found == marks_.end()) return 0;
  const Marks& marks = found->second;
  const uint64_t newest =
      marks.asked.empty() ? marks.kept : std::max(marks.kept, *marks.asked.rbegin());
  return newest < marks.revoked && pending_.contains(marks.revoked) ? marks.revoked : 0;
}

void KnownBuffers::AddRevocation(uint64_t revocation, Pending pending) {
  marks_[pending.buffer.buffer_id].revoked = revocation;
  pending_[revocation] = std::move(pending);
}

const KnownBuffers::Pending* KnownBuffers::Find(uint64_t revocation) const {
  const auto found = pending_.find(revocation);
  return found == pending_.end() ? nullptr : &found->second;
}

void KnownBuffers::Acknowledge(uint64_t revocation) {
  const auto pending = pending_.find(revocation);
  if (pending == pending_.end()) return;
  const std::string buffer_id = std::move(pending->second.buffer.buffer_id);
  pending_.erase(pending);
  const auto marks = marks_.find(buffer_id);
  if (marks == marks_.end()) return;
  if (marks->second.kept < revocation) marks->second.kept = 0;
  EraseIfUnknown(buffer_id);
}

std::vector<RevokedBuffer> KnownBuffers::SettleRefusals(const std::string& buffer_id, bool refused,
                                                        TimePoint now) {
  std::vector<RevokedBuffer> settled;
  for (auto& [revocation, pending] : pending_) {
    if (pending.buffer.buffer_id != buffer_id || !pending.refusable || now < pending.refusal) {
      continue;
    }
    pending.refusable = false;
    if (refused) {
      *pending.refused = true;
      settled.push_back(pending.buffer);
    } else {
      pending.cut_off = now;
    }
  }
  return settled;
}

bool KnownBuffers::IsLate(TimePoint now) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const auto& entry) {
    return !*entry.second.refused && now >= entry.second.cut_off;
  });
}

std::vector<RevokedBuffer> KnownBuffers::NotRefused() const {
  std::vector<RevokedBuffer> buffers;
  for (const auto& [revocation, pending] : pending_) {
    if (!*pending.refused) buffers.push_back(pending.buffer);
  }
  return buffers;
}

void KnownBuffers::EraseIfUnknown(const std::string& buffer_id) {
  const auto found = marks_.find(buffer_id);
  if (found == marks_.end()) return;
  if (found->second.kept == 0 && found->second.asked.empty()) marks_.erase(found);
}

}  // namespace gantry::peer
