#include "lib/base/log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/base/json_text.h"

namespace gantry {
namespace {

using nlohmann::json;

TEST(JsonTextTest, AnyBytesBecomeAValidString) {
  for (const std::string& text :
       {std::string("plain"), std::string("\"\\/\b\f\n\r\t"), std::string("\0\x1f", 2),
        std::string("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80")}) {
    EXPECT_EQ(json::parse(JsonQuote(text)).get<std::string>(), text);
  }
  for (const char* broken : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80",
                             "\xf4\x90\x80\x80", "a\x80z"}) {
    EXPECT_NE(json::parse(JsonQuote(broken)).get<std::string>().find("\xef\xbf\xbd"),
              std::string::npos);
    EXPECT_FALSE(IsUtf8(broken));
  }
  EXPECT_TRUE(IsUtf8("\xc3\xa4 and plain"));
}

TEST(JsonTextTest, EachByteOfALongTextIsLookedAt) {
  const std::string plain(40, 'a');
  EXPECT_TRUE(IsUtf8(plain));
  for (size_t at = 0; at < plain.size(); ++at) {
    std::string text = plain;
    text[at] = '\xff';
    EXPECT_FALSE(IsUtf8(text)) << at;
    text.replace(at, 1, "\xe2\x82\xac");
    EXPECT_TRUE(IsUtf8(text)) << at;
    text.resize(at + 2);
    EXPECT_FALSE(IsUtf8(text)) << at;
  }
}

TEST(LogTest, OneJsonLineWithTypedFields) {
  log::Configure("log-test", log::Level::kInfo);
  ::testing::internal::CaptureStderr();
  log::Debug("not written");
  log::Info("it \"happened\"", {{"text", "a\nb"},
                                {"count", 3},
                                {"big", ~uint64_t{0}},
                                {"yes", true},
                                {"ratio", 0.5},
                                {"nothing", std::nan("")},
                                {"error", gantry::Error(ErrorCode::kNotFound, "gone", "hint")}});
  const std::string written = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(std::count(written.begin(), written.end(), '\n'), 1) << written;
  const json line = json::parse(written);
  EXPECT_EQ(line["process"], "log-test");
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["message"], "it \"happened\"");
  EXPECT_EQ(line["text"], "a\nb");
  EXPECT_EQ(line["count"], 3);
  EXPECT_EQ(line["big"], ~uint64_t{0});
  EXPECT_EQ(line["yes"], true);
  EXPECT_EQ(line["ratio"], 0.5);
  EXPECT_TRUE(line["nothing"].is_null());
  EXPECT_EQ(line["error"]["code"], "not_found");
  EXPECT_EQ(line["error"]["message"], "gone");
}

TEST(LogTest, LevelsByName) {
  EXPECT_EQ(*log::ParseLevel("debug"), log::Level::kDebug);
  EXPECT_EQ(*log::ParseLevel("warning"), log::Level::kWarning);
  EXPECT_EQ(log::ParseLevel("loud").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace gantry
