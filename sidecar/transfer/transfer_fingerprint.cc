#include "sidecar/transfer/transfer_fingerprint.h"

#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace gantry::engine {
namespace {

class Hash {
 public:
  template <typename T>
  Hash& Add(const T& value) {
    state_ = (state_ ^ std::hash<T>{}(value)) * 0x100000001b3ULL;
    state_ ^= state_ >> 29;
    return *this;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ULL;
};

void AddNumbers(Hash* hash, std::initializer_list<const std::vector<uint64_t>*> lists) {
  for (const auto* list : lists) {
    const auto* bytes = reinterpret_cast<const char*>(list->data());
    hash->Add(list->size()).Add(std::string_view(bytes, list->size() * sizeof(uint64_t)));
  }
}

}  // namespace

uint64_t FingerprintOf(const wire::TransferRequest& request) {
  Hash hash;
  hash.Add(request.workload).Add(static_cast<int>(request.operation)).Add(request.by_blocks);
  for (const auto* list : {&request.local, &request.remote}) {
    hash.Add(list->size());
    for (const wire::BufferReference& reference : *list) {
      hash.Add(reference.peer).Add(reference.workload).Add(reference.buffer);
      hash.Add(reference.generation);
    }
  }
  hash.Add(request.view);
  AddNumbers(&hash, {&request.local_blocks, &request.remote_blocks, &request.layers});
  for (const wire::TransferGroup& group : request.groups) {
    hash.Add(group.group);
    AddNumbers(&hash, {&group.local_blocks, &group.remote_blocks, &group.layers});
  }
  if (const auto& fence = request.fence) {
    hash.Add(fence->buffer.buffer).Add(fence->buffer.generation);
    hash.Add(fence->offset).Add(fence->value);
  }
  for (const wire::TransferRange& range : request.ranges) {
    hash.Add(range.local_index).Add(range.local_offset).Add(range.remote_index);
    hash.Add(range.remote_offset).Add(range.length);
  }
  hash.Add(request.deadline_ms.value_or(0)).Add(request.priority).Add(request.user_data);
  for (const wire::Path path : request.require_path) hash.Add(static_cast<int>(path));
  hash.Add(static_cast<int>(request.executor));
  hash.Add(request.hold).Add(request.hold_consumers);
  if (const auto& notify = request.notify) {
    hash.Add(notify->to).Add(notify->to_generation).Add(notify->request_id).Add(notify->message);
  }
  return hash.value();
}

}  // namespace gantry::engine
