#include "sidecar/transport/tcp/target_buffers.h"

#include <string>
#include <utility>

#include "lib/base/byte_range.h"

namespace gantry::transport {
namespace {

Status AddRange(const TargetBuffer& buffer, const RequestSection& section, WireRange range,
                bool for_write, ScatterList* memory) {
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
    const memory::MappedAllocation& allocation = *buffer.allocations()[extent.allocation];
    if (for_write && !allocation.writable()) {
      return Fail(ErrorCode::kPermissionDenied,
                  "buffer '" + section.buffer + "' was handed over read-only");
    }
    ASSIGN_OR_RETURN(const std::span<std::byte> bytes, allocation.in_process().Bytes());
    memory->Add(bytes.subspan(extent.offset, extent.length).data(), extent.length);
    done += extent.length;
  }
  return {};
}

}  // namespace

Result<ResolvedTarget> ResolveTarget(TargetBuffers& buffers, std::string_view session,
                                     const RequestBody& request, bool for_write) {
  ResolvedTarget target;
  target.uses.reserve(request.sections.size());
  for (const RequestSection& section : request.sections) {
    ASSIGN_OR_RETURN(auto buffer,
                     buffers.Acquire(session, section.buffer, section.generation, for_write));
    for (uint32_t i = 0; i < section.ranges; ++i) {
      RETURN_IF_ERROR(AddRange(*buffer, section, request.ranges[section.first_range + i], for_write,
                               &target.memory));
    }
    target.uses.push_back(std::move(buffer));
  }
  return target;
}

}  // namespace gantry::transport
