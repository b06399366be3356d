#include "sidecar/transport/tcp/channel/scatter_list.h"

#include <algorithm>

#include "sidecar/transport/tcp/channel/crc32c.h"

namespace gantry::transport {

void ScatterList::Clear() {
  parts_.clear();
  part_ = within_ = 0;
  total_ = left_ = 0;
  crc_ = 0;
}

void ScatterList::Rewind() {
  part_ = within_ = 0;
  left_ = total_;
  crc_ = 0;
}

void ScatterList::Add(std::byte* data, size_t bytes) {
  total_ += bytes;
  left_ += bytes;
  if (!parts_.empty()) {
    iovec& last = parts_.back();
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += bytes;
      return;
    }
  }
  parts_.push_back({data, bytes});
}

int ScatterList::Fill(iovec* parts, int count_max, uint64_t bytes_max) const {
  int count = 0;
  size_t within = within_;
  for (size_t i = part_; i < parts_.size() && count < count_max && bytes_max > 0; ++i) {
    const uint64_t bytes = std::min<uint64_t>(parts_[i].iov_len - within, bytes_max);
    parts[count++] = {static_cast<std::byte*>(parts_[i].iov_base) + within, bytes};
    bytes_max -= bytes;
    within = 0;
  }
  return count;
}

void ScatterList::Advance(uint64_t bytes, bool crc) {
  left_ -= bytes;
  while (bytes > 0) {
    const iovec& part = parts_[part_];
    const uint64_t here = std::min<uint64_t>(part.iov_len - within_, bytes);
    if (crc) crc_ = Crc32c(crc_, static_cast<const std::byte*>(part.iov_base) + within_, here);
    within_ += here;
    bytes -= here;
    if (within_ == part.iov_len) {
      ++part_;
      within_ = 0;
    }
  }
}

uint32_t ScatterList::WholeCrc() const {
  uint32_t crc = 0;
  for (const iovec& part : parts_) crc = Crc32c(crc, part.iov_base, part.iov_len);
  return crc;
}

}  // namespace gantry::transport
