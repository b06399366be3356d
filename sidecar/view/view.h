// A view: pairs of buffers of two workloads, in groups, so that a transfer names only blocks. Plain
// values, immutable once made; refreshing replaces them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/wire/view_request.h"
#include "sidecar/plan/block_shape.h"

namespace gantry::engine {

struct ViewGroupInfo {
  uint32_t group = 0;
  size_t first_pair = 0;
  size_t pairs = 0;
  BlockShape shape;
  uint64_t bytes_per_block = 0;  // moved per pair of block ids, over all pairs of the group
};

struct View {
  wire::ViewRequest request;  // as requested
  std::string id;
  uint64_t workload_generation = 0;
  std::vector<ViewGroupInfo> groups;
  // The pairs of all groups in sequence: names, the request's fields for them, and references with
  // resolved generations.
  std::vector<wire::ViewPair> pairs;
  std::vector<std::string> fields;
  std::vector<wire::BufferReference> local;
  std::vector<wire::BufferReference> remote;
  uint64_t bytes_per_block = 0;  // total over all groups
  std::vector<std::string> warnings;
};
using ViewPointer = std::shared_ptr<const View>;

}  // namespace gantry::engine
