// Structured logging: one JSON line per event on stderr, a constant message (greppable) and fields.
// `log::Info("buffer registered", {{"buffer", id}, {"bytes", length}});` Thread-safe.
// After Configure no call blocks on stderr: a writer thread takes lines from a bounded queue. While
// stderr is blocked, the oldest queued lines are dropped.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// A field's key and its value, already in JSON form.
struct Field {
  std::string_view key;
  std::string json;

  Field(std::string_view key_in, std::string_view text);
  Field(std::string_view key_in, const char* text) : Field(key_in, std::string_view(text)) {}
  Field(std::string_view key_in, const std::string& text) : Field(key_in, std::string_view(text)) {}
  Field(std::string_view key_in, const gantry::Error& error);  // its code and message
  Field(std::string_view key_in, bool value);
  Field(std::string_view key_in, double value);
  template <std::integral Integer>
  Field(std::string_view key_in, Integer value) : key(key_in), json(std::to_string(value)) {}
};
using Fields = std::initializer_list<Field>;

// Sets the minimum level and the process name of each line, and starts the writer thread. Call it
// once, before other threads log: until then each caller writes to stderr itself. exit() flushes
// the queue; call Flush before _exit or abort.
void Configure(std::string_view process, Level least);
// Waits until every line is written, for at most half a second.
void Flush();
// Returns the number of lines of this process that did not reach stderr.
uint64_t LinesDropped();
// Takes "debug", "info", "warning" or "error"; kInvalidArgument for anything else.
Result<Level> ParseLevel(std::string_view text);

void Debug(std::string_view message, Fields fields = {});
void Info(std::string_view message, Fields fields = {});
void Warning(std::string_view message, Fields fields = {});
void Error(std::string_view message, Fields fields = {});

}  // namespace gantry::log
