// What one workload was sent and may still read: bounded, and nothing that it has not read makes
// room. Knows sequence numbers and sizes alone. Guarded by the event log's mutex.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace gantry::engine {

// Of each workload.
struct NotificationLimits {
  size_t messages_max = 1024;
  size_t bytes_max = size_t{4} << 20;
};

class NotificationWindow {
 public:
  uint64_t generation() const { return generation_; }
  size_t size() const { return kept_.size(); }

  // The workload's life from now on; another one before it is over, and what it was sent is
  // answered: it is kept no more.
  std::vector<uint64_t> BeginLife(uint64_t generation) {
    std::vector<uint64_t> dropped;
    if (generation == generation_) return dropped;
    for (const Message& message : kept_) dropped.push_back(message.sequence);
    *this = NotificationWindow();
    generation_ = generation;
    return dropped;
  }

  void Acknowledge(uint64_t generation, uint64_t sequence) {
    if (generation == generation_) read_ = std::max(read_, sequence);
  }

  // Appends to `dropped` what was read and has to go. False: there is no room even so.
  bool MakeRoom(size_t bytes, const NotificationLimits& limits, std::vector<uint64_t>* dropped) {
    while (!kept_.empty() &&
           (kept_.size() >= limits.messages_max || bytes_ + bytes > limits.bytes_max)) {
      if (kept_.front().sequence > read_) return false;
      dropped->push_back(kept_.front().sequence);
      Drop(kept_.front().sequence);
    }
    return true;
  }

  void Add(uint64_t sequence, size_t bytes) {
    kept_.push_back({sequence, bytes});
    bytes_ += bytes;
  }

  // Everything up to `sequence` is kept no more.
  void Drop(uint64_t sequence) {
    while (!kept_.empty() && kept_.front().sequence <= sequence) {
      bytes_ -= kept_.front().bytes;
      kept_.pop_front();
    }
  }

 private:
  struct Message {
    uint64_t sequence;
    size_t bytes;
  };

  uint64_t generation_ = 0;
  uint64_t read_ = 0;  // everything up to it
  size_t bytes_ = 0;
  std::deque<Message> kept_;
};

}  // namespace gantry::engine
