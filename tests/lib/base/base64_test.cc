#include "lib/base/base64.h"

#include <gtest/gtest.h>

#include <random>

namespace gantry {
namespace {

TEST(Base64Test, TheExamplesOfTheStandard) {
  const std::pair<std::string, std::string> pairs[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : pairs) {
    EXPECT_EQ(Base64Of(bytes), text);
    EXPECT_EQ(*ParseBase64(text), bytes);
  }
}

TEST(Base64Test, AnyBytesComeBack) {
  std::mt19937 random(7);
  for (size_t size = 0; size < 200; ++size) {
    std::string bytes;
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(random());
    EXPECT_EQ(Base64Of(bytes).size(), Base64Length(size));
    EXPECT_EQ(*ParseBase64(Base64Of(bytes)), bytes);
  }
}

TEST(Base64Test, AnythingElseIsRefused) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "=g==", "Z===", "Zm 9",
                           "Zm9v\n", "Zm-_", "====", "Zg=a"}) {
    EXPECT_FALSE(ParseBase64(text)) << text;
  }
}

}  // namespace
}  // namespace gantry
