// Between the peer protocol's messages about staging memory and plain values, as peer_messages.h
// has it: every count, size, sum and address is checked on receipt. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/base/result.h"
#include "lib/wire/peer.pb.h"
#include "lib/wire/stage_types.h"

namespace gantry::wire {

namespace proto = ::gantry::peer::v1;

// 1 to kStageSlicesMax.
Result<uint32_t> SlicesOf(const proto::OpenStageRequest& message);

void ToMessage(const StageGrant& grant, proto::OpenStageReply* message);
// One slice at least, each a chunk of slice_bytes that does not wrap, with as many keys as the
// first.
Result<StageGrant> FromMessage(const proto::OpenStageReply& message);

// Without the session.
void ToMessage(const StagedMove& move, proto::CopyStagedRequest* message);
// Ranges that are not empty and do not wrap, nor does their sum; each names a buffer, and no slice
// is named twice. Whether they fill the slices, the owner sees who knows how long these are.
Result<StagedMove> FromMessage(const proto::CopyStagedRequest& message);

// What the owner says became of a copy; nothing: all bytes were copied.
void ToMessage(const std::optional<Error>& problem, proto::CopyStagedReply* message);
std::optional<Error> FromMessage(const proto::CopyStagedReply& message);

}  // namespace gantry::wire
