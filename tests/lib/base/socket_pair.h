// Two ends of a Unix stream socket, for tests. Stateless; thread-safe.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "lib/base/unique_fd.h"

namespace gantry::testing {

inline std::array<UniqueFd, 2> SocketPair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace gantry::testing
