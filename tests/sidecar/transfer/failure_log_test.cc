// Each code is told of at once, and then with a count and not more often than the interval allows.
#include "sidecar/transfer/failure_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace gantry::engine {
namespace {

const Error kGone{ErrorCode::kUnregistered, "b/owner/kv: buffer 'kv' is not there"};
const Error kFar{ErrorCode::kOutOfRange, "b/owner/kv: 9 of 8 bytes"};

std::vector<nlohmann::json> Written(const auto& what) {
  ::testing::internal::CaptureStderr();
  what();
  std::istringstream text(::testing::internal::GetCapturedStderr());
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(FailureLogTest, SaysWhoseTransferAndWhy) {
  FailureLog log("a transfer was refused");
  const auto lines = Written([&] { log.Log("reader", "read", "", kGone); });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["level"], "warning");
  EXPECT_EQ(lines[0]["message"], "a transfer was refused");
  EXPECT_EQ(lines[0]["workload"], "reader");
  EXPECT_EQ(lines[0]["op"], "read");
  EXPECT_EQ(lines[0]["error"]["code"], "unregistered");
  EXPECT_EQ(lines[0]["error"]["message"], kGone.message);
  EXPECT_EQ(lines[0]["more_since_the_last_line"], 0);
}

TEST(FailureLogTest, OneLineOfACodeInAnInterval) {
  FailureLog log("a transfer was refused", milliseconds(60'000));
  const auto lines = Written([&] {
    for (int i = 0; i < 100; ++i) log.Log("reader", "read", "", kGone);
    for (int i = 0; i < 100; ++i) log.Log("reader", "read", "", kFar);
  });
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["error"]["code"], "unregistered");
  EXPECT_EQ(lines[1]["error"]["code"], "out_of_range");
}

TEST(FailureLogTest, TheNextLineCountsWhatWasLeftOut) {
  FailureLog log("a transfer failed", milliseconds(200));
  const auto lines = Written([&] {
    const TimePoint begun = Clock::now();
    for (int i = 0; i < 8; ++i) log.Log("reader", "read", "t-1", kGone);
    std::this_thread::sleep_until(begun + milliseconds(1'000));
    log.Log("reader", "read", "t-2", kGone);
  });
  ASSERT_GE(lines.size(), 2u);  // the eight may take longer than the interval
  uint64_t told = lines.size();
  for (const auto& line : lines) told += line["more_since_the_last_line"].get<uint64_t>();
  EXPECT_EQ(told, 9u);
  EXPECT_EQ(lines.back()["id"], "t-2");
}

}  // namespace
}  // namespace gantry::engine
