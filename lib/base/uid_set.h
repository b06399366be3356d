// A set of user ids, as ranges. A plain value.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/result.h"

namespace gantry {

class UidSet {
 public:
  // Each text is "65532" or "1000680000-1000689999", both ends included. kInvalidArgument names a
  // text of another form.
  static Result<UidSet> Parse(std::span<const std::string> texts);

  bool Has(uid_t uid) const;
  bool empty() const { return ranges_.empty(); }

 private:
  std::vector<std::pair<uid_t, uid_t>> ranges_;
};

}  // namespace gantry
