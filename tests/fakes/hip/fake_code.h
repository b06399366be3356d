// What the fake compiler makes of a kernel's source, and the fake runtime loads. Plain values.
#pragma once

#include <cstring>

namespace gantry::fake_hip {

struct Code {
  char magic[12] = "fake gfx90a";
  unsigned warp_threads = 0;

  // Null when the image is none.
  static const Code* In(const void* image) {
    return std::memcmp(image, Code().magic, sizeof(magic)) == 0 ? static_cast<const Code*>(image)
                                                                : nullptr;
  }
};

}  // namespace gantry::fake_hip
