#include "gantryctl/printing.h"

#include <cstdio>

#include "gantryctl/exit_code.h"

namespace gantry::gantryctl {

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int PrintError(const Error& error, const char* program) {
  std::string text = program + (": " + error.message) + "\n";
  if (!error.hint.empty()) text += "  " + error.hint + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  return ExitCodeOf(error);
}

}  // namespace gantry::gantryctl
