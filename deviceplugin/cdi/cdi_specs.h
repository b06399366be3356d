// The CDI specs of a node, as its vendors' tools wrote them (JSON or YAML), read once. What cannot
// be read or is no spec is left out, and said in the log. Immutable; thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deviceplugin/cdi/container_edits.h"
#include "lib/base/result.h"

namespace gantry::deviceplugin {

struct CdiDevice {
  std::string cdi_version;  // of its spec
  ContainerEdits own;       // of the device alone
  ContainerEdits all;       // with what its spec adds for each of its devices
};

class CdiSpecs {
 public:
  // In `folders` the later one outranks the earlier, as runtimes have it.
  static CdiSpecs Read(const std::vector<std::string>& folders);

  // "vendor/class" and a device's name; null: no spec has it. Valid as long as this object.
  const CdiDevice* Find(std::string_view kind, std::string_view name) const;
  // Likewise by "vendor/class=name".
  const CdiDevice* Find(std::string_view qualified_name) const;
  // By their names; empty: no spec is of that kind.
  const std::map<std::string, CdiDevice>& DevicesOf(std::string_view kind) const;

 private:
  std::map<std::string, std::map<std::string, CdiDevice>, std::less<>> kinds_;
};

// One spec's text; `yaml` says how it is written. kMalformedBody: it is none.
Result<nlohmann::json> ParseCdiSpec(const std::string& text, bool yaml);

}  // namespace gantry::deviceplugin
