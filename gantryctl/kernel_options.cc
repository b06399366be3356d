#include "gantryctl/kernel_options.h"

#include <isa-l/igzip_lib.h>

#include <array>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

namespace gantry::gantryctl {
namespace {

// A kernel has about 300 KiB of them.
constexpr size_t kTextBytesMax = 4 << 20;

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.empty()) return std::nullopt;
  return bytes;
}

std::optional<std::string> Unzipped(std::string& zipped) {
  std::string text(kTextBytesMax, '\0');
  inflate_state state{};
  isal_inflate_init(&state);
  state.crc_flag = ISAL_GZIP;
  state.next_in = reinterpret_cast<uint8_t*>(zipped.data());
  state.avail_in = static_cast<uint32_t>(zipped.size());
  state.next_out = reinterpret_cast<uint8_t*>(text.data());
  state.avail_out = static_cast<uint32_t>(text.size());
  if (isal_inflate(&state) != ISAL_DECOMP_OK || state.block_state != ISAL_BLOCK_FINISH) {
    return std::nullopt;
  }
  text.resize(state.total_out);
  return text;
}

bool HasLine(const std::string& text, const std::string& line) {
  const std::string padded = "\n" + line + "\n";
  return text.starts_with(line + "\n") || text.find(padded) != std::string::npos;
}

}  // namespace

std::optional<KernelOptions> ReadKernelOptions(const std::string& root) {
  if (auto zipped = ReadFile(root + "/proc/config.gz")) {
    if (auto text = Unzipped(*zipped)) return KernelOptions{"/proc/config.gz", std::move(*text)};
  }
  std::ifstream release_file(root + "/proc/sys/kernel/osrelease");
  std::string release;
  if (!std::getline(release_file, release) || release.empty()) return std::nullopt;
  for (const std::string& path :
       {"/boot/config-" + release, "/lib/modules/" + release + "/config"}) {
    if (auto text = ReadFile(root + path)) return KernelOptions{path, std::move(*text)};
  }
  return std::nullopt;
}

KernelOption FindKernelOption(const KernelOptions& options, const std::string& name) {
  const std::string key = "CONFIG_" + name;
  if (HasLine(options.text, key + "=y") || HasLine(options.text, key + "=m")) {
    return KernelOption::kOn;
  }
  const bool off = HasLine(options.text, "# " + key + " is not set");
  return off ? KernelOption::kOff : KernelOption::kNotMentioned;
}

}  // namespace gantry::gantryctl
