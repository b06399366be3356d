#include "lib/codec/json_text_of.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/codec/body_writer.h"

namespace gantry::wire {
namespace {

using Json = nlohmann::json;

std::string CborOf(const Json& tree) {
  const std::vector<uint8_t> bytes = Json::to_cbor(tree);
  return {bytes.begin(), bytes.end()};
}

TEST(JsonTextOf, CborIsTheSameInJson) {
  const Json tree =
      Json::parse(R"({"a":[],"b":{},"c":[1,[2,{"d":-3}],"x"],"e\"\n\u00e4":"\"\\\u0001\u20ac",
      "f":true,"g":false,"h":null,"i":18446744073709551615,"j":-9223372036854775808,"k":0.1,"l":[[],[{}],[0]]})");
  const auto text = JsonOf(CborOf(tree));
  ASSERT_TRUE(text);
  EXPECT_EQ(Json::parse(*text), tree);
  BodyWriter open(BodyFormat::kCbor);  // lengths unknown, as the sidecar writes
  open.BeginObject().Field("a", 1u).Key("b").BeginList().Text("c").Bool(true).EndList().EndObject();
  EXPECT_EQ(JsonOf(open.Take()), R"({"a":1,"b":["c",true]})");
}

TEST(JsonTextOf, CborThatIsNoneIsRefused) {
  const std::string body = CborOf(Json::parse(R"({"state":"running","bytes":1000,"id":"t"})"));
  for (size_t bytes = 1; bytes < body.size(); ++bytes) {
    EXPECT_FALSE(JsonOf(body.substr(0, bytes)));
  }
  EXPECT_FALSE(JsonOf(CborOf({{"a", Json::binary({1})}})));
  for (const std::string& nested :
       {"\xa1" + std::string(4'000'000, '\x7f'), "\xa1\x61x" + std::string(4'000'000, '\x81')}) {
    EXPECT_FALSE(JsonOf(nested)) << "and the stack is as deep as it was";
  }
}

}  // namespace
}  // namespace gantry::wire
