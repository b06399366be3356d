#include "lib/codec/body_fields.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

namespace gantry::wire {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kKeys = {"name", "size", "on", "depth"};

TEST(BodyFields, FindsWhatIsWantedByItsPath) {
  const Json tree = Json::parse(
      R"({"name":"root","on":true,"skipped":{"size":3},"more":[{"name":"a","size":1},[{"size":2}],
          {"name":"c","other":7}],"size":18446744073709551615})");
  const std::vector<uint8_t> bytes = Json::to_cbor(tree);
  for (const std::string& body : {tree.dump(), std::string(bytes.begin(), bytes.end())}) {
    const auto fields = BodyFields::Read(body, kKeys);
    ASSERT_TRUE(fields);
    EXPECT_EQ(fields->Text("name"), "root");
    EXPECT_EQ(fields->Number("size"), UINT64_MAX);
    EXPECT_TRUE(fields->Flag("on"));
    EXPECT_EQ(fields->Number("skipped/size"), 3U);
    EXPECT_EQ(fields->Text("more/0/name") + fields->Text("more/2/name"), "ac");
    EXPECT_EQ(fields->Number("more/1/0/size"), 2U);
    EXPECT_EQ(fields->Number("more/2/other"), 0U) << "nobody asked for it";
  }
}

TEST(BodyFields, AnotherTypeIsNotThere) {
  const auto fields = BodyFields::Read(R"({"name":1,"size":"x","on":0,"depth":-1})", kKeys);
  ASSERT_TRUE(fields);
  EXPECT_EQ(fields->Text("name"), "");
  EXPECT_EQ(fields->Number("size"), 0U);
  EXPECT_FALSE(fields->Flag("on"));
  EXPECT_EQ(fields->Number("depth"), 0U);
}

TEST(BodyFields, AnObjectIsTheRootAndNotDeep) {
  for (const std::string& body :
       {std::string(), std::string("[]"), std::string("7"), std::string("{"), std::string("{} x"),
        "{\"a\":" + std::string(64, '[') + std::string(64, ']') + "}"}) {
    EXPECT_FALSE(BodyFields::Read(body, kKeys)) << body;
  }
}

}  // namespace
}  // namespace gantry::wire
