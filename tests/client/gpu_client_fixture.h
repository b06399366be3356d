// A client over a sidecar that only answers, and memory of GPUs as programs make it that know
// nothing of Gantry. Used by one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/gpu/gpu_drivers.h"
#include "tests/client/client_objects.h"
#include "tests/contracts/gpu_allocations.h"

namespace gantry::client {

using gpu::AddressRange;
using gpu::MemoryOrigin;
using nlohmann::json;
using testing::GpuAllocations;

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kPiece = GpuAllocations::kPieceBytes;

inline const void* At(const AddressRange& range, uint64_t offset = 0) {
  return reinterpret_cast<const void*>(NumberOf(range.base) + offset);
}

// Returns the stream as the C interface takes it.
inline void* HandleOf(gpu::StreamHandle stream) {
  return reinterpret_cast<void*>(static_cast<uint64_t>(stream));
}

inline size_t OpenFds() {
  namespace fs = std::filesystem;
  return static_cast<size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

class GpuClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_ = gpu::LoadGpuDriver().value();
    context_ = driver_->OpenContext(0).value();
    allocations_ = GpuAllocations::On(*context_).value();
  }

  AddressRange Make(MemoryOrigin origin, uint64_t bytes) {
    return allocations_->Make(origin, bytes).value();
  }
  gantry_error* Register(const char* name, const void* address, uint64_t bytes,
                         gantry_buffer** buffer) {
    const gantry_piece piece = {address, bytes};
    gantry_buffer_spec spec = {};
    spec.name = name;
    spec.pieces = &piece;
    spec.piece_count = 1;
    return gantry_buffers_register(it_.client, &spec, 1, buffer);
  }
  json LastBody() { return json::parse(it_.sidecar.requests().back().body); }
  uint64_t IdOf(const AddressRange& range, uint64_t offset = 0) {
    return driver_->Resolve(NumberOf(range.base) + offset).value().buffer_id;
  }
  // Frees memory and allocates as much, until the address comes again.
  AddressRange AllocateAgain(const AddressRange& range) {
    EXPECT_TRUE(allocations_->Free(range));
    for (int i = 0; i < 100; ++i) {
      const AddressRange made = Make(MemoryOrigin::kDevice, range.size);
      if (made == range) return made;
    }
    ADD_FAILURE() << "the address did not come again";
    return {};
  }

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::unique_ptr<gpu::GpuContext> context_;
  std::unique_ptr<GpuAllocations> allocations_;
  OpenClient it_;
};

}  // namespace gantry::client
