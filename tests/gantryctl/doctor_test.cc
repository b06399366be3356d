#include "gantryctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace gantry::gantryctl {
namespace {

using testing::HasSubstr;

TEST(Doctor, EverythingThatIsNotFineComesWithAdvice) {
  Findings all = ExamineHost();
  CommandLine line;
  line.socket = testing::TempDir() + "no-sidecar.sock";
  for (const Findings& more : {ExamineDevices(), ExamineSidecar(line)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  for (const Finding& finding : all) {
    EXPECT_FALSE(finding.subject.empty());
    EXPECT_FALSE(finding.said.empty()) << finding.subject;
    EXPECT_EQ(finding.advice.empty(), finding.level == Level::kOk) << finding.subject;
  }
}

TEST(Doctor, AMissingSidecarIsAFailureOnlyWhenItWasNamed) {
  CommandLine line;
  line.socket = testing::TempDir() + "no-sidecar.sock";
  EXPECT_FALSE(AnyFails(ExamineSidecar(line)));
  line.socket_named = true;
  EXPECT_TRUE(AnyFails(ExamineSidecar(line)));
}

TEST(Doctor, RefusesASocketPathThatTheKernelCannotTake) {
  CommandLine line;
  line.socket = "/" + std::string(200, 'x');
  EXPECT_EQ(ExamineSidecar(line).front().level, Level::kFail);
}

TEST(Doctor, NamesDevicesThatCannotBeUsedHere) {
  const std::string root = testing::TempDir() + "doctor-" + std::to_string(::getpid()) + "/";
  std::filesystem::remove_all(root);
  const auto write = [&root](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text << "\n";
  };
  write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
  write("sys/bus/pci/devices/0000:1b:00.0/class", "0x030200");
  Findings findings = ExamineDevices(root);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].level, Level::kWarn);
  EXPECT_THAT(findings[0].said, HasSubstr("/dev/infiniband/uverbs0"));
  EXPECT_EQ(findings[1].level, Level::kOk);
  EXPECT_THAT(findings[1].said, HasSubstr("0000:1b:00.0"));
  EXPECT_THAT(findings[1].said, HasSubstr("ipc"));

  write("dev/infiniband/uverbs0", "");
  EXPECT_EQ(ExamineDevices(root)[0].level, Level::kOk);
  std::filesystem::remove_all(root);
}

TEST(Doctor, PutsTheAdviceBelowTheFinding) {
  EXPECT_EQ(FindingsText({{Level::kOk, "kernel", "6.1", ""},
                          {Level::kFail, "a thing", "is broken", "mend it"}}),
            "ok    kernel   6.1\n"
            "FAIL  a thing  is broken\n"
            "               -> mend it\n");
}

}  // namespace
}  // namespace gantry::gantryctl
