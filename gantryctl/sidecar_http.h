// Asks the REST interface of a sidecar over its Unix socket, and explains why there is no answer.
// Thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/http/unix_http.h"

namespace gantry::gantryctl {

class SidecarHttp {
 public:
  explicit SidecarHttp(std::string socket_path, milliseconds timeout = milliseconds(10'000))
      : http_(std::move(socket_path)), timeout_(timeout) {}

  const std::string& socket_path() const { return http_.socket_path(); }

  // Fails with kPeerUnavailable when nobody answers; any HTTP status is an answer.
  Result<http::HttpReply> Get(const std::string& target);
  // The body of a 2xx answer as JSON. A problem document becomes the error that it describes.
  Result<nlohmann::json> GetJson(const std::string& target);

 private:
  // Says to an operator why a request had no answer.
  Error Explain(Error error) const;

  http::UnixHttp http_;
  const milliseconds timeout_;
};

}  // namespace gantry::gantryctl
