#include "lib/codec/body_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gantry::wire {
namespace {

using nlohmann::json;

std::string Write(BodyFormat format) {
  BodyWriter writer(format);
  writer.BeginObject()
      .Field("text", "a\"\\\n\x7f\u00e9")
      .Field("bad", "x\xff")
      .Field("yes", true)
      .Field("no", false)
      .OptionalField("absent", "")
      .Field("least", INT64_MIN)
      .Field("small", -1)
      .Field("half", 0.5)
      .Field("third", 1.0 / 3)
      .Field("endless", HUGE_VAL)
      .Field("texts", std::vector<std::string>{"a", "b"})
      .Field("none", std::vector<int>())
      .Field("empty", std::string());
  writer.Field("list", std::vector<uint64_t>{0, 23, 24, 255, 256, 65536, UINT32_MAX, UINT64_MAX});
  writer.Field("lists", std::vector<std::vector<uint64_t>>{{1, 2}, {}, {3}}).Field("last", 1);
  writer.Key("numbers").BeginList();
  for (const uint64_t number :
       {uint64_t{0}, uint64_t{23}, uint64_t{24}, uint64_t{255}, uint64_t{256}, uint64_t{65535},
        uint64_t{65536}, uint64_t{UINT32_MAX}, uint64_t{UINT32_MAX} + 1, UINT64_MAX}) {
    writer.Unsigned(number);
  }
  writer.EndList().Key("nothing").BeginList().EndList().Key("inner").BeginObject().EndObject();
  writer.Key("pair").BeginList().BeginObject().Field("a", 1).EndObject().BeginObject().EndObject();
  writer.EndList().EndObject();
  return writer.Take();
}

TEST(BodyWriterTest, BothFormatsSayTheSame) {
  const std::string text = Write(BodyFormat::kJson);
  const json read = json::parse(text);
  EXPECT_EQ(read["text"], "a\"\\\n\x7f\u00e9");
  EXPECT_EQ(read["bad"], "x\ufffd");
  EXPECT_EQ(read["least"], INT64_MIN);
  EXPECT_EQ(read["half"], 0.5);
  EXPECT_EQ(read["third"], 1.0 / 3);
  EXPECT_TRUE(read["endless"].is_null());
  EXPECT_EQ(read["texts"], (json{"a", "b"}));
  EXPECT_EQ(read["list"], (json{0, 23, 24, 255, 256, 65536, UINT32_MAX, UINT64_MAX}));
  EXPECT_EQ(read["lists"].dump(), "[[1,2],[],[3]]");
  EXPECT_EQ(read["numbers"].size(), 10u);
  EXPECT_EQ(read["numbers"][9], UINT64_MAX);
  EXPECT_EQ(read["pair"].size(), 2u);
  EXPECT_FALSE(read.contains("absent"));
  EXPECT_EQ(json::from_cbor(Write(BodyFormat::kCbor)), read);
}

// Whatever ends where the room does.
TEST(BodyWriterTest, TextsOfAnyLengthHaveRoom) {
  for (const BodyFormat format : {BodyFormat::kJson, BodyFormat::kCbor}) {
    for (size_t length = 980; length < 1060; ++length) {
      const std::string text(length, 'x');
      BodyWriter writer(format);
      writer.BeginList().Text(text).Unsigned(UINT64_MAX).Signed(INT64_MIN).Bool(false);
      writer.BeginObject().Field(text, text).Field("key", std::string_view()).EndObject().EndList();
      const std::string written = writer.Take();
      const json read =
          format == BodyFormat::kJson ? json::parse(written) : json::from_cbor(written);
      EXPECT_EQ(read, (json{text, UINT64_MAX, INT64_MIN, false, {{text, text}, {"key", ""}}}));
    }
  }
}

TEST(BodyWriterTest, AnyTextMayBeAKey) {
  BodyWriter writer(BodyFormat::kJson);
  writer.BeginObject().AnyKey("a\"\n").Null().AnyKey("b").Unsigned(1).EndObject();
  EXPECT_EQ(writer.Take(), R"({"a\"\u000a":null,"b":1})");
}

TEST(BodyWriterTest, PacksIntegersIntoFourBytesEach) {
  for (const size_t count : {0, 1, 5, 6, 63, 64, 16383, 16384}) {
    std::vector<uint64_t> values;
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(i == 0 ? UINT32_MAX : i * 65'537);
      for (int shift = 0; shift < 32; shift += 8) {
        bytes.push_back(static_cast<uint8_t>(values.back() >> shift));
      }
    }
    BodyWriter writer(BodyFormat::kCbor, count);
    writer.BeginObject().Field("before", 1).Key("packed").Packed(values).Field("after", 2);
    const json read = json::from_cbor(writer.EndObject().Take());
    EXPECT_EQ(read, (json{{"before", 1}, {"packed", json::binary(bytes)}, {"after", 2}}));
  }
}

TEST(BodyWriterTest, OneThatWasMovedFromBeginsAnew) {
  BodyWriter writer(BodyFormat::kJson);
  writer.BeginList().Text(std::string(500, 'x'));
  BodyWriter moved = std::move(writer);
  EXPECT_EQ(moved.EndList().Take().size(), 504u);
  writer.Text("more");  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(writer.Take(), ",\"more\"");
}

}  // namespace
}  // namespace gantry::wire
