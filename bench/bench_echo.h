// What a socket takes when nobody serves it: bytes sent to a thread that sleeps until they come,
// and does nothing but send them back. Used by one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::bench {

class BenchEcho {
 public:
  static Result<std::unique_ptr<BenchEcho>> Start();
  ~BenchEcho();

  // `bytes` go there and back.
  Status Call(size_t bytes);

 private:
  BenchEcho(UniqueFd here, UniqueFd there);

  const UniqueFd here_;
  const UniqueFd there_;
  std::jthread thread_;
};

}  // namespace gantry::bench
