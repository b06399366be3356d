#include "lib/base/uid_set.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace gantry {
namespace {

constexpr uid_t kNoUid = static_cast<uid_t>(-1);  // what the kernel takes for "none"

std::optional<uid_t> UidOf(std::string_view text) {
  uid_t uid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
  if (error != std::errc() || end != text.data() + text.size() || uid == kNoUid) return {};
  return uid;
}

}  // namespace

Result<UidSet> UidSet::Parse(std::span<const std::string> texts) {
  UidSet set;
  for (const std::string& text : texts) {
    const std::string_view whole = text;
    const size_t dash = whole.find('-');
    const auto first = UidOf(whole.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : UidOf(whole.substr(dash + 1));
    if (!first || !last || *first > *last) {
      return Fail(ErrorCode::kInvalidArgument,
                  "'" + text + "' is neither the number of a user nor a range of them",
                  "e.g. 65532 or 1000680000-1000689999");
    }
    set.ranges_.emplace_back(*first, *last);
  }
  return set;
}

bool UidSet::Has(uid_t uid) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [uid](const auto& range) {
    return range.first <= uid && uid <= range.second;
  });
}

}  // namespace gantry
