#include "sidecar/peer/identity/peer_rules.h"

#include <sstream>
#include <utility>

namespace gantry::peer {
namespace {

constexpr size_t kRulesMax = 10'000;

std::optional<wire::Access> AccessOf(std::string_view text) {
  if (text == "read") return wire::Access{true, false};
  if (text == "write") return wire::Access{false, true};
  if (text == "read,write") return wire::Access{true, true};
  return {};
}

}  // namespace

// Greedy with one place to go back to: the time is bounded by the product of the lengths.
bool MatchesPattern(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

wire::Access PeerGrant::Over(std::string_view workload) const {
  wire::Access access{false, false};
  for (const Part& part : parts) {
    if (!MatchesPattern(part.workloads, workload)) continue;
    access.remote_read = access.remote_read || part.access.remote_read;
    access.remote_write = access.remote_write || part.access.remote_write;
  }
  return access;
}

Result<PeerRules> PeerRules::Parse(std::string_view text) {
  PeerRules rules;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, workloads, access_text, more;
    if (!(words >> name)) continue;
    const bool complete = static_cast<bool>(words >> workloads >> access_text);
    const std::optional<wire::Access> access = AccessOf(access_text);
    if (!complete || !access || (words >> more) || rules.rules_.size() >= kRulesMax) {
      return Fail(ErrorCode::kInvalidArgument,
                  "line " + std::to_string(number) + " of the peer rules is no rule",
                  "write: <certificate name> <workloads> <read | write | read,write>; at most " +
                      std::to_string(kRulesMax) + " rules");
    }
    rules.rules_.push_back({std::move(name), {std::move(workloads), *access}});
  }
  return rules;
}

std::optional<PeerGrant> PeerRules::GrantFor(const std::vector<std::string>& names) const {
  PeerGrant grant;
  grant.parts.clear();
  for (const Rule& rule : rules_) {
    for (const std::string& name : names) {
      if (!MatchesPattern(rule.name, name)) continue;
      grant.parts.push_back(rule.part);
      break;
    }
  }
  if (grant.parts.empty()) return {};
  return grant;
}

}  // namespace gantry::peer
