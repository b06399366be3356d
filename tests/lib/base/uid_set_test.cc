#include "lib/base/uid_set.h"

#include <gtest/gtest.h>

namespace gantry {
namespace {

TEST(UidSet, HasItsNumbersAndBothEndsOfItsRanges) {
  const auto set = UidSet::Parse(std::vector<std::string>{"0", "65532", "1000-1009"});
  ASSERT_TRUE(set) << set.error().message;
  for (const uid_t uid : {0U, 65532U, 1000U, 1005U, 1009U}) EXPECT_TRUE(set->Has(uid)) << uid;
  for (const uid_t uid : {1U, 65531U, 65533U, 999U, 1010U}) EXPECT_FALSE(set->Has(uid)) << uid;
  EXPECT_FALSE(set->empty());
}

TEST(UidSet, OfNothingHasNobody) {
  const auto set = UidSet::Parse({});
  ASSERT_TRUE(set);
  EXPECT_TRUE(set->empty());
  EXPECT_FALSE(set->Has(0));
}

TEST(UidSet, RefusesWhatIsNoUser) {
  for (const char* text : {"", "-", "1-", "-1", "2-1", "1-2-3", "root", "1 ", " 1", "+1", "0x10",
                           "4294967295", "0-4294967295", "99999999999"}) {
    const auto set = UidSet::Parse(std::vector<std::string>{"7", text});
    ASSERT_FALSE(set) << text;
    EXPECT_NE(set.error().message.find("'" + std::string(text) + "'"), std::string::npos);
  }
}

}  // namespace
}  // namespace gantry
