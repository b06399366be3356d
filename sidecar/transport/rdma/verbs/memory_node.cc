#include "sidecar/transport/rdma/verbs/memory_node.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace gantry::transport {
namespace {

constexpr uint64_t kSamples = 32;  // of all the memory, a microsecond each

int NodeOfPage(const std::byte* address) {
  int node = -1;
  const long failed =
      ::syscall(SYS_get_mempolicy, &node, nullptr, 0, address, MPOL_F_NODE | MPOL_F_ADDR);
  return failed == 0 ? node : -1;
}

}  // namespace

int MemoryNodeOf(const std::vector<std::span<const std::byte>>& memory) {
  uint64_t length = 0;
  for (const auto& part : memory) length += part.size();
  int node = -1;
  uint64_t sample = 0;
  uint64_t begin = 0;  // of the part
  for (const auto& part : memory) {
    for (; sample < kSamples; ++sample) {
      const uint64_t at = length / kSamples * sample;
      if (at >= begin + part.size()) break;
      const int here = NodeOfPage(part.data() + (at - begin));
      if (here < 0 || (node >= 0 && here != node)) return -1;
      node = here;
    }
    begin += part.size();
  }
  return node;
}

}  // namespace gantry::transport
