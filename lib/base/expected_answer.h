// When an answer is to be looked for, where each takes about as long as those before it: a thread
// that sleeps is woken 0.1 to 0.3 ms late where idle processors are slow, so it sleeps until
// shortly before and spins around that time. By one thread.
#pragma once

#include "lib/base/adaptive_spin.h"
#include "lib/base/clock.h"

namespace gantry {

class ExpectedAnswer {
 public:
  // Whether it pays to spin for longer than a wake-up takes: not where the processors are few and
  // who answers wants them.
  enum class Patience { kByProcessors, kShort, kLong };

  explicit ExpectedAnswer(Patience patience);

  // When it is looked for, after the request; nothing where the two are 0.
  struct Window {
    nanoseconds from{0};
    nanoseconds until{0};
  };
  // Of the next answer; nothing without patience.
  Window window() const { return is_long_ ? WindowOf(last_, before_last_) : Window(); }
  // To look for it within the window.
  AdaptiveSpin& spin() { return spin_; }
  // How long the one that is there took.
  void Learn(nanoseconds taken);

  // Where the last two answers took so long; 0: not known.
  static Window WindowOf(nanoseconds last, nanoseconds before_last);

 private:
  AdaptiveSpin spin_;
  bool is_long_;
  nanoseconds last_{0};  // how long the last two took; 0: not known
  nanoseconds before_last_{0};
};

}  // namespace gantry
