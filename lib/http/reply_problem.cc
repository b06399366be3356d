#include "lib/http/reply_problem.h"

#include <array>
#include <utility>

namespace gantry::http {
namespace {

constexpr std::array<std::string_view, 5> kProblemKeys = {"code", "detail", "title", "hint",
                                                          "field"};

}  // namespace

std::optional<Error> ProblemIn(const wire::BodyFields& fields, const std::string& prefix) {
  const std::string name = fields.Text(prefix + "code");
  if (name.empty()) return std::nullopt;
  Error error(ErrorCodeByName(name), fields.Text(prefix + "detail"), fields.Text(prefix + "hint"),
              fields.Text(prefix + "field"));
  if (error.message.empty()) error.message = fields.Text(prefix + "title");
  const bool unknown = InfoOf(error.code).name != name;
  return unknown ? std::move(error).WithContext("code '" + name + "'") : error;
}

Result<std::string> BodyOrProblem(Result<HttpReply> reply) {
  if (!reply) return Fail(std::move(reply).error());
  if (reply->status >= 200 && reply->status < 300) return std::move(reply->body);
  const auto fields = wire::BodyFields::Read(reply->body, kProblemKeys);
  auto problem = fields ? ProblemIn(*fields, "") : std::nullopt;
  if (problem) return Fail(*std::move(problem));
  return Fail(ErrorCode::kInternal,
              "the sidecar answered with status " + std::to_string(reply->status));
}

}  // namespace gantry::http
