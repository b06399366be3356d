// What scalars stand for. The expected values are what sigs.k8s.io/yaml 1.4.0 makes of them, by
// which the CDI library 1.1.0 reads specs: YAMLToJSONStrict, and UnmarshalStrict for texts.
#include "deviceplugin/cdi/cdi_yaml.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace gantry::deviceplugin {
namespace {

using Case = std::pair<const char*, const char*>;  // YAML, JSON

std::string Read(const std::string& scalar) {
  const auto value = JsonOfYaml("v: " + scalar + "\n");
  return value ? (*value)["v"].dump() : "refused";
}

TEST(CdiYamlTest, WholeNumbersHaveThePrefixesAndUnderscoresOfYaml11) {
  for (const auto& [yaml, json] : std::to_array<Case>({
           {"0666", "438"},
           {"0o666", "438"},
           {"0O17", "15"},
           {"-017", "-15"},
           {"0_7", "7"},
           {"0x1F", "31"},
           {"0X1f", "31"},
           {"-0x10", "-16"},
           {"0b11", "3"},
           {"-0b11", "-3"},
           {"438", "438"},
           {"+12", "12"},
           {"-0", "0"},
           {"1_000", "1000"},
           {"1__0", "10"},
           {"1_", "1"},
           {"9223372036854775807", "9223372036854775807"},
           {"-9223372036854775808", "-9223372036854775808"},
           {"18446744073709551615", "18446744073709551615"},
       })) {
    EXPECT_EQ(Read(yaml), json) << yaml;
  }
}

TEST(CdiYamlTest, FractionsAndExponentsAreNumbers) {
  for (const auto& [yaml, json] : std::to_array<Case>({
           {"0888", "888.0"},
           {"08", "8.0"},
           {"0.6", "0.6"},
           {"1.10", "1.1"},
           {".5", "0.5"},
           {".5e3", "500.0"},
           {".1_7", "0.17"},
           {"1.", "1.0"},
           {"+1.5", "1.5"},
           {"-1.5", "-1.5"},
           {"12e03", "12000.0"},
           {"1E+3", "1000.0"},
           {"18446744073709551616", "1.8446744073709552e+19"},
       })) {
    EXPECT_EQ(Read(yaml), json) << yaml;
  }
}

TEST(CdiYamlTest, TruthValuesAndNullHaveTheWordsOfYaml11) {
  for (const char* const word : {"y", "Y", "yes", "Yes", "YES", "true", "TRUE", "on", "On", "ON"}) {
    EXPECT_EQ(Read(word), "true") << word;
  }
  for (const char* const word : {"n", "N", "no", "No", "NO", "false", "False", "off", "Off"}) {
    EXPECT_EQ(Read(word), "false") << word;
  }
  for (const char* const word : {"~", "null", "Null", "NULL", ""}) {
    EXPECT_EQ(Read(word), "null") << word;
  }
}

TEST(CdiYamlTest, WhatIsNeitherIsText) {
  for (const char* const text :
       {"190:20:30", "1:30",  "0000:1b:00.0", "2001-12-14", "_1",   "0x",
        "0xZZ",      "0o8",   "0x1.8p3",      "yEs",        "tRUE", "nULL",
        ".",         "..",    "--",           "+",          "._5",  "1e",
        "e1",        "1e400", "1,000",        "infinity",   "NaN",  "GPU-0-1"}) {
    EXPECT_EQ(Read(text), "\"" + std::string(text) + "\"") << text;
  }
}

TEST(CdiYamlTest, QuotesAndTagsDecideBeforeTheText) {
  for (const auto& [yaml, json] : std::to_array<Case>({
           {"\"0666\"", "\"0666\""},
           {"'yes'", "\"yes\""},
           {"|-\n  0666", "\"0666\""},
           {"!!str 0666", "\"0666\""},
           {"!!int \"0666\"", "438"},
           {"!!bool \"yes\"", "true"},
           {"!!float 1", "1"},
           {"!!null \"\"", "null"},
           {"!own 12", "\"12\""},
           {"!!bool 1", "refused"},
           {"!!int yes", "refused"},
           {".inf", "refused"},
           {"-.NaN", "\"-.NaN\""},
           {".NaN", "refused"},
       })) {
    EXPECT_EQ(Read(yaml), json) << yaml;
  }
}

TEST(CdiYamlTest, NumbersAndTruthValuesAreTextAsGoWritesIt) {
  for (const auto& [yaml, text] : std::to_array<Case>({
           {"0666", "438"},
           {"0.6", "0.6"},
           {"1.10", "1.1"},
           {"1e5", "100000"},
           {"1000000", "1000000"},
           {"1e6", "1e+06"},
           {"0.00001", "1e-05"},
           {"3.14159265358979", "3.1415927"},
           {"-1.5", "-1.5"},
           {"yes", "true"},
           {"Off", "false"},
       })) {
    EXPECT_EQ(TextOfScalar((*JsonOfYaml("v: " + std::string(yaml)))["v"]), text) << yaml;
  }
}

TEST(CdiYamlTest, KeysAreTextAndEachIsThereOnce) {
  const auto keys = JsonOfYaml("on: 1\n1: 2\n0x10: 3\n1.5: 4\n\"no\": 5\n");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->dump(), R"({"1":2,"1.5":4,"16":3,"no":5,"true":1})");
  EXPECT_FALSE(JsonOfYaml("a: 1\na: 2\n"));
  EXPECT_FALSE(JsonOfYaml("true: 1\nyes: 2\n"));
  EXPECT_FALSE(JsonOfYaml("~: 1\n"));
}

TEST(CdiYamlTest, AMapTakesInWhatItMerges) {
  const std::string maps = "b: &b {x: 1}\nd: &d {w: 4}\n";
  const auto one = JsonOfYaml(maps + "c:\n  <<: *b\n  z: 3\n");
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ((*one)["c"].dump(), R"({"x":1,"z":3})");
  const auto list = JsonOfYaml(maps + "c:\n  <<: [*b, *d]\n");
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ((*list)["c"].dump(), R"({"w":4,"x":1})");
  EXPECT_FALSE(JsonOfYaml(maps + "c:\n  <<: *b\n  x: 3\n")) << "x is there twice";
  EXPECT_FALSE(JsonOfYaml("c:\n  <<: 3\n"));
  EXPECT_EQ(JsonOfYaml("\"<<\": {a: 1}\n")->dump(), R"({"<<":{"a":1}})");
}

}  // namespace
}  // namespace gantry::deviceplugin
