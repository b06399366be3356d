// The plugin's lines on the standard error of the engine. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/error.h"
#include "lib/base/log_rate_limiter.h"

namespace gantry::nixl::plugin_log {

// One line each, "gantry-nixl: ...".
void Info(std::string_view text);
void Warning(std::string_view text);
// The error's message and hint behind `what`.
void Warning(std::string_view what, const Error& error);

// For what can happen in each step of an engine, or whenever another agent likes: one line in ten
// seconds, which says how many more there were.
void Seldom(log::RateLimiter& limiter, std::string_view text);
void Seldom(log::RateLimiter& limiter, std::string_view what, const Error& error);

}  // namespace gantry::nixl::plugin_log
