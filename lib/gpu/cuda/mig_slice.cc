#include "lib/gpu/cuda/mig_slice.h"

namespace gantry::gpu {

// The name ends with the slice's profile, which begins with a number of slices: "1g.5gb",
// "1c.3g.20gb".
bool IsMigSlice(std::string_view device_name) {
  constexpr std::string_view kMark = " MIG ";
  const size_t at = device_name.find(kMark);
  if (at == device_name.npos) return false;
  const std::string_view profile = device_name.substr(at + kMark.size());
  const size_t end = profile.find_first_not_of("0123456789");
  return end != 0 && end != profile.npos && (profile[end] == 'g' || profile[end] == 'c');
}

}  // namespace gantry::gpu
