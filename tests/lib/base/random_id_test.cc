#include "lib/base/random_id.h"

#include <gtest/gtest.h>

#include <set>

namespace gantry {
namespace {

TEST(RandomIdTest, GenerationsAreNeverZeroAndDoNotRepeat) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(RandomGeneration());
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_FALSE(seen.contains(0));
}

TEST(RandomIdTest, TokensAre32LowerCaseHexDigits) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string token = RandomToken();
    EXPECT_EQ(token.size(), 32u);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos) << token;
    seen.insert(token);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(RandomIdTest, HexRoundTrip) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{0xfeedface}, ~uint64_t{0}}) {
    EXPECT_EQ(HexOf(value).size(), 16u);
    EXPECT_EQ(*ParseHex(HexOf(value)), value);
  }
  EXPECT_EQ(*ParseHex("0xAb"), 0xabu);
  for (const char* text : {"", "0x", "g", "-1", " 1", "00000000000000001", "1 "}) {
    EXPECT_FALSE(ParseHex(text)) << text;
  }
}

TEST(RandomIdTest, SecretsAreEqualOnlyWhole) {
  EXPECT_TRUE(EqualSecrets("abc", "abc"));
  EXPECT_TRUE(EqualSecrets("", ""));
  EXPECT_FALSE(EqualSecrets("abc", "abd"));
  EXPECT_FALSE(EqualSecrets("abc", "ab"));
  EXPECT_FALSE(EqualSecrets("", "a"));
}

}  // namespace
}  // namespace gantry
