// Text in the target of a request.
#pragma once

#include <string>
#include <string_view>

namespace gantry {

// `text` for a path segment or a query value.
std::string UrlEscape(std::string_view text);

}  // namespace gantry
