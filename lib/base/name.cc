#include "lib/base/name.h"

#include <algorithm>

#include "lib/base/json_text.h"

namespace gantry {
namespace {

constexpr size_t kShownMax = 40;  // of a name that is none

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == ':' || c == '+' || c == '=' || c == '-';
}

}  // namespace

Status CheckName(std::string_view name, std::string_view field) {
  if (name.empty() || name.size() > kNameLengthMax ||
      !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return Fail(ErrorCode::kInvalidArgument,
                JsonQuote(name.substr(0, kShownMax)) + (name.size() > kShownMax ? "..." : "") +
                    " is not a name of 1 to 128 characters of [A-Za-z0-9._:+=-]",
                "choose a shorter or plainer name", std::string(field));
  }
  return {};
}

}  // namespace gantry
