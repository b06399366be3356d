#include "sidecar/pod/pod_config.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "lib/wire/slot_variables.h"

namespace gantry::pod {
namespace {

std::string Variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::string() : value;
}

std::vector<std::string> List(std::string_view name) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : Variable(name) + ",") {
    if (c != ',') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

}  // namespace

PodConfig ReadPodConfig() {
  PodConfig config{Variable(kPodNameVariable), Variable(kPodNamespaceVariable), {}};
  std::string id = Variable(wire::kSlotVariable);
  if (id.empty()) return config;
  config.slot = Slot{std::move(id),
                     Variable(wire::kSlotPodVariable),
                     Variable(wire::kSlotNamespaceVariable),
                     Variable(wire::kSlotContainerVariable),
                     List(wire::kSlotGpusVariable),
                     List(wire::kSlotPeerGpusVariable),
                     List(wire::kSlotRdmaVariable)};
  return config;
}

}  // namespace gantry::pod
