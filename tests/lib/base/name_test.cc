#include "lib/base/name.h"

#include <gtest/gtest.h>

namespace gantry {
namespace {

TEST(NameTest, TakesWhatNeedsNoEscaping) {
  for (const char* name : {"a", "layer.0:k", "A_b-9", "x+y=z", "..."}) {
    EXPECT_TRUE(CheckName(name, "/name")) << name;
  }
  EXPECT_TRUE(CheckName(std::string(kNameLengthMax, 'a'), "/name"));
}

TEST(NameTest, RefusesTheRestAndNamesTheField) {
  for (const std::string& name :
       {std::string(), std::string(kNameLengthMax + 1, 'a'), std::string("a/b"), std::string("a@b"),
        std::string("a b"), std::string("a\0b", 3), std::string("a\n"), std::string("\xc3\xa4"),
        std::string("a%2f"), std::string("a?"), std::string("a#")}) {
    const auto outcome = CheckName(name, "/buffers/3/name");
    ASSERT_FALSE(outcome) << name;
    EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome.error().field, "/buffers/3/name");
  }
}

}  // namespace
}  // namespace gantry
