#include "sidecar/transport/tcp/resolved_target.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lib/base/byte_range.h"

namespace gantry::transport {
namespace {

bool IsStaged(const TargetBuffer& buffer) {
  return std::any_of(buffer.allocations().begin(), buffer.allocations().end(),
                     [](const auto& allocation) { return allocation->for_workers_only(); });
}

Status AddRange(const TargetBuffer& buffer, const RequestSection& section, WireRange range,
                bool for_write, ResolvedTarget* target) {
  const uint64_t length = buffer.pieces().length();
  if (!Fits(range.offset, range.length, length)) {
    return Fail(ErrorCode::kOutOfRange, "[" + std::to_string(range.offset) + ", +" +
                                            std::to_string(range.length) +
                                            ") lies outside of buffer '" + section.buffer +
                                            "' of " + std::to_string(length) + " bytes");
  }
  uint64_t done = 0;
  while (done < range.length) {
    const memory::Extent extent = buffer.pieces().Locate(range.offset + done, range.length - done);
    const auto& allocation = buffer.allocations()[extent.allocation];
    if (for_write && !allocation->writable()) {
      return Fail(ErrorCode::kPermissionDenied,
                  "buffer '" + section.buffer + "' was handed over read-only");
    }
    done += extent.length;
    if (target->staged != nullptr) {
      target->staged->Add(allocation, extent.offset, extent.length);
      continue;
    }
    ASSIGN_OR_RETURN(const std::span<std::byte> bytes, allocation->in_process().Bytes());
    target->memory.Add(bytes.subspan(extent.offset, extent.length).data(), extent.length);
  }
  return {};
}

}  // namespace

Result<ResolvedTarget> ResolveTarget(TargetBuffers& buffers, std::string_view session,
                                     const RequestBody& request, bool for_write,
                                     StagingHalf* staging) {
  ResolvedTarget target;
  target.priority = request.priority;
  target.uses.reserve(request.sections.size());
  for (const RequestSection& section : request.sections) {
    ASSIGN_OR_RETURN(auto buffer,
                     buffers.Acquire(session, section.buffer, section.generation, for_write));
    if (target.staged == nullptr && IsStaged(*buffer)) {
      if (staging == nullptr) {
        return Fail(ErrorCode::kPathUnavailable,
                    "buffer '" + section.buffer +
                        "' is memory of a GPU or of a file that can shrink, and nothing stages it "
                        "here");
      }
      target.staged = std::make_unique<StagedPayload>(*staging);
    }
    target.uses.push_back(std::move(buffer));
  }
  for (size_t i = 0; i < request.sections.size(); ++i) {
    const RequestSection& section = request.sections[i];
    for (uint32_t k = 0; k < section.ranges; ++k) {
      RETURN_IF_ERROR(AddRange(*target.uses[i], section, request.ranges[section.first_range + k],
                               for_write, &target));
    }
  }
  if (target.staged != nullptr && !target.staged->FitsHalf()) {
    return Fail(ErrorCode::kResourceExhausted, "a request is larger than the staging memory here");
  }
  return target;
}

}  // namespace gantry::transport
