#include "lib/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "lib/base/result.h"

namespace gantry {
namespace {

TEST(ErrorTest, EveryCodeHasItsRowAndAnOwnStableName) {
  std::set<std::string_view> names;
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const ErrorCodeInfo& info = InfoOf(static_cast<ErrorCode>(i));
    EXPECT_EQ(static_cast<int>(info.code), i);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(ErrorCodeByName(info.name), info.code);
    EXPECT_TRUE(info.http_status >= 400 && info.http_status < 600) << info.name;
    EXPECT_TRUE(info.grpc_status >= 1 && info.grpc_status <= 16) << info.name;
    EXPECT_FALSE(info.metric_reason.empty() || info.title.empty()) << info.name;
  }
  EXPECT_EQ(ErrorCodeByName("of a later version"), ErrorCode::kInternal);
}

TEST(ErrorTest, ContextGoesInFrontAndKeepsTheRest) {
  const Error error = Error(ErrorCode::kConflict, "message", "hint", "/field")
                          .WithContext("inner")
                          .WithContext("outer");
  EXPECT_EQ(error.message, "outer: inner: message");
  EXPECT_EQ(error.code, ErrorCode::kConflict);
  EXPECT_EQ(error.hint, "hint");
  EXPECT_EQ(error.field, "/field");
  EXPECT_EQ(Error(error).WithField("/other").field, "/other");
}

TEST(ErrorTest, LackOfDescriptorsIsSaidWhateverItWasThatFailed) {
  const Error error = SystemError(ErrorCode::kPeerUnavailable, "connecting", EMFILE);
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_NE(error.message.find("this process may have "), std::string::npos) << error.message;
  EXPECT_NE(error.hint.find("RLIMIT_NOFILE"), std::string::npos) << error.hint;
  EXPECT_EQ(SystemError(ErrorCode::kInternal, "open", ENFILE).code, ErrorCode::kResourceExhausted);
}

TEST(ErrorTest, SystemErrorSaysWhatFailedAndWhy) {
  const Error error = SystemError(ErrorCode::kNotFound, "open /x", ENOENT);
  EXPECT_EQ(error.message, "open /x: No such file or directory");
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Fail(ErrorCode::kInvalidArgument, "odd", "take an even one");
  return value / 2;
}
Status Check(int value) {
  RETURN_IF_ERROR(Half(value));
  return {};
}
Result<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

TEST(ResultTest, TheMacrosHandErrorsUpWhole) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).error().hint, "take an even one");
  EXPECT_EQ(Quarter(1).error().message, "odd");
  EXPECT_TRUE(Check(2));
  EXPECT_EQ(Check(3).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace gantry
