// A set of a sidecar's RDMA devices, by index. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace gantry::transport {

class DeviceSet {
 public:
  static constexpr size_t kMax = 64;  // per sidecar

  constexpr DeviceSet() = default;
  constexpr DeviceSet(std::initializer_list<size_t> devices) {
    for (const size_t device : devices) Add(device);
  }
  static constexpr DeviceSet All() {
    DeviceSet all;
    all.bits_ = ~uint64_t{0};
    return all;
  }

  constexpr void Add(size_t device) { bits_ |= device < kMax ? uint64_t{1} << device : 0; }
  constexpr bool Has(size_t device) const { return device < kMax && (bits_ >> device & 1U) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr DeviceSet operator&(DeviceSet other) const {
    other.bits_ &= bits_;
    return other;
  }
  constexpr DeviceSet operator|(DeviceSet other) const {
    other.bits_ |= bits_;
    return other;
  }
  // Ascending.
  std::vector<uint32_t> List() const {
    std::vector<uint32_t> devices;
    for (uint32_t device = 0; device < kMax; ++device) {
      if (Has(device)) devices.push_back(device);
    }
    return devices;
  }
  constexpr auto operator<=>(const DeviceSet&) const = default;

 private:
  uint64_t bits_ = 0;
};

}  // namespace gantry::transport
