// Access of a peer by the names in its certificate, from lines of "name workloads access".
// Immutable; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"

namespace gantry::peer {

// '*' matches any characters, also none; every other character matches itself.
bool MatchesPattern(std::string_view pattern, std::string_view text);

// The access of one peer. A plain value.
struct PeerGrant {
  struct Part {
    std::string workloads;  // pattern
    wire::Access access;
  };
  std::vector<Part> parts = {{"*", {true, true}}};

  // Returns no access when no part matches the workload.
  wire::Access Over(std::string_view workload) const;
};

class PeerRules {
 public:
  // Parses one rule a line: patterns of certificate names and of workloads, and "read", "write" or
  // "read,write". '#' starts a comment. The error names the line.
  static Result<PeerRules> Parse(std::string_view text);

  // Returns the rules of all these names together; nothing when none matches.
  std::optional<PeerGrant> GrantFor(const std::vector<std::string>& names) const;

 private:
  struct Rule {
    std::string name;
    PeerGrant::Part part;
  };
  std::vector<Rule> rules_;
};

}  // namespace gantry::peer
