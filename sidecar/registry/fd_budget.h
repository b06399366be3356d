// A limit of open descriptors. A descriptor counts from hand-off until it is closed, when neither a
// token nor an allocation refers to it. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "lib/base/unique_fd.h"

namespace gantry::registry {

class FdBudget {
 public:
  explicit FdBudget(size_t fds_max) : fds_max_(fds_max) {}

  // Takes room for all `count` or none.
  bool Take(size_t count) {
    size_t held = held_.load(std::memory_order_relaxed);
    do {
      if (count > fds_max_ - held) return false;
    } while (!held_.compare_exchange_weak(held, held + count, std::memory_order_relaxed));
    return true;
  }
  void GiveBack(size_t count) { held_.fetch_sub(count, std::memory_order_relaxed); }

  size_t held() const { return held_.load(std::memory_order_relaxed); }
  size_t fds_max() const { return fds_max_; }

 private:
  const size_t fds_max_;
  std::atomic<size_t> held_{0};
};

// A descriptor that frees its place in both budgets after closing. REQUIRES that the place is
// taken.
inline std::shared_ptr<const UniqueFd> CountedFd(UniqueFd fd, std::shared_ptr<FdBudget> own,
                                                 std::shared_ptr<FdBudget> total) {
  return {new UniqueFd(std::move(fd)),
          [own = std::move(own), total = std::move(total)](const UniqueFd* closing) {
            delete closing;
            own->GiveBack(1);
            total->GiveBack(1);
          }};
}

inline std::shared_ptr<const UniqueFd> CountedFd(UniqueFd fd, std::shared_ptr<FdBudget> budget) {
  return {new UniqueFd(std::move(fd)), [budget = std::move(budget)](const UniqueFd* closing) {
            delete closing;
            budget->GiveBack(1);
          }};
}

}  // namespace gantry::registry
