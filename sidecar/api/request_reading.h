// Shared request parsing and response writing of the endpoints: formats, query parameters, waits.
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/codec/body_writer.h"
#include "lib/http/http_exchange.h"

namespace gantry::api {

// Longer requested waits are cut to this; clients ask again.
inline constexpr milliseconds kWaitMax{60'000};

// Chosen by Content-Type; anything but JSON and CBOR is kUnsupportedMedia. An empty body needs no
// type.
Result<wire::BodyFormat> BodyFormatOf(const http::Request& request);
// Chosen by Accept: CBOR if it is named, else JSON.
wire::BodyFormat ResponseFormatOf(const http::Request& request);

// Returns an empty string when the parameter is absent.
std::string QueryText(const http::Request& request, std::string_view name);
// kInvalidArgument unless the parameter is absent or an integer from 0 to 2^63 - 1.
Result<std::optional<uint64_t>> QueryNumber(const http::Request& request, std::string_view name);
// Entries per page of a list: the default and the maximum.
inline constexpr uint64_t kPageDefault = 100;
inline constexpr uint64_t kPageMax = 1'000;

// Returns the query's `limit`, from 1 to `most`, or `otherwise` when absent.
Result<size_t> QueryLimit(const http::Request& request, size_t otherwise, size_t most);
// "true" or "false"; false when absent.
Result<bool> QueryBool(const http::Request& request, std::string_view name);

// Returns the end of a wait of `wait_ms`; now if that is 0 or absent. Fails with kResourceExhausted
// when this thread must not wait.
Result<TimePoint> WaitUntil(const http::Request& request, std::optional<uint64_t> wait_ms);
// Like WaitUntil, but returns now where this thread must not wait. For operations that start in any
// case and end by themselves.
TimePoint WaitIfItMay(const http::Request& request, std::optional<uint64_t> wait_ms);

// The writer's format is ResponseFormatOf(request).
wire::BodyWriter WriterFor(const http::Request& request);
http::Response Reply(const http::Request& request, int status, wire::BodyWriter writer);
http::Response NoContent();

}  // namespace gantry::api
