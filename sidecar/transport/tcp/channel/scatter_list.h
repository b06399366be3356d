// The memory of one payload, and how much of it has been moved. Computes the checksum on the way.
// Used by one thread at a time; owns no memory.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gantry::transport {

class ScatterList {
 public:
  void Clear();
  // Back to the beginning, for another attempt.
  void Rewind();
  // Merges adjacent parts.
  void Add(std::byte* data, size_t bytes);

  uint64_t total() const { return total_; }
  uint64_t left() const { return left_; }
  bool done() const { return left_ == 0; }

  // Fills in up to `count_max` parts of the rest, at most `bytes_max` bytes. Returns their number.
  int Fill(iovec* parts, int count_max, uint64_t bytes_max) const;
  // Marks `bytes` as moved. With `crc` they are added to the checksum, in order.
  void Advance(uint64_t bytes, bool crc);
  // The checksum of all bytes advanced with `crc`.
  uint32_t crc() const { return crc_; }
  // The checksum of all bytes, moved or not.
  uint32_t WholeCrc() const;

 private:
  std::vector<iovec> parts_;
  size_t part_ = 0;
  size_t within_ = 0;
  uint64_t total_ = 0;
  uint64_t left_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace gantry::transport
