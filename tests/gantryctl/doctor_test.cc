#include "gantryctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/fakes/test_folder.h"

namespace gantry::gantryctl {
namespace {

using ::testing::HasSubstr;

TEST(Doctor, EverythingThatIsNotFineComesWithAdvice) {
  Findings all = ExamineHost();
  CommandLine line;
  line.socket = ::testing::TempDir() + "no-sidecar.sock";
  for (const Findings& more :
       {ExamineRdma(), ExamineDevices(), ExamineGpuFiles(), ExamineSidecar(line)}) {
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
  line.socket = ::testing::TempDir() + "no-sidecar.sock";
  EXPECT_FALSE(AnyFails(ExamineSidecar(line)));
  line.socket_named = true;
  EXPECT_TRUE(AnyFails(ExamineSidecar(line)));
}

TEST(Doctor, RefusesASocketPathThatTheKernelCannotTake) {
  CommandLine line;
  line.socket = "/" + std::string(200, 'x');
  EXPECT_EQ(ExamineSidecar(line).front().level, Level::kFail);
}

TEST(Doctor, CountsAccelerators) {
  const gantry::testing::TestFolder folder;
  const std::string root = folder.path() + "/";
  const std::string device = root + "sys/bus/pci/devices/0000:1b:00.0/";
  EXPECT_THAT(ExamineDevices(root).front().said, HasSubstr("none"));
  std::filesystem::create_directories(device);
  std::ofstream(device + "class") << "0x030200\n";
  const Findings findings = ExamineDevices(root);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_THAT(findings[0].said, HasSubstr("0000:1b:00.0"));
  EXPECT_THAT(findings[0].said, HasSubstr("ipc"));
}

TEST(Doctor, SeesGpusWithoutTheirDriversLibrary) {
  const gantry::testing::TestFolder folder;
  const std::string& root = folder.path();
  const auto touch = [&root](const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << "";
  };
  EXPECT_TRUE(ExamineGpuFiles(root).empty());
  for (const char* other : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia"}) touch(other);
  EXPECT_TRUE(ExamineGpuFiles(root).empty());
  touch("/dev/nvidia0");
  touch("/dev/nvidia12");
  Findings findings = ExamineGpuFiles(root);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].level, Level::kWarn);
  EXPECT_THAT(findings[0].said, HasSubstr("2 GPU devices, the first /dev/nvidia0, but no libcuda"));
  EXPECT_FALSE(findings[0].advice.empty());
  touch("/usr/lib/x86_64-linux-gnu/libcuda.so.1");
  findings = ExamineGpuFiles(root);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_THAT(findings[0].said, HasSubstr("/usr/lib/x86_64-linux-gnu/libcuda.so.1"));
}

nlohmann::json GpuStatus() {
  return nlohmann::json::parse(R"({
    "workers": [{"index": 0, "gpu": "GPU-a", "asks_for_gpu": false},
                {"index": 1, "gpu": "", "asks_for_gpu": true, "no_gpu_because": "out of memory"},
                {"index": 2, "gpu": "", "asks_for_gpu": false, "no_gpu_because": "--gpu-workers"}],
    "gpus": [{"uuid": "GPU-a", "workers": 1, "free_bytes": 1073741824, "bytes": 4294967296,
              "reaches": ["GPU-a", "GPU-b"]},
             {"uuid": "GPU-b", "workers": 0, "free_bytes": 0, "bytes": 0, "reaches": []}],
    "worker_pid_conflicts": 3})");
}

// The finding about this, or an empty one.
Finding About(const Findings& findings, const std::string& subject) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& each) { return each.subject == subject; });
  return found == findings.end() ? Finding() : *found;
}

TEST(Doctor, TellsOfGpusAndWorkersFromTheStatus) {
  const Findings findings = ExamineGpus(GpuStatus());
  EXPECT_EQ(About(findings, "GPU-a").level, Level::kOk);
  EXPECT_THAT(About(findings, "GPU-a").said, HasSubstr("1 GiB of 4 GiB were free"));
  EXPECT_EQ(About(findings, "GPU-b").level, Level::kWarn);
  EXPECT_THAT(About(findings, "GPU-b").advice, HasSubstr("ask again"));
  EXPECT_EQ(About(findings, "copy worker 0").said, "");
  EXPECT_EQ(About(findings, "copy worker 1").level, Level::kWarn);
  EXPECT_THAT(About(findings, "copy worker 1").said, HasSubstr("out of memory"));
  EXPECT_EQ(About(findings, "copy worker 2").level, Level::kOk);
  EXPECT_THAT(About(findings, "copy worker 2").said, HasSubstr("--gpu-workers"));
  EXPECT_THAT(About(findings, "GPU pairs").said, HasSubstr("all 1 reach"));
  EXPECT_THAT(About(findings, "PIDs").said, HasSubstr("3 copy workers"));
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.advice.empty(), finding.level == Level::kOk) << finding.subject;
  }
}

TEST(Doctor, TellsOfThePodAndOfWhatIsWrongWithItsSlot) {
  const auto status = nlohmann::json::parse(R"({"pod": {"name": "one", "namespace": "team",
      "slot": {"id": "slot-003", "gpus": ["GPU-a", "GPU-b"], "peer_gpus": [], "rdma_devices": ["mlx5_0"]},
      "findings": [{"level": "warning", "subject": "GPU GPU-b", "said": "is not there", "advice": "look"},
                   {"level": "fatal", "subject": "slot", "said": "a neighbour's", "advice": "leave"}]}})");
  const Findings findings = ExaminePod(status);
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[0].said,
            "team/one has slot-003: GPUs GPU-a, GPU-b; of peers none; RDMA devices mlx5_0");
  EXPECT_EQ(About(findings, "pod: GPU GPU-b").level, Level::kWarn);
  EXPECT_EQ(About(findings, "pod: GPU GPU-b").said, "is not there");
  EXPECT_EQ(About(findings, "pod: GPU GPU-b").advice, "look");
  EXPECT_EQ(About(findings, "pod: slot").level, Level::kFail);
  const auto alone = nlohmann::json::parse(R"({"pod": {"name": "one", "findings": []}})");
  EXPECT_THAT(About(ExaminePod(alone), "pod").said, HasSubstr("no slot"));
  EXPECT_TRUE(ExaminePod(nlohmann::json::parse(R"({"pod": {"findings": []}})")).empty());
  EXPECT_TRUE(ExaminePod(nlohmann::json::object()).empty()) << "an older sidecar";
}

TEST(Doctor, NamesPairsOfGpusWithoutAWay) {
  nlohmann::json status = GpuStatus();
  status["gpus"][0]["reaches"] = {"GPU-a"};
  const Findings findings = ExamineGpus(status);
  EXPECT_EQ(About(findings, "GPU pair").level, Level::kWarn);
  EXPECT_THAT(About(findings, "GPU pair").said, HasSubstr("GPU-a and GPU-b"));
  EXPECT_EQ(About(findings, "GPU pairs").said, "");
}

TEST(Doctor, NamesPairsOfGpusThatHaveAWayInOneDirectionOnly) {
  nlohmann::json status = GpuStatus();
  status["gpus"][1]["workers"] = 1;
  status["gpus"][1]["reaches"] = {"GPU-b"};
  EXPECT_EQ(About(ExamineGpus(status), "GPU pair").level, Level::kWarn);
  status["gpus"][1]["reaches"] = {"GPU-a", "GPU-b"};
  EXPECT_THAT(About(ExamineGpus(status), "GPU pairs").said, HasSubstr("all 1 reach"));
  // Of three, two have one: not all have.
  status["gpus"].push_back(
      {{"uuid", "GPU-c"}, {"workers", 1}, {"reaches", nlohmann::json::array({"GPU-c"})}});
  const Findings findings = ExamineGpus(status);
  EXPECT_THAT(About(findings, "GPU pair").said, HasSubstr("GPU-a and GPU-c"));
  EXPECT_EQ(About(findings, "GPU pairs").said, "");
}

TEST(Doctor, TellsOfWorkersThatAskWhereNoneHasAGpu) {
  nlohmann::json status = GpuStatus();
  status["gpus"] = nlohmann::json::array();
  const Findings findings = ExamineGpus(status);
  EXPECT_EQ(About(findings, "copy worker 1").level, Level::kWarn);
  EXPECT_EQ(About(findings, "copy worker 2").said, "") << "the ipc path says it";
}

TEST(Doctor, AGpuWithoutWorkersIsGivenMoreWhereNobodyAsksAgain) {
  nlohmann::json status = GpuStatus();
  status["workers"][1]["asks_for_gpu"] = false;
  EXPECT_THAT(About(ExamineGpus(status), "GPU-b").advice, HasSubstr("raise --workers"));
}

TEST(Doctor, ASidecarWithoutGpusOrOfAnotherVersionSaysNothingOfThem) {
  EXPECT_TRUE(ExamineGpus(nlohmann::json::object()).empty());
  EXPECT_TRUE(
      ExamineGpus(nlohmann::json::parse(
                      R"({"workers": [{"index": 0, "gpu": "", "no_gpu_because": "no driver"}],
                      "gpus": [], "worker_pid_conflicts": 0})"))
          .empty());
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
