// Memory that one call of the driver gives back, any vendor's: allocated, opened or registered.
// Used by one thread at a time, as are all of them.
#pragma once

#include <functional>
#include <string_view>

#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

class OwnedMemory final : public GpuHostMemory {
 public:
  using GiveBack = std::function<Status()>;  // called once; its error is for the caller or the log

  // `left`: what is so when that has failed, for the log; text of the program.
  OwnedMemory(AddressRange range, std::string_view left, GiveBack give_back);
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;
  ~OwnedMemory() override;

  AddressRange range() const override { return range_; }
  Status Unregister() override;

 private:
  const AddressRange range_;
  const std::string_view left_;
  GiveBack give_back_;  // empty: that was tried
};

inline constexpr std::string_view kStaysOnGpu = "gpu memory could not be released";
inline constexpr std::string_view kStaysPinned = "host memory stays pinned";

}  // namespace gantry::gpu
