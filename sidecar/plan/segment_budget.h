// A limit of the segments of all plans, including unfinished ones. It bounds the memory of
// planning. Thread-safe; a reservation is used by one thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace gantry::engine {

class SegmentBudget {
 public:
  explicit SegmentBudget(uint64_t segments_max) : segments_max_(segments_max) {}

  uint64_t segments_max() const { return segments_max_; }
  uint64_t reserved() const { return reserved_.load(std::memory_order_relaxed); }

 private:
  friend class SegmentReservation;
  bool Take(uint64_t segments) {
    const uint64_t before = reserved_.fetch_add(segments, std::memory_order_relaxed);
    if (before + segments <= segments_max_) return true;
    GiveBack(segments);
    return false;
  }
  void GiveBack(uint64_t segments) { reserved_.fetch_sub(segments, std::memory_order_relaxed); }

  const uint64_t segments_max_;
  std::atomic<uint64_t> reserved_{0};
};

// Part of a budget; returned on destruction.
class SegmentReservation {
 public:
  SegmentReservation() = default;
  explicit SegmentReservation(SegmentBudget& budget) : budget_(&budget) {}
  SegmentReservation(SegmentReservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), taken_(std::exchange(other.taken_, 0)) {}
  SegmentReservation& operator=(SegmentReservation&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(taken_, other.taken_);
    return *this;
  }
  SegmentReservation(const SegmentReservation&) = delete;
  SegmentReservation& operator=(const SegmentReservation&) = delete;
  ~SegmentReservation() { Reset(); }

  // Grows the reservation to at least `segments`, in steps; false: the budget is exhausted.
  bool Cover(uint64_t segments) {
    if (segments <= taken_) return true;
    const uint64_t more = std::max(segments - taken_, kStep);
    if (budget_ == nullptr || !budget_->Take(more)) return false;
    taken_ += more;
    return true;
  }
  void Reset() {
    if (budget_ != nullptr) budget_->GiveBack(taken_);
    taken_ = 0;
  }

 private:
  static constexpr uint64_t kStep = 1024;

  SegmentBudget* budget_ = nullptr;
  uint64_t taken_ = 0;
};

}  // namespace gantry::engine
