// Between the peer protocol's messages and plain values. Whatever comes from a peer passes a
// FromMessage, which checks every count and every string; the bytes of pieces are checked by
// whoever builds a PieceMap of them. Stateless; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/hold.h"
#include "lib/wire/notification.h"
#include "lib/wire/peer.pb.h"
#include "lib/wire/peer_descriptor.h"
#include "lib/wire/peer_version.h"
#include "lib/wire/transfer_request.h"

namespace gantry::wire {

namespace proto = ::gantry::peer::v1;

inline constexpr int kPeerMessageBytesMax = 64 << 20;
inline constexpr int kPeerReferencesMax = 16'384;    // of one Describe
inline constexpr int kPeerPiecesMax = 65'536;        // of one buffer; allocations likewise
inline constexpr int kPeerWantedMax = 65'536;        // of one Connect
inline constexpr int kPeerAcknowledgedMax = 65'536;  // of one Acknowledge
inline constexpr int kPeerStreamsMax = 64;           // of one OpenStreams
inline constexpr int kPeerAddressesMax = 16;
inline constexpr int kPeerHoldBlocksMax = 4'194'304;  // of one UseHold, over all parts
inline constexpr int kPeerHoldUseEndsMax = 4096;      // of one EndHoldUse
inline constexpr int kPeerCapabilitiesMax = 64;
inline constexpr int kPeerGpusMax = 256;
inline constexpr int kPeerPathsMax = 16;
// A capability: its EndHoldUse takes `more`.
inline constexpr std::string_view kPeerHoldUseEnds = "hold_use_ends";
inline constexpr size_t kPeerIdBytesMax = 128;
inline constexpr size_t kSha256Bytes = 32;
inline constexpr size_t kPeerTextBytesMax = 4096;  // reasons, messages, hints

void ToMessage(const PeerIdentity& identity, proto::Identity* message);
Result<PeerIdentity> FromMessage(const proto::Identity& message);

void ToMessage(std::span<const PathReport> paths,
               google::protobuf::RepeatedPtrField<proto::PathStatement>* messages);
// Fastest first, every path of this build once; one that the peer does not speak of is not
// available, one that only the peer knows is left out.
Result<std::vector<PathReport>> FromMessage(
    const google::protobuf::RepeatedPtrField<proto::PathStatement>& messages);

// UUIDs of the GPUs that the owner says it sees.
Result<std::vector<std::string>> GpusOf(const proto::HelloReply& message);

void ToMessage(const PeerBuffer& buffer, proto::BufferDescriptor* message);
Result<PeerBuffer> FromMessage(const proto::BufferDescriptor& message);

Status CheckReferenceCount(const proto::DescribeRequest& message);
Result<BufferReference> FromMessage(const proto::Reference& message);

Result<std::vector<WantedAllocation>> FromMessage(const proto::ConnectRequest& message);
Result<PeerRevocation> FromMessage(const proto::Revoked& message);

// Without who sends it: the session says that.
void ToMessage(const Notification& notification, proto::NotifyRequest* message);
Result<Notification> FromMessage(const proto::NotifyRequest& message);

void ToMessage(const HoldUse& use, proto::UseHoldRequest* message);
Result<HoldUse> FromMessage(const proto::UseHoldRequest& message);

// One at least.
void ToMessage(std::span<const HoldUseEnd> ends, proto::EndHoldUseRequest* message);
Result<std::vector<HoldUseEnd>> FromMessage(const proto::EndHoldUseRequest& message);

void ToMessage(const Error& error, proto::Problem* message);
Error FromMessage(const proto::Problem& message);

// 32 lower-case hex digits: sessions, lease tickets, tickets.
Status CheckSecret(std::string_view text, std::string_view field);
// What OpenStreams answered, for a peer that was reached at `host`.
Result<PeerStreams> FromMessage(const proto::OpenStreamsReply& message, std::string_view host);

// A file name that stays within its directory.
Status CheckSocketName(std::string_view name);

}  // namespace gantry::wire
