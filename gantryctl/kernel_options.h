// What the running kernel was built with, as far as a file of it can be read. Stateless;
// thread-safe.
#pragma once

#include <optional>
#include <string>

namespace gantry::gantryctl {

enum class KernelOption { kOn, kOff, kNotMentioned };

struct KernelOptions {
  std::string path;  // where they were read
  std::string text;  // lines "CONFIG_X=y" and "# CONFIG_X is not set"
};

// From /proc/config.gz, or from what distributions keep for the running release in /boot or
// /lib/modules; nothing when none is readable, as in most containers.
std::optional<KernelOptions> ReadKernelOptions(const std::string& root);

// `name` without CONFIG_.
KernelOption FindKernelOption(const KernelOptions& options, const std::string& name);

}  // namespace gantry::gantryctl
