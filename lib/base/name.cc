#include "lib/base/name.h"

#include <algorithm>

namespace gantry {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == ':' || c == '+' || c == '=' || c == '-';
}

}  // namespace

Status CheckName(std::string_view name, std::string_view field) {
  if (name.empty() || name.size() > kNameLengthMax ||
      !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return Fail(ErrorCode::kInvalidArgument,
                std::string(field) + " is not a name of 1 to 128 characters of [A-Za-z0-9._:+=-]",
                "choose a shorter or plainer name", std::string(field));
  }
  return {};
}

}  // namespace gantry
