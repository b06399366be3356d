#include "lib/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cmath>
#include <memory>

#include "lib/base/json_text.h"
#include "lib/base/result.h"

namespace gantry::log {
namespace {

spdlog::level::level_enum SpdlogLevel(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      break;
  }
  return spdlog::level::err;
}

std::shared_ptr<spdlog::logger> MakeLogger(std::string_view process) {
  auto logger = std::make_shared<spdlog::logger>(std::string(process),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  // The payload is the rest of the object: it begins with the quoted message.
  logger->set_pattern(
      R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","process":"%n","message":%v})");
  logger->set_level(spdlog::level::info);
  return logger;
}

std::shared_ptr<spdlog::logger>& Logger() {
  // Never destroyed: what is released at the end of a process may still have something to say.
  static auto* const logger = new std::shared_ptr<spdlog::logger>(MakeLogger("gantry"));
  return *logger;
}

void Write(Level level, std::string_view message, Fields fields) {
  spdlog::logger& logger = *Logger();
  const auto spdlog_level = SpdlogLevel(level);
  if (!logger.should_log(spdlog_level)) return;
  std::string line = JsonQuote(message);
  for (const Field& field : fields) {
    line += ',';
    line += JsonQuote(field.key);
    line += ':';
    line += field.json;
  }
  logger.log(spdlog_level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

Field::Field(std::string_view key_in, std::string_view text) : key(key_in), json(JsonQuote(text)) {}
Field::Field(std::string_view key_in, const gantry::Error& error)
    : key(key_in),
      json("{\"code\":" + JsonQuote(InfoOf(error.code).name) +
           ",\"message\":" + JsonQuote(error.message) + "}") {}
Field::Field(std::string_view key_in, bool value) : key(key_in), json(value ? "true" : "false") {}
Field::Field(std::string_view key_in, double value)
    : key(key_in), json(std::isfinite(value) ? std::to_string(value) : "null") {}

void Configure(std::string_view process, Level least) {
  Logger() = MakeLogger(process);
  Logger()->set_level(SpdlogLevel(least));
}

Result<Level> ParseLevel(std::string_view text) {
  if (text == "debug") return Level::kDebug;
  if (text == "info") return Level::kInfo;
  if (text == "warning") return Level::kWarning;
  if (text == "error") return Level::kError;
  return Fail(ErrorCode::kInvalidArgument, "unknown log level '" + std::string(text) + "'",
              "use debug, info, warning or error");
}

void Debug(std::string_view message, Fields fields) { Write(Level::kDebug, message, fields); }
void Info(std::string_view message, Fields fields) { Write(Level::kInfo, message, fields); }
void Warning(std::string_view message, Fields fields) { Write(Level::kWarning, message, fields); }
void Error(std::string_view message, Fields fields) { Write(Level::kError, message, fields); }

}  // namespace gantry::log
