#include "lib/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/json_text.h"
#include "lib/base/unique_fd.h"

namespace gantry {
namespace {

using nlohmann::json;

TEST(JsonTextTest, AnyBytesBecomeAValidString) {
  for (const std::string& text :
       {std::string("plain"), std::string("\"\\/\b\f\n\r\t"), std::string("\0\x1f", 2),
        std::string("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80")}) {
    EXPECT_EQ(json::parse(JsonQuote(text)).get<std::string>(), text);
  }
  for (const char* broken : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80",
                             "\xf4\x90\x80\x80", "a\x80z"}) {
    EXPECT_NE(json::parse(JsonQuote(broken)).get<std::string>().find("\xef\xbf\xbd"),
              std::string::npos);
    EXPECT_FALSE(IsUtf8(broken));
  }
  EXPECT_TRUE(IsUtf8("\xc3\xa4 and plain"));
}

TEST(JsonTextTest, EachByteOfALongTextIsLookedAt) {
  const std::string plain(40, 'a');
  EXPECT_TRUE(IsUtf8(plain));
  for (size_t at = 0; at < plain.size(); ++at) {
    std::string text = plain;
    text[at] = '\xff';
    EXPECT_FALSE(IsUtf8(text)) << at;
    text.replace(at, 1, "\xe2\x82\xac");
    EXPECT_TRUE(IsUtf8(text)) << at;
    text.resize(at + 2);
    EXPECT_FALSE(IsUtf8(text)) << at;
  }
}

TEST(LogTest, OneJsonLineWithTypedFields) {
  log::Configure("log-test", log::Level::kInfo);
  ::testing::internal::CaptureStderr();
  log::Debug("not written");
  log::Info("it \"happened\"", {{"text", "a\nb"},
                                {"count", 3},
                                {"big", ~uint64_t{0}},
                                {"yes", true},
                                {"ratio", 0.5},
                                {"nothing", std::nan("")},
                                {"error", gantry::Error(ErrorCode::kNotFound, "gone", "hint")}});
  log::Flush();
  const std::string written = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(std::count(written.begin(), written.end(), '\n'), 1) << written;
  const json line = json::parse(written);
  EXPECT_EQ(line["process"], "log-test");
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["message"], "it \"happened\"");
  EXPECT_EQ(line["text"], "a\nb");
  EXPECT_EQ(line["count"], 3);
  EXPECT_EQ(line["big"], ~uint64_t{0});
  EXPECT_EQ(line["yes"], true);
  EXPECT_EQ(line["ratio"], 0.5);
  EXPECT_TRUE(line["nothing"].is_null());
  EXPECT_EQ(line["error"]["code"], "not_found");
  EXPECT_EQ(line["error"]["message"], "gone");
}

// What stands in the place of stderr: a pipe that this test reads, or does not.
class StderrPipe {
 public:
  StderrPipe() : before_(::dup(STDERR_FILENO)) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    read_.reset(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  ~StderrPipe() { PutBack(); }
  void Fill() {
    const int flags = ::fcntl(STDERR_FILENO, F_GETFL);
    ::fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
    while (::write(STDERR_FILENO, "\n", 1) == 1) {
    }
    ::fcntl(STDERR_FILENO, F_SETFL, flags);
  }
  void PutBack() {
    if (before_.valid()) ::dup2(before_.get(), STDERR_FILENO);
    before_.reset();
  }
  void CloseReader() { read_.reset(); }
  // All there is until every line has been written.
  std::vector<json> ReadLines() {
    std::thread flusher([this] {
      log::Flush();
      PutBack();  // which closes the pipe
    });
    std::string text;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::read(read_.get(), bytes, sizeof(bytes))) > 0;) {
      text.append(bytes, static_cast<size_t>(got));
    }
    flusher.join();
    std::vector<json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      if (!line.empty()) lines.push_back(json::parse(line));
    }
    return lines;
  }

 private:
  UniqueFd before_;
  UniqueFd read_;
};

TEST(LogTest, NoCallWaitsForWhoDoesNotReadAndTheDroppedLinesAreCounted) {
  constexpr int kLines = 5'000;
  log::Configure("log-test", log::Level::kInfo);
  const uint64_t dropped_before = log::LinesDropped();
  StderrPipe pipe;
  pipe.Fill();
  const TimePoint begin = Clock::now();
  for (int i = 0; i < kLines; ++i) log::Info("a line", {{"number", i}});
  EXPECT_LT(Clock::now() - begin, milliseconds(2'000));
  const uint64_t dropped = log::LinesDropped() - dropped_before;
  EXPECT_GT(dropped, kLines / 2);
  EXPECT_LT(dropped, kLines);

  uint64_t said = 0;
  int next = 0;
  int lines = 0;
  for (const json& line : pipe.ReadLines()) {
    if (line["message"] != "a line") {
      EXPECT_EQ(line["level"], "warning") << line;
      said += line["lines"].get<uint64_t>();
      next += line["lines"].get<int>();  // it stands where they are missing
      continue;
    }
    ++lines;
    EXPECT_EQ(line["number"], next++);
  }
  EXPECT_EQ(said, dropped);
  EXPECT_EQ(lines + dropped, uint64_t{kLines});
  EXPECT_EQ(log::LinesDropped() - dropped_before, dropped) << "none once somebody reads";
}

TEST(LogTest, EveryLineIsWrittenInOrderWhileSomebodyReads) {
  log::Configure("log-test", log::Level::kInfo);
  StderrPipe pipe;
  for (int i = 0; i < 500; ++i) log::Info("a line", {{"number", i}});
  const std::vector<json> lines = pipe.ReadLines();
  ASSERT_EQ(lines.size(), 500);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(lines[static_cast<size_t>(i)]["number"], i);
}

TEST(LogTest, AReaderThatIsGoneCostsLinesAndNotTheProcess) {
  log::Configure("log-test", log::Level::kInfo);
  const uint64_t dropped_before = log::LinesDropped();
  const auto before = ::signal(SIGPIPE, SIG_DFL);
  {
    StderrPipe pipe;
    pipe.CloseReader();
    log::Info("nobody reads this");
    log::Flush();
  }
  ::signal(SIGPIPE, before);
  EXPECT_EQ(log::LinesDropped() - dropped_before, 1);
  StderrPipe pipe;
  log::Info("a line");
  const std::vector<json> lines = pipe.ReadLines();
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0]["lines"], 1);
  EXPECT_EQ(lines[1]["message"], "a line");
}

TEST(LogTest, WhoExitsLosesNoLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child has a thread that writes
  EXPECT_EXIT(
      {
        log::Configure("log-test", log::Level::kInfo);
        for (int i = 0; i < 500; ++i) log::Info("a line");
        log::Info("the last line");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "the last line");
}

TEST(LogTest, LevelsByName) {
  EXPECT_EQ(*log::ParseLevel("debug"), log::Level::kDebug);
  EXPECT_EQ(*log::ParseLevel("warning"), log::Level::kWarning);
  EXPECT_EQ(log::ParseLevel("loud").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace gantry
