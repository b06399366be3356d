// What a peer may ask for, by the names in its certificate: lines of "name workloads access".
// Immutable; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"

namespace gantry::peer {

// '*' stands for any characters, none included; everything else for itself.
bool MatchesPattern(std::string_view pattern, std::string_view text);

// What one peer may ask for. A plain value.
struct PeerGrant {
  struct Part {
    std::string workloads;  // pattern
    wire::Access access;
  };
  std::vector<Part> parts = {{"*", {true, true}}};

  // Nothing when no part is about the workload.
  wire::Access Over(std::string_view workload) const;
};

class PeerRules {
 public:
  // One rule a line: a pattern of certificate names, one of workloads, and "read", "write" or
  // "read,write". '#' begins a comment. The error names the line.
  static Result<PeerRules> Parse(std::string_view text);

  // The rules of all these names together; nothing when there is none.
  std::optional<PeerGrant> GrantFor(const std::vector<std::string>& names) const;

 private:
  struct Rule {
    std::string name;
    PeerGrant::Part part;
  };
  std::vector<Rule> rules_;
};

}  // namespace gantry::peer
