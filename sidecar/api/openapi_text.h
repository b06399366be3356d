// docs/rest_api.yaml as it was when this was built. Thread-safe.
#pragma once

#include <string_view>

namespace gantry::api {

std::string_view OpenApiText();

}  // namespace gantry::api
