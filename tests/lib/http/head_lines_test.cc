#include "lib/http/head_lines.h"

#include <gtest/gtest.h>

#include <string>

namespace gantry::http {
namespace {

TEST(HeadLines, EndWithCrLf) {
  std::string_view head = "a: b\r\n\r\nrest";
  EXPECT_EQ(TakeLine(&head), "a: b");
  EXPECT_EQ(TakeLine(&head), "");
  EXPECT_FALSE(TakeLine(&head));
  EXPECT_EQ(head, "rest");
}

TEST(HeadLines, HaveNoControlCharacters) {
  for (int c = 0; c < 256; ++c) {
    for (const size_t before : {0, 3, 8, 11}) {
      const std::string line = std::string(before, 'x') + static_cast<char>(c) + "after";
      const std::string text = line + "\r\n";
      std::string_view head = text;
      EXPECT_EQ(TakeLine(&head).has_value(), (c >= 0x20 || c == '\t') && c != 0x7f) << c;
    }
  }
}

TEST(HeadLines, AHeaderHasANameAndAValueWithoutBlanksAround) {
  const auto header = HeaderIn("Content-Type: \t text/plain; x=y:z ");
  ASSERT_TRUE(header);
  EXPECT_EQ(header->name, "Content-Type");
  EXPECT_EQ(header->value, "text/plain; x=y:z");
  EXPECT_EQ(HeaderIn("a:")->value, "");
  for (const char* line : {"", "no colon", ": no name", "a b: c", "a : b", " a: b", "\x80: c"}) {
    EXPECT_FALSE(HeaderIn(line)) << line;
  }
}

TEST(HeadLines, NumbersAreDigitsAlone) {
  EXPECT_EQ(NumberIn("007", 10), 7U);
  EXPECT_EQ(NumberIn("fF", 16), 255U);
  EXPECT_EQ(NumberIn("18446744073709551615", 10), UINT64_MAX);
  EXPECT_EQ(NumberIn("99999999999999999999999", 10), UINT64_MAX);
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "0x1", "1a", "1.0"}) {
    EXPECT_FALSE(NumberIn(text, 10)) << text;
  }
}

TEST(HeadLines, CaseIsIgnored) {
  EXPECT_TRUE(EqualsIgnoringCase("Content-LENGTH", "content-Length"));
  EXPECT_FALSE(EqualsIgnoringCase("content-length", "content-lengt"));
  EXPECT_FALSE(EqualsIgnoringCase("a[", "a{")) << "they differ by the same bit as letters do";
}

}  // namespace
}  // namespace gantry::http
