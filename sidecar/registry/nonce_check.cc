#include "sidecar/registry/nonce_check.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/memory/mapped_allocation.h"

namespace gantry::registry {
namespace {

// Where in the request a probe comes from.
struct Origin {
  size_t buffer = 0;
  size_t place = 0;
  uint64_t offset = 0;  // in the buffer
};

// The probes of a request, and the mappings that they need.
struct Probes {
  std::vector<memory::MemoryProbe> probes;
  std::vector<Origin> origins;  // parallel to the probes
  Buffer::Allocations mapped;
};

// One probe for each piece of the buffer that the nonce lies in.
void AddPlace(const wire::NoncePlace& place, const memory::PieceMap& pieces,
              const Buffer::Allocations& mapped, Origin origin, Probes* all) {
  for (uint64_t done = 0; done < place.nonce.size();) {
    const uint64_t at = place.offset + done;
    const memory::Extent extent = pieces.Locate(at, place.nonce.size() - done);
    memory::MemoryProbe& probe = all->probes.emplace_back();
    probe.mapping = mapped[extent.allocation]->mapping();
    probe.offset = extent.offset;
    probe.length = static_cast<uint32_t>(extent.length);
    place.nonce.copy(probe.bytes.data(), extent.length, done);
    origin.offset = at;
    all->origins.push_back(origin);
    done += extent.length;
  }
}

}  // namespace

Status CheckNonces(const wire::RegistrationRequest& request, const ResolvedRequest& resolved,
                   memory::MemoryMapper& mapper) {
  Probes all;
  for (size_t i = 0; i < request.buffers.size(); ++i) {
    const wire::BufferSpec& buffer = request.buffers[i];
    if (buffer.verify.empty()) continue;
    Buffer::Allocations mapped;
    for (const auto& record : resolved.AllocationsOf(i)) {
      ASSIGN_OR_RETURN(auto mapping, record->Map());  // the one that was made for it, or there
      mapped.push_back(std::move(mapping));
    }
    for (size_t k = 0; k < buffer.verify.size(); ++k) {
      AddPlace(buffer.verify[k], resolved.buffers[i].pieces, mapped, {i, k}, &all);
    }
    std::move(mapped.begin(), mapped.end(), std::back_inserter(all.mapped));
  }
  if (all.probes.empty()) return {};
  ASSIGN_OR_RETURN(const auto mismatch, mapper.Compare(all.probes));
  if (!mismatch) return {};
  const Origin& origin = all.origins.at(mismatch->probe);
  return Fail(ErrorCode::kVerificationFailed,
              "buffer '" + request.buffers[origin.buffer].name + "' is not the memory that " +
                  mismatch->finder + " has mapped for it: at offset " +
                  std::to_string(origin.offset) + " it found " + mismatch->found +
                  " and not the bytes of the nonce",
              "either handle, descriptor or offset name other memory than the owner's (an offset "
              "counts from the base of the whole allocation), or something wrote to the buffer "
              "while it was verified: nothing may use it meanwhile",
              ElementPointer("buffers", origin.buffer) + ElementPointer("verify", origin.place));
}

}  // namespace gantry::registry
