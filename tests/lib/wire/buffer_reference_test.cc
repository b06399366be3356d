#include <gtest/gtest.h>

#include "lib/wire/transfer_request.h"

namespace gantry::wire {
namespace {

TEST(BufferReferenceTest, ReadsAndWritesEachForm) {
  for (const char* text :
       {"k", "k@00000000000000ff", "w/k", "p/w/k", "p/w/k.0:1+=-_@0123456789abcdef"}) {
    const auto reference = ParseReference(text, "/remote/0", 3);
    ASSERT_TRUE(reference) << text;
    EXPECT_EQ(FormatReference(*reference), text);
  }
  EXPECT_EQ(*ParseReference("p/w/k@1", "", 3), (BufferReference{"p", "w", "k", 1}));
}

TEST(BufferReferenceTest, RefusesWhatNamesNoBuffer) {
  for (const char* text : {"", "/", "a/", "/a", "a//b", "a/b/c/d", "a@", "a@0", "a@xyz", "a@1@2",
                           "a@12345678901234567", "a b", "a/b@c/d", "\xc3\xa9"}) {
    const auto reference = ParseReference(text, "/remote/0", 3);
    ASSERT_FALSE(reference) << text;
    EXPECT_EQ(reference.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(reference.error().field, "/remote/0");
  }
  EXPECT_FALSE(ParseReference("w/k", "/local/0", 1));
  EXPECT_FALSE(ParseReference(std::string(129, 'a'), "/local/0", 1));
}

}  // namespace
}  // namespace gantry::wire
