// What a CDI device adds to a container: the object `containerEdits` of the CDI specification. Kept
// as it was read, so that what this build does not know goes on with it. A plain value.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::deviceplugin {

class ContainerEdits {
 public:
  // The least version of the specification that has all that Add... write.
  static constexpr std::string_view kCdiVersion = "0.5.0";

  ContainerEdits() : edits_(nlohmann::json::object()) {}
  // REQUIRES edits.is_object()
  explicit ContainerEdits(nlohmann::json edits) : edits_(std::move(edits)) {}

  void AddVariable(std::string_view name, std::string_view value);
  // Open for reading and writing to every user of the container; of the host's file of that name.
  void AddDeviceFile(std::string_view path);
  // A folder of the host, for reading and writing.
  void AddMount(std::string_view host_path, std::string_view container_path);
  // Appends what is not here yet, in the other's order; the first one of a device file stays.
  void Merge(const ContainerEdits& other);

  std::vector<std::string> DeviceFiles() const;       // their paths in the container
  std::string Variable(std::string_view name) const;  // empty: there is none
  const nlohmann::json& json() const { return edits_; }
  bool empty() const { return edits_.empty(); }

 private:
  nlohmann::json edits_;
};

// The later of two versions such as "0.6.0".
std::string LaterCdiVersion(std::string_view a, std::string_view b);

}  // namespace gantry::deviceplugin
