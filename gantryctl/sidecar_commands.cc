#include "gantryctl/sidecar_commands.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "gantryctl/exit_code.h"
#include "gantryctl/json_field.h"
#include "gantryctl/printing.h"
#include "gantryctl/sidecar_http.h"
#include "gantryctl/sidecar_views.h"
#include "lib/base/clock.h"
#include "lib/base/url_escape.h"

namespace gantry::gantryctl {
namespace {

using nlohmann::json;
constexpr int kPageMax = 1000;

// All pages of GET /v1/buffers as one answer.
Result<json> AllBuffers(SidecarHttp& http, const std::string& workload) {
  json all = {{"buffers", json::array()}};
  for (std::string cursor;;) {
    std::string target = "/v1/buffers?limit=" + std::to_string(kPageMax);
    if (!workload.empty()) target += "&workload=" + UrlEscape(workload);
    if (!cursor.empty()) target += "&cursor=" + UrlEscape(cursor);
    ASSIGN_OR_RETURN(const json page, http.GetJson(target));
    for (const json& buffer : MemberOf(page, "buffers")) all["buffers"].push_back(buffer);
    cursor = TextOf(page, "next_cursor");
    if (cursor.empty()) return all;
  }
}

std::string TransfersTarget(const CommandLine& line, bool active) {
  std::string target = "/v1/transfers?limit=" + std::to_string(line.limit);
  if (active) target += "&active=true";
  if (!line.workload.empty()) target += "&workload=" + UrlEscape(line.workload);
  return target;
}

size_t TerminalColumns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Bars that are drawn over each other, on a terminal.
class LiveBars {
 public:
  void Show(const json& transfers) {
    std::string text;
    if (lines_ > 0) text = "\x1b[" + std::to_string(lines_) + "A";
    lines_ = 0;
    const size_t columns = TerminalColumns();
    for (const json& transfer : transfers) {
      text += "\x1b[K" + ProgressLine(transfer, columns) + "\n";
      ++lines_;
    }
    if (transfers.empty()) {
      text += "\x1b[Kno transfer is under way\n";
      lines_ = 1;
    }
    Print(text + "\x1b[J");
  }

 private:
  size_t lines_ = 0;
};

// A line for each transfer whose state or progress is new, for pipes and logs.
class ChangeLines {
 public:
  explicit ChangeLines(bool as_json) : as_json_(as_json) {}
  void Show(const json& transfers) {
    std::map<std::string, std::string> now;
    for (const json& transfer : transfers) {
      const std::string id = TextOf(transfer, "workload") + "/" + TextOf(transfer, "id");
      const std::string line = as_json_ ? transfer.dump() : ProgressLine(transfer, 200);
      const auto before = shown_.find(id);
      if (before == shown_.end() || before->second != line) Print(line + "\n");
      now.emplace(id, line);
    }
    for (const auto& [id, line] : shown_) {
      if (!as_json_ && now.find(id) == now.end()) Print(id + " has ended\n");
    }
    shown_ = std::move(now);
  }

 private:
  const bool as_json_;
  std::map<std::string, std::string> shown_;
};

int WatchTransfers(const CommandLine& line, SidecarHttp& http) {
  const bool live = !line.json && isatty(STDOUT_FILENO) != 0;
  LiveBars bars;
  ChangeLines lines(line.json);
  for (;;) {
    const auto answer = http.GetJson(TransfersTarget(line, /*active=*/true));
    if (!answer) return PrintError(answer.error());
    const json& transfers = MemberOf(*answer, "transfers");
    if (live) {
      bars.Show(transfers);
    } else {
      lines.Show(transfers);
    }
    std::this_thread::sleep_for(milliseconds(line.interval_ms));
  }
}

int Show(const CommandLine& line, const Result<json>& answer, std::string (*text)(const json&)) {
  if (!answer) return PrintError(answer.error());
  Print(line.json ? answer->dump(2) + "\n" : text(*answer));
  return kExitOk;
}

}  // namespace

int RunStatus(const CommandLine& line) {
  SidecarHttp http(line.socket);
  const auto readiness = http.Get("/readyz");
  if (!readiness) return PrintError(readiness.error());
  auto status = http.GetJson("/v1/status");
  if (!status) return PrintError(status.error());
  const bool ready = readiness->status == 200;
  if (line.json) {
    (*status)["ready"] = ready;
    Print(status->dump(2) + "\n");
  } else {
    Print(StatusText(*status, ready));
  }
  return IsHealthy(*status, ready) ? kExitOk : kExitUnhealthy;
}

int RunBuffers(const CommandLine& line) {
  SidecarHttp http(line.socket);
  return Show(line, AllBuffers(http, line.workload), BuffersText);
}

int RunPeers(const CommandLine& line) {
  return Show(line, SidecarHttp(line.socket).GetJson("/v1/peers"), PeersText);
}

int RunWorkloads(const CommandLine& line) {
  return Show(line, SidecarHttp(line.socket).GetJson("/v1/workloads"), WorkloadsText);
}

int RunTransfers(const CommandLine& line) {
  SidecarHttp http(line.socket);
  if (line.watch) return WatchTransfers(line, http);
  return Show(line, http.GetJson(TransfersTarget(line, !line.all)), TransfersText);
}

}  // namespace gantry::gantryctl
