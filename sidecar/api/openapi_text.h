// docs/rest_api.yaml as of this build. Thread-safe.
#pragma once

#include <string_view>

namespace gantry::api {

std::string_view OpenApiText();

}  // namespace gantry::api
