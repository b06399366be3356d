#include "lib/wire/stage_messages.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/byte_range.h"
#include "lib/wire/peer_message_limit.h"
#include "lib/wire/peer_messages.h"
#include "lib/wire/rdma_messages.h"
#include "lib/wire/transfer_request.h"

namespace gantry::wire {
namespace {

constexpr int kNumbersOfStagedRange = 3;

// 1 to `most`.
Status CheckSome(std::string_view field, int count, int most) {
  if (count == 0) {
    return Fail(ErrorCode::kMalformedBody, "a peer's message has no " + std::string(field));
  }
  return LimitOfPeer(field, static_cast<size_t>(count), static_cast<size_t>(most));
}

Status CheckSlice(const proto::RdmaChunk& slice, const proto::OpenStageReply& message) {
  RETURN_IF_ERROR(CheckSome("keys", slice.keys_size(), kRdmaDevicesMax));
  uint64_t end = 0;
  if (slice.length() != 0 && slice.length() == message.slice_bytes() &&
      EndOf(slice.address(), slice.length(), &end) &&
      slice.keys_size() == message.slices(0).keys_size()) {
    return {};
  }
  return Fail(ErrorCode::kMalformedBody,
              "a slice of a peer's staging memory is not as long as it says, wraps, or has other "
              "keys than the first");
}

Status AddBuffers(const proto::CopyStagedRequest& message, StagedMove* move) {
  RETURN_IF_ERROR(CheckSome("buffers", message.buffers_size(), kStagedRangesMax));
  for (const proto::StagedBuffer& buffer : message.buffers()) {
    RETURN_IF_ERROR(LimitOfPeer("id", buffer.id().size(), kPeerIdBytesMax));
    move->buffers.push_back({buffer.id(), buffer.generation()});
  }
  return {};
}

Status AddRanges(const proto::CopyStagedRequest& message, StagedMove* move) {
  const auto& numbers = message.ranges();
  if (numbers.size() % kNumbersOfStagedRange != 0) {
    return Fail(ErrorCode::kMalformedBody, "the ranges of a copy are not three numbers each");
  }
  RETURN_IF_ERROR(CheckSome("ranges", numbers.size() / kNumbersOfStagedRange, kStagedRangesMax));
  uint64_t bytes = 0;
  for (int i = 0; i < numbers.size(); i += kNumbersOfStagedRange) {
    const uint64_t length = numbers[i + 2];
    uint64_t end = 0;
    if (numbers[i] >= move->buffers.size() || length == 0 || !EndOf(numbers[i + 1], length, &end) ||
        !EndOf(bytes, length, &bytes)) {
      return Fail(ErrorCode::kMalformedBody, "range " + std::to_string(i / kNumbersOfStagedRange) +
                                                 " of a copy names no buffer, is empty, or wraps");
    }
    move->ranges.push_back({static_cast<uint32_t>(numbers[i]), numbers[i + 1], length});
  }
  return {};
}

Status AddSlices(const proto::CopyStagedRequest& message, StagedMove* move) {
  RETURN_IF_ERROR(CheckSome("slices", message.slices_size(), kStageSlicesMax));
  std::array<bool, kStageSlicesMax> named{};
  for (const uint32_t slice : message.slices()) {
    if (slice >= named.size() || std::exchange(named[slice], true)) {
      return Fail(ErrorCode::kMalformedBody, "a copy names slice " + std::to_string(slice) +
                                                 " twice, or there is no such slice");
    }
    move->slices.push_back(slice);
  }
  return {};
}

}  // namespace

Result<uint32_t> SlicesOf(const proto::OpenStageRequest& message) {
  if (message.slices() != 0 && message.slices() <= static_cast<uint32_t>(kStageSlicesMax)) {
    return message.slices();
  }
  return Fail(ErrorCode::kMalformedBody, "a peer asks for " + std::to_string(message.slices()) +
                                             " slices, it has to be 1 to " +
                                             std::to_string(kStageSlicesMax));
}

void ToMessage(const StageGrant& grant, proto::OpenStageReply* message) {
  message->set_stage(grant.stage);
  message->set_slice_bytes(grant.slice_bytes);
  for (const RdmaChunk& slice : grant.slices) ToMessage(slice, message->add_slices());
  for (const uint32_t device : grant.devices) message->add_rdma_devices(device);
}

Result<StageGrant> FromMessage(const proto::OpenStageReply& message) {
  if (message.stage() == 0) {
    return Fail(ErrorCode::kMalformedBody, "a peer lends staging memory without a number");
  }
  RETURN_IF_ERROR(CheckSome("slices", message.slices_size(), kStageSlicesMax));
  StageGrant grant;
  grant.stage = message.stage();
  grant.slice_bytes = message.slice_bytes();
  for (const proto::RdmaChunk& slice : message.slices()) {
    RETURN_IF_ERROR(CheckSlice(slice, message));
    grant.slices.push_back(
        {slice.length(), slice.address(), {slice.keys().begin(), slice.keys().end()}});
  }
  ASSIGN_OR_RETURN(grant.devices,
                   DevicesOfKeys(message.rdma_devices(), message.slices(0).keys_size()));
  return grant;
}

void ToMessage(const StagedMove& move, proto::CopyStagedRequest* message) {
  message->set_stage(move.stage);
  message->set_to_buffers(move.to_buffers);
  for (const StagedMove::Buffer& buffer : move.buffers) {
    proto::StagedBuffer* const part = message->add_buffers();
    part->set_id(buffer.id);
    part->set_generation(buffer.generation);
  }
  auto* const numbers = message->mutable_ranges();
  numbers->Reserve(static_cast<int>(move.ranges.size()) * kNumbersOfStagedRange);
  for (const StagedMove::Range& range : move.ranges) {
    numbers->Add(range.buffer);
    numbers->Add(range.offset);
    numbers->Add(range.length);
  }
  for (const uint32_t slice : move.slices) message->add_slices(slice);
  message->set_priority(move.priority);
  message->set_time_ms(move.time_ms);
}

Result<StagedMove> FromMessage(const proto::CopyStagedRequest& message) {
  if (message.stage() == 0 || message.time_ms() == 0) {
    return Fail(ErrorCode::kMalformedBody, "a copy has no stage, or no time");
  }
  StagedMove move;
  move.stage = message.stage();
  move.to_buffers = message.to_buffers();
  RETURN_IF_ERROR(AddBuffers(message, &move));
  RETURN_IF_ERROR(AddRanges(message, &move));
  RETURN_IF_ERROR(AddSlices(message, &move));
  if (message.priority() < -kPriorityMax || message.priority() > kPriorityMax) {
    return Fail(ErrorCode::kMalformedBody, "priority of a peer's message is not within -10 and 10");
  }
  move.priority = message.priority();
  move.time_ms = message.time_ms();
  return move;
}

void ToMessage(const std::optional<Error>& problem, proto::CopyStagedReply* message) {
  if (problem) ToMessage(*problem, message->mutable_problem());
}

std::optional<Error> FromMessage(const proto::CopyStagedReply& message) {
  if (!message.has_problem()) return std::nullopt;
  return FromMessage(message.problem());
}

}  // namespace gantry::wire
