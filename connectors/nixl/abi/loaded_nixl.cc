#include "connectors/nixl/abi/loaded_nixl.h"

#include <dlfcn.h>

#include <memory>
#include <string>

namespace gantry::nixl {
namespace {

// nixlAgent::releaseMemView(void*) const, which came with the table of functions of 1.0.
constexpr char kSinceOneDotZero[] = "_ZNK9nixlAgent14releaseMemViewEPv";

}  // namespace

Status CheckLoadedNixl(const void* caller) {
  Dl_info core = {};
  const bool is_known = ::dladdr(caller, &core) != 0 && core.dli_fname != nullptr;
  const auto close = [](void* library) { ::dlclose(library); };
  const std::unique_ptr<void, decltype(close)> library(
      is_known ? ::dlopen(core.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr, close);
  if (library != nullptr && ::dlsym(library.get(), kSinceOneDotZero) != nullptr) return {};
  return Fail(ErrorCode::kVersionMismatch,
              "this NIXL (" + std::string(is_known ? core.dli_fname : "unknown") +
                  ") is older than 1.0 or newer than the plugin knows",
              "the plugin works with NIXL 1.0.1 to 1.5.1");
}

}  // namespace gantry::nixl
