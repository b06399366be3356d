// One transfer's use of a hold: notifies the owner when it ends, in any way. Movable; used by one
// thread at a time.
#pragma once

#include <functional>
#include <utility>

namespace gantry::engine {

class HoldReading {
 public:
  HoldReading() = default;
  // `end` must not block.
  explicit HoldReading(std::function<void(bool succeeded)> end) : end_(std::move(end)) {}
  HoldReading(HoldReading&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
  HoldReading& operator=(HoldReading&& other) noexcept {
    End(false);
    end_ = std::exchange(other.end_, nullptr);
    return *this;
  }
  ~HoldReading() { End(false); }

  void End(bool succeeded) {
    if (const auto end = std::exchange(end_, nullptr)) end(succeeded);
  }

 private:
  std::function<void(bool succeeded)> end_;
};

}  // namespace gantry::engine
