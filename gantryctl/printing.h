// Standard output and standard error of gantryctl and gantry-bench. Thread-safe.
#pragma once

#include <string>

#include "lib/base/error.h"

namespace gantry::gantryctl {

// Writes at once, so that a pipe sees each line when it is made.
void Print(const std::string& text);
// "gantryctl: what happened" and what to do about it, to standard error. Returns the exit code.
int PrintError(const Error& error, const char* program = "gantryctl");

}  // namespace gantry::gantryctl
