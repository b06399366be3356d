#include "lib/base/log.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "lib/base/clock.h"
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

// Some 400 KiB; a burst of so many lines is not dropped while somebody reads.
constexpr size_t kQueueLines = 1024;
constexpr milliseconds kFlushMax{500};
constexpr milliseconds kFlushLook{1};

// How many lines there were, and what became of them.
struct Tally {
  std::atomic<uint64_t> posted = 0;
  std::atomic<uint64_t> handled = 0;  // by the sink: written, or refused by stderr
  std::atomic<uint64_t> refused = 0;
  std::atomic<uint64_t> told = 0;  // of those that stderr did not take
};

// The following are never destroyed: what is released at the end of a process may still have
// something to say, and the thread that writes may stand in write(2).
Tally& Lines() {
  static auto* const tally = new Tally();
  return *tally;
}

// Null: whoever logs writes by himself.
std::shared_ptr<spdlog::details::thread_pool>& Writer() {
  static auto* const writer = new std::shared_ptr<spdlog::details::thread_pool>();
  return *writer;
}

// Also to a pipe that another process made non-blocking. False: stderr does not take it.
bool WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd writable{STDERR_FILENO, POLLOUT, 0};
      ::poll(&writable, 1, /*timeout=*/-1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& line) override {
    WriteDropped(line);
    if (!Write(line)) ++Lines().refused;
    ++Lines().handled;
  }
  void flush_() override {}

 private:
  bool Write(const spdlog::details::log_msg& line) {
    spdlog::memory_buf_t text;
    formatter_->format(line, text);
    return WriteAll({text.data(), text.size()});
  }

  // Where they are missing: they were older than `next`, and newer than the line before it.
  void WriteDropped(const spdlog::details::log_msg& next) {
    const uint64_t dropped = LinesDropped();
    const uint64_t told = Lines().told;
    if (dropped == told) return;
    const std::string text = R"("log lines were dropped, as stderr did not take them","lines":)" +
                             std::to_string(dropped - told);
    if (Write({next.logger_name, spdlog::level::warn, text})) Lines().told = dropped;
  }
};

std::shared_ptr<spdlog::logger> MakeLogger(std::string_view process) {
  const auto sink = std::make_shared<StderrSink>();
  auto logger = Writer() == nullptr ? std::make_shared<spdlog::logger>(std::string(process), sink)
                                    : std::make_shared<spdlog::async_logger>(
                                          std::string(process), sink, Writer(),
                                          spdlog::async_overflow_policy::overrun_oldest);
  // The payload is the rest of the object: it begins with the quoted message.
  logger->set_pattern(
      R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","process":"%n","message":%v})");
  logger->set_level(spdlog::level::info);
  logger->set_error_handler([](const std::string&) {});  // the default one writes to stderr
  return logger;
}

std::shared_ptr<spdlog::logger>& Logger() {
  static auto* const logger = new std::shared_ptr<spdlog::logger>(MakeLogger("gantry"));
  return *logger;
}

// The thread takes no signals: they are for others, and SIGPIPE would end the process. Where no
// thread can be made nothing else can be started either, and callers go on to write.
void StartWriter() {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    Writer() = std::make_shared<spdlog::details::thread_pool>(
        kQueueLines, 1, [] { ::pthread_setname_np(::pthread_self(), "gantry-log"); });
    std::atexit(Flush);
  } catch (const std::exception& failure) {
    Warning("log lines are written by the threads that log", {{"why", failure.what()}});
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
  ++Lines().posted;
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
  if (Writer() == nullptr) StartWriter();
  Logger() = MakeLogger(process);
  Logger()->set_level(SpdlogLevel(least));
}

void Flush() {
  const TimePoint end = Clock::now() + kFlushMax;
  while (Writer() != nullptr && Clock::now() < end &&
         Lines().handled + Writer()->overrun_counter() < Lines().posted) {
    std::this_thread::sleep_for(kFlushLook);
  }
}

uint64_t LinesDropped() {
  return Lines().refused + (Writer() == nullptr ? 0 : Writer()->overrun_counter());
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
