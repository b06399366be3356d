// Bounds one workload's received notifications. Unread ones are never dropped to make room. It
// knows only sequence numbers and sizes. Guarded by the event log's mutex.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace gantry::engine {

// Per workload.
struct NotificationLimits {
  size_t messages_max = 1024;
  size_t bytes_max = size_t{4} << 20;
};

class NotificationWindow {
 public:
  uint64_t generation() const { return generation_; }
  size_t size() const { return kept_.size(); }

  // Starts a new registration of the workload. Returns the sequence numbers of the previous one's
  // notifications, which are dropped.
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

  // Drops read notifications to make room and appends them to `dropped`. Returns false if that is
  // not enough.
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

  // Drops everything up to `sequence`.
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
  uint64_t read_ = 0;  // the last sequence number read
  size_t bytes_ = 0;
  std::deque<Message> kept_;
};

}  // namespace gantry::engine
