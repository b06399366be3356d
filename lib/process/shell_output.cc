#include "lib/process/shell_output.h"

#include <array>
#include <cstdio>
#include <memory>

namespace gantry {

std::string OutputOf(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "re"), ::pclose);
  std::string text;
  std::array<char, 4096> part;
  for (size_t n = 0; pipe && (n = std::fread(part.data(), 1, part.size(), pipe.get())) > 0;) {
    text.append(part.data(), n);
  }
  return text;
}

}  // namespace gantry
