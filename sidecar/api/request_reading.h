// What endpoints read from requests and write to responses alike: formats, query parameters,
// waits. Thread-safe.
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

// A wait that is asked for is cut to this; callers ask again.
inline constexpr milliseconds kWaitMax{60'000};

// By Content-Type; anything but JSON and CBOR is kUnsupportedMedia. An empty body needs no type.
Result<wire::BodyFormat> BodyFormatOf(const http::Request& request);
// By Accept: CBOR if it is named, else JSON.
wire::BodyFormat ResponseFormatOf(const http::Request& request);

std::string QueryText(const http::Request& request, std::string_view name);
Result<std::optional<uint64_t>> QueryNumber(const http::Request& request, std::string_view name);
// Entries of a list's answer, where the caller does not say how many and at most.
inline constexpr uint64_t kPageDefault = 100;
inline constexpr uint64_t kPageMax = 1'000;

// The query's `limit`, from 1 to `most`.
Result<size_t> QueryLimit(const http::Request& request, size_t otherwise, size_t most);
Result<bool> QueryBool(const http::Request& request, std::string_view name);

// Until when a handler may wait that was asked to for `wait_ms`; now when that is 0 or absent.
// Fails with kResourceExhausted when this thread must not wait.
Result<TimePoint> WaitUntil(const http::Request& request, std::optional<uint64_t> wait_ms);
// The same for what is begun in any case and ends by itself: now where this thread must not wait.
TimePoint WaitIfItMay(const http::Request& request, std::optional<uint64_t> wait_ms);

wire::BodyWriter WriterFor(const http::Request& request);
http::Response Reply(const http::Request& request, int status, wire::BodyWriter writer);
http::Response NoContent();

}  // namespace gantry::api
