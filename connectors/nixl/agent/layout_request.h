// The message by which an agent asks another one to offer buffers by blocks of one length, beside
// the buffers as they were registered. Values; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace gantry::nixl {

struct LayoutRequest {
  uint64_t block_bytes = 0;
  std::vector<std::string> buffers;
  bool operator==(const LayoutRequest&) const = default;
};

// Shorter ones are no blocks.
inline constexpr uint64_t kBlockBytesMin = 512;
// At most so many in one message.
inline constexpr size_t kLayoutBuffersMax = 256;

std::string TextOf(uint64_t block_bytes, std::span<const std::string> buffers);
bool IsLayoutRequest(std::string_view message);
Result<LayoutRequest> ReadLayoutRequest(std::string_view message);

// The name of a buffer's blocks of that length.
std::string LayoutName(const std::string& buffer, uint64_t block_bytes);

}  // namespace gantry::nixl
