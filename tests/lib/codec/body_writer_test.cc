#include "lib/codec/body_writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
      .Field("empty", std::string());
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
