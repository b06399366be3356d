#include "gantryctl/sidecar_views.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantryctl/json_field.h"
#include "gantryctl/size_text.h"
#include "gantryctl/text_table.h"

namespace gantry::gantryctl {
namespace {

using nlohmann::json;

constexpr size_t kBarColumns = 20;

std::string Text(const json& object, const char* key) {
  const std::string text = TextOf(object, key);
  return text.empty() ? "-" : text;
}

std::string Size(const json& object, const char* key) { return FormatSize(CountOf(object, key)); }
std::string Count(const json& object, const char* key) {
  return std::to_string(CountOf(object, key));
}

// Of a transfer: "pod-b", and whether it moves the bytes, or asked this sidecar to.
std::string PeerCell(const json& transfer) {
  const std::string requested_by = TextOf(transfer, "requested_by");
  if (!requested_by.empty()) return requested_by + " (asked for it)";
  return Text(transfer, "peer") + (TextOf(transfer, "executor") == "peer" ? " (executes)" : "");
}

// "shm", or what each path says: "shm, not ipc (no GPU), not rdma (no device)".
std::string PathsSentence(const json& paths) {
  std::string usable, refused;
  for (const json& path : paths) {
    const std::string name = TextOf(path, "path");
    if (FlagOf(path, "available")) {
      usable += (usable.empty() ? "" : ", ") + name;
    } else {
      refused += "; not " + name;
      if (const std::string reason = TextOf(path, "reason"); !reason.empty()) {
        refused += ": " + reason;
      }
    }
  }
  return (usable.empty() ? "none" : usable) + refused;
}

std::string UsablePaths(const json& paths) {
  const std::string sentence = PathsSentence(paths);
  return sentence.substr(0, sentence.find(';'));
}

size_t ReadyWorkers(const json& workers) {
  return static_cast<size_t>(std::count_if(workers.begin(), workers.end(), [](const json& worker) {
    return TextOf(worker, "state") == "ready" || FlagOf(worker, "ready");
  }));
}

// A table, or a sentence when there is nothing to show.
std::string TableOr(const TextTable& table, const char* otherwise) {
  return table.empty() ? std::string(otherwise) + "\n" : table.Text();
}

double Fraction(const json& transfer) {
  const double bytes = NumberOf(transfer, "bytes");
  return bytes > 0 ? std::clamp(NumberOf(transfer, "bytes_moved") / bytes, 0.0, 1.0) : 0;
}

}  // namespace

bool IsHealthy(const json& status, bool ready) {
  const json& workers = MemberOf(status, "workers");
  return ready && (!workers.is_array() || ReadyWorkers(workers) == workers.size());
}

std::string StatusText(const json& status, bool ready) {
  const json& workers = MemberOf(status, "workers");
  const json& totals = MemberOf(status, "totals");
  std::string text = Text(status, "name") + " " + Text(status, "version") + ", generation " +
                     Text(status, "generation") + ", pid " + Count(status, "pid") + ", up " +
                     FormatSeconds(NumberOf(status, "uptime_ms") / 1000) +
                     (ready ? ", ready" : ", NOT READY") + "\n";
  TextTable table({"", ""});
  table.Add({"workers", std::to_string(ReadyWorkers(workers)) + " of " +
                            std::to_string(workers.size()) + " ready"});
  for (const json& path : MemberOf(status, "paths")) {
    const std::string reason = TextOf(path, "reason");
    table.Add({"path " + Text(path, "path"), FlagOf(path, "available") ? "usable"
                                             : reason.empty()          ? "not usable"
                                                                       : "not usable: " + reason});
  }
  for (const auto& [key, value] : totals.items()) {
    if (!value.is_number_unsigned()) continue;
    const bool bytes = key.find("bytes") != std::string::npos;
    table.Add({key, bytes ? FormatSize(value) : std::to_string(value.get<uint64_t>())});
  }
  std::string rows = table.Text();
  return text + rows.substr(rows.find('\n') + 1);
}

std::string BuffersText(const json& answer) {
  TextTable table({"WORKLOAD", "NAME", "ID", "STATE", ">LENGTH", ">PIECES", ">USES", "ACCESS",
                   "BLOCKS", "PATHS"});
  for (const json& buffer : MemberOf(answer, "buffers")) {
    std::string access;
    for (const json& word : MemberOf(buffer, "access")) {
      if (word.is_string()) access += (access.empty() ? "" : ",") + word.get<std::string>();
    }
    const json& layout = MemberOf(buffer, "layout");
    const std::string blocks =
        layout.is_object() ? Count(layout, "blocks") + " x " + Size(layout, "block_bytes") : "-";
    table.Add({Text(buffer, "workload"), Text(buffer, "name"), Text(buffer, "id"),
               Text(buffer, "state"), Size(buffer, "length"),
               std::to_string(MemberOf(buffer, "pieces").size()), Count(buffer, "uses"),
               access.empty() ? "-" : access, blocks, UsablePaths(MemberOf(buffer, "paths"))});
  }
  return TableOr(table, "no buffer is registered");
}

std::string PeersText(const json& answer) {
  TextTable table({"NAME", "STATE", "PATH", ">RTT", "VERSION", "ADDRESS"});
  std::string reasons;
  for (const json& peer : MemberOf(answer, "peers")) {
    const double rtt_us = NumberOf(peer, "rtt_us");
    table.Add({Text(peer, "name"), Text(peer, "state"), Text(peer, "path"),
               rtt_us > 0 ? FormatMicroseconds(rtt_us) : "-", Text(peer, "version"),
               Text(peer, "address")});
    if (const json& paths = MemberOf(peer, "paths"); paths.is_array() && !paths.empty()) {
      reasons += "  " + Text(peer, "name") + ": " + PathsSentence(paths) + "\n";
    }
    const json& error = MemberOf(peer, "error");
    const std::string why = error.is_string() ? error.get<std::string>() : TextOf(error, "detail");
    if (!why.empty()) reasons += "  " + Text(peer, "name") + ": " + why + "\n";
  }
  return TableOr(table, "no peer is known; PUT /v1/peers/{name} adds one") + reasons;
}

std::string WorkloadsText(const json& answer) {
  TextTable table({"NAME", "ENGINE ID", "GENERATION", "LEASE", ">PID", ">TTL"});
  for (const json& workload : MemberOf(answer, "workloads")) {
    const bool attached = FlagOf(workload, "attached");
    const uint64_t pid = CountOf(workload, "pid");
    table.Add({Text(workload, "name"), Text(workload, "engine_id"), Text(workload, "generation"),
               attached ? "attached" : "by ttl", pid == 0 ? "-" : std::to_string(pid),
               FormatMicroseconds(1e3 * NumberOf(workload, "ttl_ms"))});
  }
  return TableOr(table, "no workload is registered");
}

std::string TransfersText(const json& answer) {
  TextTable table({"WORKLOAD", "ID", "OP", "STATE", "PEER", "PATH", ">BYTES", ">DONE", ">CHUNKS",
                   ">TIME", "ERROR"});
  for (const json& transfer : MemberOf(answer, "transfers")) {
    const json& error = MemberOf(transfer, "error");
    const double total_us = NumberOf(MemberOf(transfer, "timings"), "total_us");
    table.Add({Text(transfer, "workload"), Text(transfer, "id"), Text(transfer, "op"),
               Text(transfer, "state"), PeerCell(transfer), Text(transfer, "path"),
               Size(transfer, "bytes"), FormatFixed(100 * Fraction(transfer), 0) + " %",
               Count(transfer, "chunks"), total_us > 0 ? FormatMicroseconds(total_us) : "-",
               error.is_object() ? Text(error, "code") + ": " + TextOf(error, "detail") : ""});
  }
  return TableOr(table, "no transfer is under way");
}

std::string ProgressLine(const json& transfer, size_t columns) {
  const double fraction = Fraction(transfer);
  const auto filled = static_cast<size_t>(fraction * kBarColumns);
  std::string line = Text(transfer, "workload") + "/" + Text(transfer, "id") + " [" +
                     std::string(filled, '#') + std::string(kBarColumns - filled, '.') + "] " +
                     FormatFixed(100 * fraction, 0) + " %  " + Size(transfer, "bytes_moved") +
                     " of " + Size(transfer, "bytes") + "  " + Text(transfer, "path") + "  " +
                     Text(transfer, "state");
  if (line.size() > columns) line.resize(columns);
  return line;
}

}  // namespace gantry::gantryctl
