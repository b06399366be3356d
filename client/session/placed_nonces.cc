#include "client/session/placed_nonces.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "lib/base/random_id.h"
#include "lib/gpu/loaded_gpu_pointers.h"

namespace gantry::client {
namespace {

// On either side of a seam.
constexpr uint64_t kSeamBytes = wire::kNonceBytesMax / 2;

uint64_t BytesOf(const ResolvedPiece& piece) {
  return std::visit([](const auto& part) { return part.bytes; }, piece);
}

// Random, and in every place another byte than `before`: what was not written is not taken for it.
template <typename Bytes>
Bytes NonceUnlike(const Bytes& before) {
  Bytes nonce;
  static_assert(sizeof(nonce) == 2 * sizeof(uint64_t));
  for (size_t half = 0; half < 2; ++half) {
    const uint64_t random = RandomGeneration();
    std::memcpy(nonce.data() + half * sizeof(random), &random, sizeof(random));
  }
  for (size_t i = 0; i < nonce.size(); ++i) {
    if (nonce[i] == before[i]) nonce[i] = static_cast<char>(~before[i]);
  }
  return nonce;
}

// Where a file was truncated, no page is there to read or write.
Status Explained(Status status, const Arena& arena) {
  struct stat info = {};
  if (status || ::fstat(arena.fd(), &info) != 0 ||
      static_cast<uint64_t>(info.st_size) >= arena.bytes()) {
    return status;
  }
  return Fail(ErrorCode::kFdTooShort,
              "the file of the memory has " + std::to_string(info.st_size) + " bytes of " +
                  std::to_string(arena.bytes()) + " left",
              "do not truncate the file of a buffer, or register it again as long as it is");
}

}  // namespace

std::vector<ByteRange> NoncePlacesOf(std::span<const uint64_t> piece_bytes) {
  uint64_t length = 0;
  for (const uint64_t bytes : piece_bytes) length += bytes;
  std::vector<ByteRange> wanted = {{0, std::min<uint64_t>(length, wire::kNonceBytesMax)}};
  uint64_t seam = 0;
  for (const uint64_t bytes : piece_bytes) {
    seam += bytes;
    if (seam == length) continue;
    const uint64_t begin = seam - std::min(seam, kSeamBytes);
    wanted.push_back({begin, seam + std::min(length - seam, kSeamBytes) - begin});
  }
  wanted.push_back({length - wanted.front().length, wanted.front().length});
  std::sort(wanted.begin(), wanted.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });

  std::vector<ByteRange> places;
  uint64_t covered = 0;  // everything before is in a place, or in none
  for (const ByteRange& range : wanted) {
    const uint64_t end = range.offset + range.length;
    for (uint64_t at = std::max(covered, range.offset); at < end;) {
      const uint64_t bytes = std::min<uint64_t>(end - at, wire::kNonceBytesMax);
      places.push_back({at, bytes});
      at += bytes;
    }
    covered = std::max(covered, end);
  }
  return places;
}

PlacedNonces::~PlacedNonces() {
  for (Part& part : parts_) {
    try {
      static_cast<void>(RestoreOne(&part));
    } catch (...) {  // no memory for its error: the others are restored all the same
    }
  }
}

Status PlacedNonces::Place(std::span<BufferRequest> requests) {
  for (size_t i = 0; i < requests.size(); ++i) RETURN_IF_ERROR(AddParts(requests[i], i));
  // All of them first: where two name the same memory, the other's nonce is not what was there.
  for (Part& part : parts_) RETURN_IF_ERROR(Read(part, &part.before));
  Status written = WriteAll();
  // Read again for the same reason: what is there now is what a worker has to find.
  for (size_t i = 0; written && i < parts_.size(); ++i) {
    Bytes there{};
    written = Read(parts_[i], &there);
    if (!written) break;
    requests[parts_[i].buffer].verify.push_back(
        {parts_[i].offset, std::string(there.data(), parts_[i].bytes)});
  }
  if (written) return {};
  if (Status restored = Restore(); !restored) {
    written.error().message +=
        "; then its bytes could not be restored: " + restored.error().message;
  }
  return written;
}

Status PlacedNonces::WriteAll() {
  for (Part& part : parts_) {
    part.changed = true;
    RETURN_IF_ERROR(Write(part, NonceUnlike(part.before)));
  }
  return {};
}

Status PlacedNonces::Restore() {
  Status first;
  for (Part& part : parts_) {
    Status restored = RestoreOne(&part);
    if (!restored && first) first = std::move(restored);
  }
  return first;
}

Status PlacedNonces::RestoreOne(Part* part) {
  if (!part->changed) return {};
  RETURN_IF_ERROR(Write(*part, part->before));
  part->changed = false;
  return {};
}

Status PlacedNonces::AddParts(const BufferRequest& request, size_t buffer) {
  std::vector<uint64_t> lengths;
  for (const ResolvedPiece& piece : request.pieces) lengths.push_back(BytesOf(piece));
  size_t piece = 0;
  uint64_t begin = 0;  // of the piece, in the buffer
  for (ByteRange place : NoncePlacesOf(lengths)) {
    while (place.length > 0) {
      while (place.offset >= begin + lengths[piece]) begin += lengths[piece++];
      const uint64_t within = place.offset - begin;
      const uint64_t bytes = std::min(place.length, lengths[piece] - within);
      Part part;
      part.buffer = buffer;
      part.offset = place.offset;
      RETURN_IF_ERROR(AddPart(request.pieces[piece], within, bytes, std::move(part)));
      place.offset += bytes;
      place.length -= bytes;
    }
  }
  return {};
}

Status PlacedNonces::AddPart(const ResolvedPiece& piece, uint64_t offset, uint64_t bytes,
                             Part part) {
  part.bytes = bytes;
  if (const auto* extent = std::get_if<Extent>(&piece)) {
    if (!host_) {
      ASSIGN_OR_RETURN(host_, HostBytes::Create());
    }
    part.arena = extent->arena;
    part.address = reinterpret_cast<uintptr_t>(extent->arena->data()) + extent->offset + offset;
  } else {
    const auto& on_gpu = std::get<GpuPiece>(piece);
    ASSIGN_OR_RETURN(part.gpu, CopiesFor(on_gpu.allocation->device_uuid));
    part.address = NumberOf(on_gpu.allocation->range.base) + on_gpu.offset + offset;
  }
  parts_.push_back(std::move(part));
  return {};
}

Result<gpu::GpuHostCopies*> PlacedNonces::CopiesFor(const std::string& uuid) {
  std::unique_ptr<gpu::GpuHostCopies>& copies = gpus_[uuid];
  if (copies != nullptr) return copies.get();
  ASSIGN_OR_RETURN(const gpu::GpuPointers* driver, gpu::LoadedGpuPointers());
  for (const gpu::DeviceInfo& device : driver->devices()) {
    if (device.uuid != uuid) continue;
    ASSIGN_OR_RETURN(copies, driver->OpenHostCopies(device.ordinal));
    return copies.get();
  }
  return Fail(ErrorCode::kDeviceError, "the GPU driver does not know GPU " + uuid + " any more");
}

Status PlacedNonces::Read(const Part& part, Bytes* to) const {
  if (part.gpu == nullptr) {
    return Explained(
        host_->Read(to->data(), reinterpret_cast<const void*>(part.address), part.bytes),
        *part.arena);
  }
  return part.gpu->CopyToHost(to->data(), static_cast<gpu::DeviceAddress>(part.address),
                              part.bytes);
}

Status PlacedNonces::Write(const Part& part, const Bytes& from) const {
  if (part.gpu == nullptr) {
    return Explained(host_->Write(reinterpret_cast<void*>(part.address), from.data(), part.bytes),
                     *part.arena);
  }
  return part.gpu->CopyFromHost(static_cast<gpu::DeviceAddress>(part.address), from.data(),
                                part.bytes);
}

}  // namespace gantry::client
