#include "deviceplugin/cdi/cdi_specs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/fakes/test_folder.h"

namespace gantry::deviceplugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CdiSpecsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_.File(name)).parent_path());
    std::ofstream(folder_.File(name)) << text;
  }
  CdiSpecs Read() const { return CdiSpecs::Read({folder_.File("etc"), folder_.File("run")}); }

  testing::TestFolder folder_;
};

std::string Spec(const std::string& file) {
  return R"({"cdiVersion":"0.6.0","kind":"a.b/gpu","devices":[{"name":"0","containerEdits":)"
         R"({"deviceNodes":[{"path":")" +
         file + R"("}]}}],"containerEdits":{"deviceNodes":[{"path":"/dev/ctl"}]}})";
}

TEST_F(CdiSpecsTest, ADeviceHasItsOwnEditsAndThoseOfItsSpec) {
  Write("etc/a.json", Spec("/dev/g0"));
  const CdiSpecs specs = Read();
  const CdiDevice* const device = specs.Find("a.b/gpu=0");
  ASSERT_NE(device, nullptr);
  EXPECT_THAT(device->own.DeviceFiles(), ElementsAre("/dev/g0"));
  EXPECT_THAT(device->all.DeviceFiles(), ElementsAre("/dev/ctl", "/dev/g0"));
  EXPECT_EQ(device->cdi_version, "0.6.0");
  EXPECT_EQ(specs.Find("a.b/gpu=1"), nullptr);
  EXPECT_EQ(specs.Find("a.b/nic=0"), nullptr);
  EXPECT_EQ(specs.Find("nonsense"), nullptr);
}

TEST_F(CdiSpecsTest, TheLaterFolderOutranksTheEarlier) {
  Write("etc/a.json", Spec("/dev/old"));
  Write("run/a.json", Spec("/dev/new"));
  EXPECT_THAT(Read().Find("a.b/gpu=0")->own.DeviceFiles(), ElementsAre("/dev/new"));
}

TEST_F(CdiSpecsTest, WhatIsNoSpecIsPassedOver) {
  Write("etc/broken.json", "{");
  Write("etc/list.json", "[1, 2]");
  Write("etc/broken.yaml", "a: [b: c");
  Write("etc/nothing.yaml", "");
  Write("etc/no-kind.json", R"({"cdiVersion":"0.5.0"})");
  Write("etc/strange.json", R"({"cdiVersion":"0.5.0","kind":"a.b/x","devices":[7,{"name":9}]})");
  Write("etc/spec.json.tmp", Spec("/dev/not-yet"));
  Write("etc/z.json", Spec("/dev/g0"));
  EXPECT_THAT(Read().Find("a.b/gpu=0")->own.DeviceFiles(), ElementsAre("/dev/g0"));
}

TEST_F(CdiSpecsTest, NumbersOfYamlStayNumbersAndQuotedOnesText) {
  const auto spec = ParseCdiSpec(
      "cdiVersion: 0.5.0\nkind: a.b/gpu\ndevices:\n- name: \"0\"\n  containerEdits:\n"
      "    deviceNodes:\n    - {path: /dev/g0, major: 195, fileMode: 438}\n"
      "    hooks:\n    - {hookName: x, timeout: 5, args: [\"1\", two]}\n    flag: true\n",
      true);
  ASSERT_TRUE(spec) << spec.error().message;
  const auto& edits = (*spec)["devices"][0]["containerEdits"];
  EXPECT_EQ((*spec)["devices"][0]["name"], "0");
  EXPECT_EQ(edits["deviceNodes"][0]["major"], 195);
  EXPECT_EQ(edits["hooks"][0]["args"][0], "1");
  EXPECT_EQ(edits["flag"], true);
  EXPECT_EQ((*spec)["cdiVersion"], "0.5.0");
}

TEST_F(CdiSpecsTest, ValuesOfYamlHaveTheTypesOfTheirFields) {
  const auto spec = ParseCdiSpec(
      "cdiVersion: 0.6\nkind: a.b/gpu\nannotations: {slot: 07, on: yes}\ndevices:\n- name: 0\n"
      "  containerEdits:\n"
      "    env: [A=1, 12]\n"
      "    deviceNodes:\n    - {path: /dev/g0, fileMode: 0666, major: 0xc3, minor: 1_0, uid: 1e3}\n"
      "    hooks:\n    - {hookName: x, path: /x, timeout: 5.0, args: [x, 010, yes, ~]}\n"
      "    additionalGids: [044, 5]\n    intelRdt: {closID: 1.10, enableMonitoring: on}\n",
      true);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ((*spec)["cdiVersion"], "0.6");
  EXPECT_EQ((*spec)["annotations"].dump(), R"({"slot":"7","true":"true"})");
  EXPECT_EQ((*spec)["devices"][0]["name"], "0");
  const auto& edits = (*spec)["devices"][0]["containerEdits"];
  EXPECT_EQ(edits["env"].dump(), R"(["A=1","12"])");
  EXPECT_EQ(edits["deviceNodes"][0].dump(),
            R"({"fileMode":438,"major":195,"minor":10,"path":"/dev/g0","uid":1000})");
  EXPECT_EQ(edits["hooks"][0]["timeout"].dump(), "5");
  EXPECT_EQ(edits["hooks"][0]["args"].dump(), R"(["x","8","true",null])");
  EXPECT_EQ(edits["additionalGids"].dump(), "[36,5]");
  EXPECT_EQ(edits["intelRdt"].dump(), R"({"closID":"1.1","enableMonitoring":true})");
}

TEST_F(CdiSpecsTest, AFileOfJsonMayHaveWhatYamlAllows) {
  Write("etc/a.json",
        "{\"cdiVersion\": \"0.6.0\", \"kind\": \"a.b/gpu\",  # by hand\n"
        " \"devices\": [{\"name\": \"0\", \"containerEdits\": {\"deviceNodes\": ["
        "{\"path\": \"/dev/g0\", \"fileMode\": 0666},]}}]}");
  const CdiSpecs specs = Read();
  ASSERT_NE(specs.Find("a.b/gpu=0"), nullptr);
  EXPECT_EQ(specs.Find("a.b/gpu=0")->own.json()["deviceNodes"][0]["fileMode"], 438);
}

// A runtime refuses the whole file, and would refuse a slot's, too, if it had a copy.
TEST_F(CdiSpecsTest, AFieldOfAnotherTypeIsSaid) {
  const auto read = [](const std::string& device, bool yaml) {
    const auto spec = ParseCdiSpec(device, yaml);
    return spec ? std::string() : spec.error().message;
  };
  const std::string yaml =
      "cdiVersion: 0.5.0\nkind: a.b/gpu\ndevices:\n- name: x\n  containerEdits:\n    ";
  EXPECT_THAT(read(yaml + "deviceNodes: [{path: /a, fileMode: rw}]", true),
              HasSubstr("fileMode is \"rw\", which is no whole number"));
  EXPECT_THAT(read(yaml + "deviceNodes: [{path: /a, uid: -1}]", true), HasSubstr("from 0 to"));
  EXPECT_THAT(read(yaml + "additionalGids: [4294967296]", true), HasSubstr("additionalGids"));
  EXPECT_THAT(read(yaml + "hooks: [{timeout: 1.5}]", true), HasSubstr("timeout is 1.5"));
  EXPECT_THAT(read(yaml + "intelRdt: {enableMonitoring: 1}", true), HasSubstr("truth value"));
  EXPECT_THAT(read(R"({"cdiVersion":"0.5.0","kind":"a.b/x","devices":[{"name":"0","containerEdits":
                      {"deviceNodes":[{"path":"/dev/x","fileMode":"0666"}]}}]})",
                   false),
              HasSubstr("fileMode is \"0666\""));
}

TEST_F(CdiSpecsTest, YamlThatIsDeepEndsSomewhere) {
  std::string deep = "cdiVersion: 0.5.0\nkind: a.b/gpu\ndevices: ";
  for (int i = 0; i < 200; ++i) deep += "[";
  for (int i = 0; i < 200; ++i) deep += "]";
  EXPECT_TRUE(ParseCdiSpec(deep, true));
}

TEST_F(CdiSpecsTest, YamlWhoseAliasesMultiplyIsRefused) {
  std::string bomb = "cdiVersion: 0.5.0\nkind: a.b/gpu\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int copy = 0; copy < 9; ++copy) bomb += before + ", ";
    bomb += before + "]\n";
  }
  const auto spec = ParseCdiSpec(bomb, true);
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code, ErrorCode::kBodyTooLarge);
}

TEST(ContainerEditsTest, WhatIsNoListGivesWay) {
  ContainerEdits edits(nlohmann::json::parse(R"({"env":"A=1","mounts":null,"deviceNodes":3})"));
  edits.AddVariable("B", "2");
  edits.AddDeviceFile("/dev/x");
  edits.AddMount("/a", "/b");
  EXPECT_EQ(edits.Variable("B"), "2");
  EXPECT_THAT(edits.DeviceFiles(), ElementsAre("/dev/x"));
}

TEST(ContainerEditsTest, MergingAddsWhatIsNewAndKeepsTheFirstOfADeviceFile) {
  ContainerEdits one(nlohmann::json::parse(
      R"({"env":["A=1"],"deviceNodes":[{"path":"/dev/x","major":1}],"intelRdt":{"closID":"a"}})"));
  const ContainerEdits two(nlohmann::json::parse(
      R"({"env":["A=1","B=2"],"deviceNodes":[{"path":"/dev/x"},{"path":"/dev/y"}],
          "intelRdt":{"closID":"b"},"netDevices":[{"name":"eth1"}]})"));
  one.Merge(two);
  EXPECT_EQ(one.json(), nlohmann::json::parse(
                            R"({"env":["A=1","B=2"],
          "deviceNodes":[{"path":"/dev/x","major":1},{"path":"/dev/y"}],
          "intelRdt":{"closID":"a"},"netDevices":[{"name":"eth1"}]})"));
}

TEST(ContainerEditsTest, TheLaterVersionIsByNumbers) {
  EXPECT_EQ(LaterCdiVersion("0.5.0", "0.10.0"), "0.10.0");
  EXPECT_EQ(LaterCdiVersion("1.0.0", "0.10.0"), "1.0.0");
}

}  // namespace
}  // namespace gantry::deviceplugin
