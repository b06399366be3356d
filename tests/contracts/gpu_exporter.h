// Another process that owns GPU memory: this test's own binary, started again. It allocates, fills,
// exports and checks what it is told to. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/fd_passing.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::testing {

// Byte `offset` of memory that was filled with a seed.
constexpr uint8_t PatternAt(uint64_t offset, uint64_t seed) {
  return static_cast<uint8_t>((offset * 131 + (offset >> 8) * 29 + (offset >> 20) * 7 + seed * 61) &
                              255);
}
std::vector<uint8_t> Pattern(uint64_t offset, uint64_t bytes, uint64_t seed);

struct Exported {
  uint64_t size = 0;
  gpu::IpcHandle handle;      // of device memory, taken in its middle
  std::vector<UniqueFd> fds;  // of virtual memory
  UniqueFd dma_buf;           // of device memory, by MakeDmaBuf
  uint64_t offset = 0;
};

class GpuExporter {
 public:
  // Whether this process was started as one, and what it then is.
  static bool IsExporter(int argc, char** argv);
  static int Run();

  static Result<GpuExporter> Start();
  GpuExporter(GpuExporter&& other) noexcept;
  GpuExporter& operator=(GpuExporter&&) = delete;
  ~GpuExporter();

  // Allocates on a GPU and fills with the pattern of the seed; replaces what it had. Neighbours are
  // allocations of the same size that it makes first.
  Result<Exported> MakeDevice(int ordinal, uint64_t bytes, uint64_t seed, int neighbours = 0);
  // As MakeDevice; the memory stays while the descriptor does.
  Result<Exported> MakeDmaBuf(int ordinal, uint64_t bytes, uint64_t seed, int neighbours = 0);
  Result<Exported> MakeVirtual(int ordinal, const std::vector<uint64_t>& pieces, uint64_t seed);
  // Whether [offset, offset + bytes) of its memory holds the pattern of the seed from there on.
  Status Check(uint64_t offset, uint64_t bytes, uint64_t seed);
  Status Free();
  void Kill();

 private:
  GpuExporter(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  Result<FdMessage> Exchange(const std::string& request);
  Result<Exported> MakeOne(const std::string& command, int ordinal, uint64_t bytes, uint64_t seed,
                           int neighbours);

  pid_t pid_ = -1;
  UniqueFd socket_;
};

}  // namespace gantry::testing
