// Result<T> is a value or an Error; Status is a Result without a value. The two macros return an
// error to the caller. Add context with Error::WithContext where the caller knows more than the
// callee.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "lib/base/error.h"

namespace gantry {

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// `return Fail(ErrorCode::kNotFound, "no buffer 'k.0'", "GET /v1/buffers lists them");`
// Cold: the compiler moves the code of failures out of the hot path.
[[gnu::cold]] inline tl::unexpected<Error> Fail(ErrorCode code, std::string message,
                                                std::string hint = {}, std::string field = {}) {
  return tl::unexpected<Error>(Error(code, std::move(message), std::move(hint), std::move(field)));
}
[[gnu::cold]] inline tl::unexpected<Error> Fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace gantry

#define GANTRY_JOIN_INNER(a, b) a##b
#define GANTRY_JOIN(a, b) GANTRY_JOIN_INNER(a, b)

// Returns the error of a Status or Result expression, if it has one. Evaluates it once.
#define RETURN_IF_ERROR(expression)                                        \
  do {                                                                     \
    if (auto status_of_expression = (expression); !status_of_expression) { \
      return ::gantry::Fail(std::move(status_of_expression).error());      \
    }                                                                      \
  } while (false)

// `ASSIGN_OR_RETURN(auto fd, Open(path));` Expands to several statements: not for an unbraced `if`.
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(GANTRY_JOIN(result_at_line_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(result, declaration, expression)  \
  auto result = (expression);                                    \
  if (!result) return ::gantry::Fail(std::move(result).error()); \
  declaration = *std::move(result)
