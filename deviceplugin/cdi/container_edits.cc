#include "deviceplugin/cdi/container_edits.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace gantry::deviceplugin {
namespace {

using nlohmann::json;

constexpr int kForEveryUser = 0666;  // the cgroup of the container is what lets it in

std::string PathOf(const json& entry) {
  return entry.is_object() && entry.contains("path") && entry["path"].is_string()
             ? entry["path"].get<std::string>()
             : std::string();
}

void MergeList(const std::string& key, const json& from, json& to) {
  if (!to.is_array()) to = json::array();
  for (const json& entry : from) {
    const bool known = std::any_of(to.begin(), to.end(), [&](const json& other) {
      return entry == other || (key == "deviceNodes" && PathOf(entry) == PathOf(other));
    });
    if (!known) to.push_back(entry);
  }
}

// Whatever a spec has there: what is no list is not valid and gives way.
json& ListIn(json& edits, const char* key) {
  json& list = edits[key];
  if (!list.is_array()) list = json::array();
  return list;
}

std::array<int, 3> NumbersOf(std::string_view version) {
  std::array<int, 3> numbers = {};
  std::sscanf(std::string(version).c_str(), "%d.%d.%d", &numbers[0], &numbers[1], &numbers[2]);
  return numbers;
}

}  // namespace

void ContainerEdits::AddVariable(std::string_view name, std::string_view value) {
  ListIn(edits_, "env").push_back(std::string(name) + "=" + std::string(value));
}

void ContainerEdits::AddDeviceFile(std::string_view path) {
  ListIn(edits_, "deviceNodes")
      .push_back({{"path", path}, {"permissions", "rw"}, {"fileMode", kForEveryUser}});
}

void ContainerEdits::AddMount(std::string_view host_path, std::string_view container_path) {
  ListIn(edits_, "mounts")
      .push_back({{"hostPath", host_path},
                  {"containerPath", container_path},
                  {"options", {"rw", "nosuid", "nodev", "noexec", "rbind"}}});
}

void ContainerEdits::Merge(const ContainerEdits& other) {
  for (const auto& [key, value] : other.edits_.items()) {
    if (value.is_array()) {
      MergeList(key, value, edits_[key]);
    } else if (!edits_.contains(key)) {
      edits_[key] = value;
    }
  }
}

std::vector<std::string> ContainerEdits::DeviceFiles() const {
  std::vector<std::string> paths;
  const auto nodes = edits_.find("deviceNodes");
  if (nodes == edits_.end()) return paths;
  for (const nlohmann::json& node : *nodes) {
    if (std::string path = PathOf(node); !path.empty()) paths.push_back(std::move(path));
  }
  return paths;
}

std::string ContainerEdits::Variable(std::string_view name) const {
  const auto variables = edits_.find("env");
  if (variables == edits_.end()) return {};
  const std::string prefix = std::string(name) + "=";
  for (const nlohmann::json& variable : *variables) {
    if (!variable.is_string()) continue;
    const auto& text = variable.get_ref<const std::string&>();
    if (text.starts_with(prefix)) return text.substr(prefix.size());
  }
  return {};
}

std::string LaterCdiVersion(std::string_view a, std::string_view b) {
  return std::string(NumbersOf(a) < NumbersOf(b) ? b : a);
}

}  // namespace gantry::deviceplugin
