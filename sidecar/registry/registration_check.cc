#include "sidecar/registry/registration_check.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "lib/base/byte_range.h"
#include "lib/base/name.h"

namespace gantry::registry {
namespace {

constexpr uint32_t kUnseen = std::numeric_limits<uint32_t>::max();

Status CheckCount(size_t count, size_t least, size_t most, std::string field) {
  if (count >= least && count <= most) return {};
  return Fail(count < least ? ErrorCode::kInvalidArgument : ErrorCode::kBodyTooLarge,
              field + " has " + std::to_string(count) + " elements, not " + std::to_string(least) +
                  " to " + std::to_string(most),
              count < least ? "" : "split it over several calls", std::move(field));
}

// Errors name fields within the allocation.
Status CheckDmaBufOf(const wire::AllocationSpec& allocation) {
  if (!allocation.dma_buf) return {};
  if (!allocation.no_dma_buf_because.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "there is a dma-buf, and a reason why there is none",
                "leave one of them out", "/no_dma_buf_because");
  }
  const wire::DmaBufSpec& said = *allocation.dma_buf;
  Status fits = memory::CheckDmaBuf(said.offset, said.size, allocation.size);
  return fits ? fits : Fail(Below("/dma_buf", std::move(fits).error()));
}

// Likewise.
Status CheckAllocation(const wire::AllocationSpec& allocation) {
  if (allocation.size == 0) {
    return Fail(ErrorCode::kInvalidArgument, "an allocation has at least one byte", {}, "/size");
  }
  const bool has_token = !allocation.fd_token.empty();
  const bool has_handle = !allocation.ipc_handle.empty();
  if (allocation.kind == wire::MemoryKind::kHost) {
    if (!has_token) {
      return Fail(ErrorCode::kNotExportable, "host memory needs a descriptor",
                  "hand it over on the hand-off socket and name its token", "/fd_token");
    }
    const bool says_dma_buf = allocation.dma_buf || !allocation.no_dma_buf_because.empty();
    const bool says_gpu = has_handle || !allocation.device_uuid.empty() ||
                          allocation.buffer_id != 0 || allocation.fd_offset || says_dma_buf;
    if (!says_gpu) return {};
    return Fail(ErrorCode::kInvalidArgument, "host memory has no handle, no dma-buf and no GPU",
                "leave them out, or say that the kind is \"gpu\"", "/kind");
  }
  if (allocation.fd_offset && !has_token) {
    return Fail(ErrorCode::kInvalidArgument, "there is no dma-buf in which the allocation lies",
                "hand it over on the hand-off socket and name its token", "/fd_token");
  }
  uint64_t end = 0;
  if (!EndOf(allocation.fd_offset.value_or(0), allocation.size, &end)) {
    return Fail(ErrorCode::kOutOfRange, "an allocation that goes on past the end of all dma-bufs",
                "say where in the dma-buf it begins", "/fd_offset");
  }
  if (has_token == has_handle) {
    return Fail(
        ErrorCode::kNotExportable,
        has_token ? "GPU memory has a handle or a descriptor, not both"
                  : "GPU memory needs its handle or its descriptor",
        "ipc_handle for an allocation that has one, fd_token for a piece of virtual memory, "
        "fd_token and fd_offset for one that lies in a dma-buf",
        "/ipc_handle");
  }
  RETURN_IF_ERROR(CheckDmaBufOf(allocation));
  return wire::CheckGpuFacts(allocation.gpu());
}

Status CheckAllocations(const std::vector<wire::AllocationSpec>& allocations,
                        const RegistryLimits& limits) {
  RETURN_IF_ERROR(
      CheckCount(allocations.size(), 1, limits.allocations_per_request_max, "/allocations"));
  for (size_t i = 0; i < allocations.size(); ++i) {
    Status status = CheckAllocation(allocations[i]);
    if (!status) return Fail(Below(ElementPointer("allocations", i), std::move(status).error()));
  }
  return {};
}

// Errors name fields within the buffer.
Status CheckPlaces(const std::vector<wire::NoncePlace>& places, uint64_t length) {
  for (size_t i = 0; i < places.size(); ++i) {
    const wire::NoncePlace& place = places[i];
    const std::string field = ElementPointer("verify", i);
    if (place.nonce.empty() || place.nonce.size() > wire::kNonceBytesMax) {
      return Fail(ErrorCode::kInvalidArgument, "a nonce has 1 to 16 bytes", {}, field + "/nonce");
    }
    if (Fits(place.offset, place.nonce.size(), length)) continue;
    return Fail(ErrorCode::kOutOfRange,
                "a nonce of " + std::to_string(place.nonce.size()) + " bytes at " +
                    std::to_string(place.offset) + " does not fit a buffer of " +
                    std::to_string(length) + " bytes",
                {}, field + "/offset");
  }
  return {};
}

// Renumbers the allocations of one buffer after another; keeps its scratch between them.
class BufferChecker {
 public:
  BufferChecker(const std::vector<wire::AllocationSpec>& allocations, const RegistryLimits& limits)
      : allocations_(allocations), limits_(limits), local_(allocations.size(), kUnseen) {}

  // Errors name fields within the buffer.
  Result<CheckedBuffer> Check(const wire::BufferSpec& buffer) {
    RETURN_IF_ERROR(CheckCount(buffer.pieces.size(), 1, limits_.pieces_per_buffer_max, "/pieces"));
    CheckedBuffer checked;
    auto pieces = Renumber(buffer.pieces, &checked.allocations);
    for (const uint32_t used : checked.allocations) local_[used] = kUnseen;
    if (!pieces) return Fail(std::move(pieces).error());
    ASSIGN_OR_RETURN(checked.pieces, memory::PieceMap::Create(*std::move(pieces), sizes_));
    if (buffer.layout) {
      RETURN_IF_ERROR(wire::CheckLayout(*buffer.layout, checked.pieces.length()));
    }
    RETURN_IF_ERROR(CheckPlaces(buffer.verify, checked.pieces.length()));
    return checked;
  }

 private:
  Result<std::vector<wire::Piece>> Renumber(std::vector<wire::Piece> pieces,
                                            std::vector<uint32_t>* used) {
    sizes_.clear();
    for (size_t i = 0; i < pieces.size(); ++i) {
      uint32_t& allocation = pieces[i].allocation;
      if (allocation >= allocations_.size()) {
        return Fail(ErrorCode::kInvalidArgument,
                    "piece names allocation " + std::to_string(allocation) + " of " +
                        std::to_string(allocations_.size()),
                    "allocations are counted from 0", ElementPointer("pieces", i) + "/allocation");
      }
      uint32_t& local = local_[allocation];
      if (local == kUnseen) {
        local = static_cast<uint32_t>(used->size());
        used->push_back(allocation);
        sizes_.push_back(allocations_[allocation].size);
      }
      allocation = local;
    }
    return pieces;
  }

  const std::vector<wire::AllocationSpec>& allocations_;
  const RegistryLimits& limits_;
  std::vector<uint32_t> local_;  // by index in the request
  std::vector<uint64_t> sizes_;  // by index in the buffer
};

}  // namespace

std::string ElementPointer(std::string_view list, size_t index) {
  return "/" + std::string(list) + "/" + std::to_string(index);
}

Error Below(std::string_view pointer, Error error) {
  error.field.insert(0, pointer);
  return error;
}

Result<std::vector<CheckedBuffer>> CheckRegistration(const wire::RegistrationRequest& request,
                                                     const RegistryLimits& limits) {
  RETURN_IF_ERROR(CheckName(request.workload, "/workload"));
  RETURN_IF_ERROR(
      CheckCount(request.buffers.size(), 1, limits.buffers_per_request_max, "/buffers"));
  RETURN_IF_ERROR(CheckAllocations(request.allocations, limits));

  std::vector<CheckedBuffer> checked;
  checked.reserve(request.buffers.size());
  std::unordered_set<std::string_view> names;
  BufferChecker checker(request.allocations, limits);
  size_t pieces = 0;
  size_t nonces = 0;
  for (size_t i = 0; i < request.buffers.size(); ++i) {
    const wire::BufferSpec& buffer = request.buffers[i];
    const std::string pointer = ElementPointer("buffers", i);
    RETURN_IF_ERROR(CheckName(buffer.name, pointer + "/name"));
    if (!names.insert(buffer.name).second) {
      return Fail(ErrorCode::kInvalidArgument, "two buffers are named '" + buffer.name + "'", {},
                  pointer + "/name");
    }
    pieces += buffer.pieces.size();
    RETURN_IF_ERROR(CheckCount(pieces, 0, limits.pieces_per_request_max, pointer + "/pieces"));
    nonces += buffer.verify.size();
    RETURN_IF_ERROR(CheckCount(nonces, 0, limits.nonces_per_request_max, pointer + "/verify"));
    auto one = checker.Check(buffer);
    if (!one) return Fail(Below(pointer, std::move(one).error()));
    const auto is_on_gpu = [&](uint32_t used) {
      return request.allocations[used].kind == wire::MemoryKind::kGpu;
    };
    const auto on_gpu = std::count_if(one->allocations.begin(), one->allocations.end(), is_on_gpu);
    if (on_gpu != 0 && static_cast<size_t>(on_gpu) != one->allocations.size()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "a buffer lies in host memory or on a GPU, not in both",
                  "register one buffer for each", pointer + "/pieces");
    }
    checked.push_back(*std::move(one));
  }
  return checked;
}

}  // namespace gantry::registry
