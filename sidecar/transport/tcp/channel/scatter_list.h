// Where the bytes of one payload lie in memory, and how far they have been moved. Sums their
// checksum on the way. Used by one thread at a time; owns no memory.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gantry::transport {

class ScatterList {
 public:
  void Clear();
  // To the beginning, for another attempt.
  void Rewind();
  // Adjacent parts become one.
  void Add(std::byte* data, size_t bytes);

  uint64_t total() const { return total_; }
  uint64_t left() const { return left_; }
  bool done() const { return left_ == 0; }

  // Up to `count_max` parts of what is left, and not more than `bytes_max`; returns how many.
  int Fill(iovec* parts, int count_max, uint64_t bytes_max) const;
  // `bytes` were moved. With `crc` they are added to the checksum, in order.
  void Advance(uint64_t bytes, bool crc);
  // Of what was advanced with `crc`.
  uint32_t crc() const { return crc_; }
  // Of everything, moved or not.
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
