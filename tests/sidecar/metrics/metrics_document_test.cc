// docs/metrics.md and the exposition say the same, and promtool accepts the exposition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "sidecar/metrics/metrics.h"
#include "tests/fakes/source_folder.h"
#include "tests/sidecar/metrics/exposition.h"

namespace gantry::metrics {
namespace {

const std::string kSource = testing::SourceFolder();

// Of another program, whose own tests hold it to the page.
bool IsOfTheDevicePlugin(const std::string& name) { return name.rfind("gantry_dp_", 0) == 0; }

struct Documented {
  std::map<std::string, std::string> types;
  std::map<std::string, std::set<std::string>> labels;
};

// Rows of the form: | `name` | type | `label` `label` | unit | meaning |
Documented ReadDocument() {
  std::ifstream file(kSource + "/docs/metrics.md");
  Documented documented;
  static const std::regex row(R"(^\| `([a-z_]+)` \| ([a-z]+) \|([^|]*)\|.*)");
  static const std::regex label("`([a-z]+)`");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    const std::string name = match[1];
    if (IsOfTheDevicePlugin(name)) continue;
    documented.types[name] = match[2];
    const std::string labels = match[3];
    for (std::sregex_iterator i(labels.begin(), labels.end(), label), end; i != end; ++i) {
      documented.labels[name].insert((*i)[1]);
    }
  }
  return documented;
}

TEST(MetricsDocument, ListsEveryMetricWithItsTypeAndLabelsAndNoOther) {
  const Exposition real(Metrics("test").Text());
  const Documented documented = ReadDocument();
  ASSERT_FALSE(documented.types.empty()) << "docs/metrics.md has no table rows";
  for (const auto& [name, type] : real.types) {
    const auto found = documented.types.find(name);
    if (found == documented.types.end()) {
      ADD_FAILURE() << name << " is not in docs/metrics.md";
      continue;
    }
    EXPECT_EQ(found->second, type) << name;
    const auto labels = documented.labels.find(name);
    EXPECT_EQ(labels == documented.labels.end() ? std::set<std::string>{} : labels->second,
              real.labels.at(name))
        << name;
  }
  for (const auto& [name, type] : documented.types) {
    EXPECT_TRUE(real.types.count(name)) << name << " is in docs/metrics.md but not exported";
  }
}

std::string OutputOf(const std::string& command, int* status) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, got);
  *status = WEXITSTATUS(pclose(pipe));
  return output;
}

void CheckWithPromtool(const std::string& exposition) {
  int status = 0;
  std::string folder = OutputOf(kSource + "/tools/promtool-path", &status);
  ASSERT_EQ(status, 0) << "there is no promtool: run tools/setup test";
  folder.erase(folder.find_last_not_of('\n') + 1);
  const std::string file = ::testing::TempDir() + "metrics-" + std::to_string(::getpid()) + ".txt";
  std::ofstream(file) << exposition;
  const std::string said = OutputOf(folder + "/promtool check metrics <" + file + " 2>&1", &status);
  std::remove(file.c_str());
  EXPECT_EQ(status, 0) << said;
  EXPECT_EQ(said, "");
}

TEST(MetricsDocument, PromtoolAcceptsTheTextWithoutAWarning) {
  Metrics metrics("0.1.0+\"quoted\"");
  TransferSample sample;
  sample.path = wire::Path::kShm;
  sample.bytes = uint64_t{1} << 40;
  sample.seconds = 1e-7;
  metrics.TransferEnded(sample);
  CheckWithPromtool(metrics.Text());
}

TEST(MetricsDocument, ThePortOfThePodNetworkServesTheSameMetrics) {
  Metrics metrics("test");
  const auto port = metrics.Listen("127.0.0.1:0");
  ASSERT_TRUE(port) << port.error().message;
  const std::string fetch =
      "exec 3<>/dev/tcp/127.0.0.1/" + std::to_string(*port) +
      " && printf 'GET /metrics HTTP/1.0\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3"
      " && cat <&3";
  int status = 0;
  std::string answer = OutputOf("bash -c \"" + fetch + "\"", &status);
  ASSERT_EQ(status, 0);
  EXPECT_THAT(answer, ::testing::HasSubstr("Content-Type: text/plain"));
  const size_t body = answer.find("\r\n\r\n");
  ASSERT_NE(body, std::string::npos);

  const Exposition served(answer.substr(body + 4));
  const Documented documented = ReadDocument();
  std::set<std::string> names;
  for (const auto& [name, type] : served.types) names.insert(name);
  std::set<std::string> expected;
  for (const auto& [name, type] : documented.types) expected.insert(name);
  EXPECT_EQ(names, expected);
}

}  // namespace
}  // namespace gantry::metrics
