#include "lib/http/reply_problem.h"

#include <gtest/gtest.h>

#include "lib/http/error_response.h"

namespace gantry::http {
namespace {

TEST(ReplyProblem, ProblemsBecomeErrors) {
  const auto problem = BodyOrProblem(
      HttpReply{422, R"({"code":"fd_not_sealed","detail":"d","hint":"h","field":"/f"})"});
  ASSERT_FALSE(problem);
  EXPECT_EQ(problem.error().code, ErrorCode::kFdNotSealed);
  EXPECT_EQ(problem.error().message, "d");
  EXPECT_EQ(problem.error().hint, "h");
  EXPECT_EQ(problem.error().field, "/f");
}

TEST(ReplyProblem, AProblemOfANewerSidecarKeepsItsName) {
  const auto problem = BodyOrProblem(HttpReply{400, R"({"code":"from_the_future","title":"T"})"});
  EXPECT_EQ(problem.error().code, ErrorCode::kInternal);
  EXPECT_NE(problem.error().message.find("from_the_future"), std::string::npos);
}

TEST(ReplyProblem, IsTheErrorThatTheServerWrote) {
  const Error error(ErrorCode::kOutOfRange, "too \"far\"", "come back", "/ranges/0");
  const Response response = ErrorResponse(error);
  const auto problem = BodyOrProblem(HttpReply{response.status, response.body});
  ASSERT_FALSE(problem);
  EXPECT_EQ(problem.error().code, error.code);
  EXPECT_EQ(problem.error().message, error.message);
  EXPECT_EQ(problem.error().hint, error.hint);
  EXPECT_EQ(problem.error().field, error.field);
}

TEST(ReplyProblem, OthersNameTheStatus) {
  for (const char* body : {"", "[]", "{}", "\xff", "null", R"({"code":7})"}) {
    const auto problem = BodyOrProblem(HttpReply{500, body});
    ASSERT_FALSE(problem) << body;
    EXPECT_EQ(problem.error().code, ErrorCode::kInternal);
    EXPECT_NE(problem.error().message.find("500"), std::string::npos);
  }
  EXPECT_EQ(BodyOrProblem(HttpReply{204, ""}), "");
  EXPECT_EQ(BodyOrProblem(Fail(ErrorCode::kPeerLost, "no answer")).error().code,
            ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace gantry::http
