// The buffers that one session of an initiator was told of, and the revocations of them that it has
// not acknowledged. InitiatorTable guards it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/codec/buffer_types.h"
#include "lib/wire/peer_descriptor.h"

namespace gantry::peer {

struct RevokedBuffer {
  std::string buffer_id;
  uint64_t buffer_generation = 0;
  bool suspended = false;
  // Owner of the buffer, for events about a peer that was cut off.
  std::string workload = {};
  uint64_t workload_generation = 0;
  std::string name = {};
  // Ends remote access to the buffer except through existing mappings; false: impossible. Revoke
  // calls it; it blocks as long as devices take. Null: impossible.
  std::function<bool()> refuse_to_peers = {};
};

class KnownBuffers {
 public:
  // Deadlines of an initiator that has not acknowledged. Shared-memory initiators have none.
  struct Pending {
    RevokedBuffer buffer;                  // without refuse_to_peers
    TimePoint refusal = TimePoint::max();  // when access is refused, if `refusable`
    bool refusable = false;
    TimePoint cut_off = TimePoint::max();  // when the session is cut off otherwise
    // Shared with waiting Revoke calls, which may outlive this entry.
    std::shared_ptr<bool> refused = std::make_shared<bool>(false);
  };

  // See InitiatorTable. Marks and revocations share one numbering.
  void Mark(const std::string& buffer_id, uint64_t mark);
  void Keep(const std::string& buffer_id, uint64_t mark, wire::Access access);
  void AbortDescribe(const std::string& buffer_id, uint64_t mark);

  // The session was told of the buffer, or is about to be.
  bool Contains(std::string_view buffer_id) const { return marks_.contains(buffer_id); }
  // The session was told of the buffer.
  bool IsKept(std::string_view buffer_id) const;
  // The access that the session was last told. None while the buffer is refused.
  wire::Access AccessOf(std::string_view buffer_id) const;

  // Returns the pending revocation that covers all that the session knows of the buffer; 0: none.
  uint64_t CoveringRevocation(const std::string& buffer_id) const;
  void AddRevocation(uint64_t revocation, Pending pending);
  // Null: it is not pending.
  const Pending* Find(uint64_t revocation) const;
  // A mark that is newer than the revocation belongs to a buffer that came back. It stays.
  void Acknowledge(uint64_t revocation);

  // Settles the pending revocations of the buffer whose refusal is due: `refused`, or cut off now.
  // Returns the buffers that were refused.
  std::vector<RevokedBuffer> SettleRefusals(const std::string& buffer_id, bool refused,
                                            TimePoint now);
  // A revocation that is not refused is past its time to cut the session off.
  bool IsLate(TimePoint now) const;
  // The buffers of pending revocations that are not refused.
  std::vector<RevokedBuffer> NotRefused() const;

 private:
  struct Marks {
    uint64_t kept = 0;         // newest mark that was answered; 0: none
    std::set<uint64_t> asked;  // marks not answered yet
    uint64_t revoked = 0;      // newest revocation sent
    wire::Access access;       // as last answered
  };

  void EraseIfUnknown(const std::string& buffer_id);

  std::map<std::string, Marks, std::less<>> marks_;  // by buffer id
  std::map<uint64_t, Pending> pending_;              // by revocation number
};

}  // namespace gantry::peer
