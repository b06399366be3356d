#include "connectors/nixl/abi/loaded_nixl.h"

#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace gantry::nixl {
namespace {

// nixlAgent::releaseMemView(void*) const, which came with the table of functions of 1.0.
constexpr char kSinceOneDotZero[] = "_ZNK9nixlAgent14releaseMemViewEPv";

// The newest that is tested, "1.5".
constexpr std::pair<unsigned, unsigned> kNewest = {1, 5};

constexpr char kLibsSuffix[] = ".mesonpy.libs";

// The version of the wheel that has `core`: ".../.nixl_cu12.mesonpy.libs/libnixl.so" lies beside
// ".../nixl_cu12-1.5.1.dist-info". Empty where it is of no wheel.
std::string VersionOf(const std::filesystem::path& core) {
  const std::filesystem::path libs = core.parent_path();
  const std::string folder = libs.filename().string();
  if (!folder.starts_with('.') || !folder.ends_with(kLibsSuffix)) return "";
  const std::string wheel =
      folder.substr(1, folder.size() - std::string_view(kLibsSuffix).size() - 1) + "-";
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(libs.parent_path(), failed), end;
       !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(wheel) && name.ends_with(".dist-info"))
      return name.substr(wheel.size(), name.rfind('.') - wheel.size());
  }
  return "";
}

bool IsNewer(const std::string& version) {
  std::pair<unsigned, unsigned> number;
  return std::sscanf(version.c_str(), "%u.%u", &number.first, &number.second) == 2 &&
         number > kNewest;
}

Status CheckVersion(const char* core) {
  const std::string version = VersionOf(core);
  if (!IsNewer(version)) return {};
  return Fail(ErrorCode::kVersionMismatch, "NIXL " + version + " is newer than the plugin knows",
              "take a newer plugin, NIXL 1.0.1 to 1.5.1, or GANTRY_NIXL_ANY_VERSION=1 at your "
              "own risk");
}

}  // namespace

Status CheckLoadedNixl(const void* caller, bool allows_newer) {
  Dl_info core = {};
  const bool is_known = ::dladdr(caller, &core) != 0 && core.dli_fname != nullptr;
  const auto close = [](void* library) { ::dlclose(library); };
  const std::unique_ptr<void, decltype(close)> library(
      is_known ? ::dlopen(core.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr, close);
  if (library != nullptr && ::dlsym(library.get(), kSinceOneDotZero) != nullptr)
    return allows_newer ? Status() : CheckVersion(core.dli_fname);
  return Fail(ErrorCode::kVersionMismatch,
              "this NIXL (" + std::string(is_known ? core.dli_fname : "unknown") +
                  ") is older than 1.0 or newer than the plugin knows",
              "the plugin works with NIXL 1.0.1 to 1.5.1");
}

}  // namespace gantry::nixl
