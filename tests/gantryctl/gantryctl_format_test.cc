// Sizes, times and tables.
#include <gtest/gtest.h>

#include "gantryctl/size_text.h"
#include "gantryctl/text_table.h"

namespace gantry::gantryctl {
namespace {

TEST(SizeText, ReadsWhatPeopleWrite) {
  EXPECT_EQ(ParseSize("4096").value(), 4096u);
  EXPECT_EQ(ParseSize("0").value(), 0u);
  EXPECT_EQ(ParseSize("17B").value(), 17u);
  EXPECT_EQ(ParseSize("64KiB").value(), 65536u);
  EXPECT_EQ(ParseSize("64Ki").value(), 65536u);
  EXPECT_EQ(ParseSize("1 GiB").value(), 1u << 30);
  EXPECT_EQ(ParseSize("1.5MiB").value(), 3u << 19);
  EXPECT_EQ(ParseSize("1MB").value(), 1'000'000u);
  EXPECT_EQ(ParseSize("2TiB").value(), uint64_t{2} << 40);
}

TEST(SizeText, RefusesWhatMayMeanTwoThingsOrNone) {
  for (const char* text : {"", "K", "64K", "1G", "-1", "-1KiB", "0.3B", "1e3", "64kib", "1 GiB ",
                           "9999999TiB", "nan", "inf", "0x10", "1,5"}) {
    EXPECT_FALSE(ParseSize(text)) << text;
  }
  EXPECT_EQ(ParseSize("64K").error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(ParseSize("64K").error().hint.empty());
}

TEST(SizeText, ReadsLists) {
  EXPECT_EQ(ParseSizes("1,16,1KiB").value(), (std::vector<uint64_t>{1, 16, 1024}));
  EXPECT_FALSE(ParseSizes("1,,2"));
  EXPECT_FALSE(ParseSizes(""));
}

TEST(SizeText, WritesShortly) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(1023), "1023 B");
  EXPECT_EQ(FormatSize(65536), "64 KiB");
  EXPECT_EQ(FormatSize(3u << 29), "1.5 GiB");
  EXPECT_EQ(FormatSize(UINT64_MAX), "16 EiB");
  EXPECT_EQ(FormatMicroseconds(8.25), "8.2 us");
  EXPECT_EQ(FormatMicroseconds(850), "850 us");
  EXPECT_EQ(FormatMicroseconds(1234), "1.2 ms");
  EXPECT_EQ(FormatMicroseconds(3.4e6), "3.4 s");
  EXPECT_EQ(FormatSeconds(42.9), "42 s");
  EXPECT_EQ(FormatSeconds(200), "3 min");
  EXPECT_EQ(FormatSeconds(7500), "2 h 5 min");
  EXPECT_EQ(FormatSeconds(273600), "3 d 4 h");
}

TEST(TextTable, AlignsNumbersToTheRight) {
  TextTable table({"NAME", ">BYTES", "STATE"});
  EXPECT_TRUE(table.empty());
  table.Add({"a", "7", "active"});
  table.Add({"long-name", "12345", ""});
  EXPECT_EQ(table.Text(),
            "NAME       BYTES  STATE\n"
            "a              7  active\n"
            "long-name  12345\n");
}

}  // namespace
}  // namespace gantry::gantryctl
