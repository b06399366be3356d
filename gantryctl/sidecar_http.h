// Calls the REST interface of a sidecar over its Unix socket. Used by one thread at a time.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace gantry::gantryctl {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

class SidecarHttp {
 public:
  explicit SidecarHttp(std::string socket_path, milliseconds timeout = milliseconds(10'000));
  ~SidecarHttp();

  const std::string& socket_path() const { return socket_path_; }

  // Fails with kPeerUnavailable when nobody answers; any HTTP status is an answer.
  Result<HttpAnswer> Get(const std::string& target);
  // The body of a 2xx answer as JSON. A problem document becomes the error that it describes.
  Result<nlohmann::json> GetJson(const std::string& target);

 private:
  struct Connection;
  // Why a request had no answer.
  Error Explain(const std::string& what_happened, milliseconds waited) const;

  const std::string socket_path_;
  const milliseconds timeout_;
  const std::unique_ptr<Connection> connection_;
};

}  // namespace gantry::gantryctl
