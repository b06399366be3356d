#include "connectors/nixl/agent/plugin_log.h"

#include <unistd.h>

#include <string>

namespace gantry::nixl::plugin_log {
namespace {

void WriteLine(std::string_view level, std::string_view text) {
  std::string line = "gantry-nixl: ";
  line.append(level).append(text).append("\n");
  // One write for each line, so that lines of several processes do not mix.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string TextOf(std::string_view what, const Error& error) {
  std::string text(what);
  text.append(": ").append(error.message);
  if (!error.hint.empty()) text.append(" (").append(error.hint).append(")");
  return text;
}

}  // namespace

void Info(std::string_view text) { WriteLine("", text); }

void Warning(std::string_view text) { WriteLine("warning: ", text); }

void Warning(std::string_view what, const Error& error) { Warning(TextOf(what, error)); }

void Seldom(log::RateLimiter& limiter, std::string_view text) {
  const auto left_out = limiter.Pass();
  if (!left_out) return;
  std::string line(text);
  if (*left_out > 0) line += ", and " + std::to_string(*left_out) + " more before";
  Warning(line);
}

void Seldom(log::RateLimiter& limiter, std::string_view what, const Error& error) {
  Seldom(limiter, TextOf(what, error));
}

}  // namespace gantry::nixl::plugin_log
