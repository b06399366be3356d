// Expects the error that a malformed message of a peer gives. Stateless.
#pragma once

#include <gtest/gtest.h>

#include "lib/base/error.h"

namespace gantry::wire {

template <typename Answer>
void ExpectMalformed(const Answer& answer) {
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kMalformedBody);
  EXPECT_FALSE(answer.error().message.empty());
}

}  // namespace gantry::wire
