// Verified registration in the workload: random bytes at both ends of each buffer and at its seams,
// for the sidecar's workers to find there; then the bytes that were there before. REQUIRES that
// nothing else uses the buffers from Place to Restore. One thread at a time.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/memory/host_bytes.h"
#include "client/session/client_json.h"
#include "lib/base/byte_range.h"
#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_pointers.h"
#include "lib/wire/registration_request.h"

namespace gantry::client {

// Where the nonces of a buffer of these pieces go, in its flat bytes: in order, disjoint, and none
// longer than kNonceBytesMax. A short buffer is all nonce.
std::vector<ByteRange> NoncePlacesOf(std::span<const uint64_t> piece_bytes);

class PlacedNonces {
 public:
  PlacedNonces() = default;
  PlacedNonces(const PlacedNonces&) = delete;
  PlacedNonces& operator=(const PlacedNonces&) = delete;
  // Restores what was not, and has nobody to tell of a failure.
  ~PlacedNonces();

  // Writes nonces into the buffers and notes in each request what is to be found where. After an
  // error the bytes are again what they were. Once.
  Status Place(std::span<BufferRequest> requests);
  // Puts the bytes back; goes on past failures and returns the first. Again: tries those anew.
  Status Restore();

 private:
  using Bytes = std::array<char, wire::kNonceBytesMax>;

  // A nonce, or what of it lies in one piece.
  struct Part {
    std::shared_ptr<Arena> arena;       // keeps the memory mapped; null: on a GPU
    gpu::GpuHostCopies* gpu = nullptr;  // that GPU
    uint64_t address = 0;
    size_t bytes = 0;
    size_t buffer = 0;
    uint64_t offset = 0;  // in the buffer
    Bytes before{};
    bool changed = false;  // or may be
  };

  Status AddParts(const BufferRequest& request, size_t buffer);
  Status AddPart(const ResolvedPiece& piece, uint64_t offset, uint64_t bytes, Part part);
  Result<gpu::GpuHostCopies*> CopiesFor(const std::string& uuid);
  Status Read(const Part& part, Bytes* to) const;
  Status Write(const Part& part, const Bytes& from) const;
  Status WriteAll();
  Status RestoreOne(Part* part);

  std::optional<HostBytes> host_;
  std::map<std::string, std::unique_ptr<gpu::GpuHostCopies>> gpus_;  // by UUID
  std::vector<Part> parts_;
};

}  // namespace gantry::client
