#include "gantryctl/doctor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/include/gantry.h"
#include "gantryctl/exit_code.h"
#include "gantryctl/json_field.h"
#include "gantryctl/printing.h"
#include "gantryctl/sidecar_http.h"
#include "gantryctl/text_table.h"

namespace gantry::gantryctl {
namespace {

constexpr size_t kSocketPathMax = 107;

const char* NameOf(Level level) {
  return level == Level::kOk ? "ok" : level == Level::kWarn ? "warn" : "FAIL";
}

Finding ExamineSocketFolder(const std::string& socket) {
  const std::string folder = std::filesystem::path(socket).parent_path().string();
  if (socket.size() > kSocketPathMax) {
    return {Level::kFail, "socket path", socket + " is longer than 107 bytes",
            "choose a shorter --run-dir"};
  }
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) {
    return {Level::kWarn, "socket folder", folder + " does not exist",
            "mount the sidecar's run folder here, or name its socket with --socket"};
  }
  if (access(folder.c_str(), X_OK) != 0) {
    return {Level::kFail, "socket folder", folder + " may not be entered by this user",
            "run with the sidecar's group, or as root"};
  }
  return {Level::kOk, "socket folder", folder, ""};
}

Finding CompareVersions(const std::string& sidecar) {
  if (sidecar == GANTRY_VERSION) return {Level::kOk, "versions", "both are " + sidecar, ""};
  return {Level::kWarn, "versions", "the sidecar is " + sidecar + ", this is " + GANTRY_VERSION,
          "use the gantryctl of the sidecar's image"};
}

void ExaminePaths(const nlohmann::json& status, Findings& findings) {
  for (const nlohmann::json& path : MemberOf(status, "paths")) {
    const std::string subject = "path " + TextOf(path, "path");
    if (FlagOf(path, "available")) {
      findings.push_back({Level::kOk, subject, "usable", ""});
    } else {
      findings.push_back({Level::kWarn, subject, "not usable: " + TextOf(path, "reason"),
                          "nothing, as long as another path serves"});
    }
  }
}

}  // namespace

Findings ExamineSidecar(const CommandLine& line) {
  Findings findings = {ExamineSocketFolder(line.socket)};
  SidecarHttp http(line.socket);
  const auto ready = http.Get("/readyz");
  if (!ready) {
    findings.push_back({line.socket_named ? Level::kFail : Level::kWarn, "sidecar",
                        ready.error().message, ready.error().hint});
    return findings;
  }
  const bool is_ready = ready->status == 200;
  const auto problem = nlohmann::json::parse(ready->body, nullptr, /*allow_exceptions=*/false);
  findings.push_back(
      {is_ready ? Level::kOk : Level::kFail, "sidecar",
       is_ready ? "ready at " + line.socket : "not ready: " + TextOf(problem, "detail"),
       is_ready ? "" : "see its log"});
  const auto status = http.GetJson("/v1/status");
  if (!status) {
    findings.push_back({Level::kFail, "status", status.error().message, status.error().hint});
    return findings;
  }
  findings.push_back(CompareVersions(TextOf(*status, "version", "unknown")));
  ExaminePaths(*status, findings);
  for (Findings more : {ExaminePod(*status), ExamineRdmaInUse(*status), ExamineGpus(*status)}) {
    std::move(more.begin(), more.end(), std::back_inserter(findings));
  }
  return findings;
}

std::string FindingsText(const Findings& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.subject.size());
  std::string text;
  for (const Finding& finding : findings) {
    std::string level = NameOf(finding.level);
    level.resize(4, ' ');
    text += level + "  " + finding.subject + std::string(width - finding.subject.size() + 2, ' ') +
            finding.said + "\n";
    if (!finding.advice.empty()) {
      text += std::string(width + 8, ' ') + "-> " + finding.advice + "\n";
    }
  }
  return text;
}

bool AnyFails(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.level == Level::kFail; });
}

int RunDoctor(const CommandLine& line) {
  Findings findings = ExamineHost();
  for (Findings more : {ExamineRdma(), ExamineDevices(), ExamineGpuFiles(), ExamineSidecar(line)}) {
    std::move(more.begin(), more.end(), std::back_inserter(findings));
  }
  const bool healthy = !AnyFails(findings);
  if (!line.json) {
    Print(FindingsText(findings));
    return healthy ? kExitOk : kExitUnhealthy;
  }
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"level", finding.level == Level::kFail ? "fail" : NameOf(finding.level)},
                    {"subject", finding.subject},
                    {"said", finding.said},
                    {"advice", finding.advice}});
  }
  Print(nlohmann::json{{"healthy", healthy}, {"findings", std::move(list)}}.dump(2) + "\n");
  return healthy ? kExitOk : kExitUnhealthy;
}

}  // namespace gantry::gantryctl
