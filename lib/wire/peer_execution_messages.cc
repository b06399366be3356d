#include "lib/wire/peer_execution_messages.h"

#include <algorithm>

#include "lib/base/name.h"
#include "lib/wire/peer_message_limit.h"
#include "lib/wire/peer_messages.h"

namespace gantry::wire {
namespace {

constexpr int kNumbersOfRange = 5;

void AddReferences(const std::vector<BufferReference>& references,
                   google::protobuf::RepeatedPtrField<proto::Reference>* messages) {
  for (const BufferReference& reference : references) {
    proto::Reference* message = messages->Add();
    message->set_workload(reference.workload);
    message->set_buffer(reference.buffer);
    message->set_generation(reference.generation);
  }
}

// A generation each: an execution is of the very buffers that its caller checked.
Result<std::vector<BufferReference>> ReferencesOf(
    const google::protobuf::RepeatedPtrField<proto::Reference>& messages, std::string_view field) {
  RETURN_IF_ERROR(
      LimitOfPeer(field, static_cast<size_t>(messages.size()), kPeerExecutedBuffersMax));
  std::vector<BufferReference> references;
  for (const proto::Reference& message : messages) {
    ASSIGN_OR_RETURN(BufferReference reference, FromMessage(message));
    if (reference.generation == 0) {
      return Fail(ErrorCode::kMalformedBody, "a buffer of an execution has no generation");
    }
    references.push_back(std::move(reference));
  }
  if (!references.empty()) return references;
  return Fail(ErrorCode::kMalformedBody, "an execution names no " + std::string(field));
}

Result<std::vector<TransferRange>> RangesOf(const proto::ExecuteRequest& message,
                                            const PeerExecution& execution) {
  const auto& numbers = message.ranges();
  if (numbers.empty() || numbers.size() % kNumbersOfRange != 0) {
    return Fail(ErrorCode::kMalformedBody, "the ranges of an execution are not five numbers each");
  }
  RETURN_IF_ERROR(
      LimitOfPeer("ranges", static_cast<size_t>(numbers.size()) / kNumbersOfRange, kPeerRangesMax));
  std::vector<TransferRange> ranges;
  ranges.reserve(static_cast<size_t>(numbers.size()) / kNumbersOfRange);
  for (int i = 0; i < numbers.size(); i += kNumbersOfRange) {
    if (numbers[i] >= execution.callers.size() || numbers[i + 2] >= execution.callees.size()) {
      return Fail(ErrorCode::kMalformedBody, "a range of an execution names no buffer");
    }
    ranges.push_back({static_cast<uint32_t>(numbers[i]), numbers[i + 1],
                      static_cast<uint32_t>(numbers[i + 2]), numbers[i + 3], numbers[i + 4]});
  }
  return ranges;
}

}  // namespace

void ToMessage(const PeerExecution& execution, proto::ExecuteRequest* message) {
  message->set_id(execution.id);
  for (const std::string& proof : execution.proofs) message->add_proofs(proof);
  message->set_write(execution.operation == Operation::kWrite);
  AddReferences(execution.callers, message->mutable_callers());
  AddReferences(execution.callees, message->mutable_callees());
  auto* numbers = message->mutable_ranges();
  numbers->Reserve(static_cast<int>(execution.ranges.size()) * kNumbersOfRange);
  for (const TransferRange& range : execution.ranges) {
    numbers->Add(range.local_index);
    numbers->Add(range.local_offset);
    numbers->Add(range.remote_index);
    numbers->Add(range.remote_offset);
    numbers->Add(range.length);
  }
  message->set_deadline_ms(execution.deadline_ms);
  message->set_priority(execution.priority);
  for (const Path path : execution.require_path) message->add_require_path(InfoOf(path).number);
}

Result<PeerExecution> FromMessage(const proto::ExecuteRequest& message) {
  if (message.id().empty()) return Fail(ErrorCode::kMalformedBody, "an execution has no id");
  RETURN_IF_ERROR(LimitOfPeer("id", message.id().size(), kPeerIdBytesMax));
  RETURN_IF_ERROR(
      LimitOfPeer("proofs", static_cast<size_t>(message.proofs_size()), kPeerProofsMax));
  PeerExecution execution;
  execution.id = message.id();
  for (const std::string& proof : message.proofs()) {
    if (proof.size() != kSha256Bytes) {
      return Fail(ErrorCode::kMalformedBody, "a proof of an execution is not 32 bytes");
    }
    execution.proofs.push_back(proof);
  }
  execution.operation = message.write() ? Operation::kWrite : Operation::kRead;
  ASSIGN_OR_RETURN(execution.callers, ReferencesOf(message.callers(), "callers"));
  ASSIGN_OR_RETURN(execution.callees, ReferencesOf(message.callees(), "callees"));
  for (const BufferReference& callee : execution.callees) {
    if (callee.workload == execution.callees.front().workload) continue;
    return Fail(ErrorCode::kMalformedBody, "an execution is of two workloads of the callee");
  }
  ASSIGN_OR_RETURN(execution.ranges, RangesOf(message, execution));
  execution.deadline_ms = message.deadline_ms();
  execution.priority = message.priority();
  RETURN_IF_ERROR(
      LimitOfPeer("require_path", static_cast<size_t>(message.require_path_size()), kPeerPathsMax));
  for (const uint32_t number : message.require_path()) {
    const auto path = PathByNumber(number);
    if (path) execution.require_path.push_back(*path);
  }
  // Of paths that only the caller knows none is there.
  if (execution.require_path.empty() && message.require_path_size() > 0) {
    return Fail(ErrorCode::kPathUnavailable, "this build has none of the paths that are required");
  }
  return execution;
}

void ToMessage(const PeerExecutionEnd& end, proto::ExecutionEnded* message) {
  if (end.error) ToMessage(*end.error, message->mutable_problem());
  message->set_bytes(end.bytes);
  message->set_pending(end.pending);
}

PeerExecutionEnd FromMessage(const proto::ExecutionEnded& message) {
  PeerExecutionEnd end;
  if (message.has_problem()) end.error = FromMessage(message.problem());
  end.bytes = message.bytes();
  end.pending = message.pending();
  return end;
}

}  // namespace gantry::wire
