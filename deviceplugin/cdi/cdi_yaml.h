// YAML as container runtimes read CDI specs: by Go's sigs.k8s.io/yaml, whose scalars follow
// YAML 1.1. yaml-cpp gives the nodes and their texts. This file decides what a text stands for.
// Stateless; thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/result.h"

namespace gantry::deviceplugin {

// The first document of `text`. kMalformedBody: it is no YAML, or none that JSON can hold;
// kBodyTooLarge: its aliases make it too long. What lies too deep becomes null.
Result<nlohmann::json> JsonOfYaml(const std::string& text);

// A number or a truth value as text, as Go writes it: "438", "0.6", "1e+06", "true".
std::string TextOfScalar(const nlohmann::json& value);

}  // namespace gantry::deviceplugin
