// One HTTP connection that stays open, with as little as possible between the caller and the
// socket: for measuring the sidecar and not an HTTP library. Used by one thread at a time.
#pragma once

#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::bench {

class KeepAliveSocket {
 public:
  static Result<KeepAliveSocket> Connect(const std::string& socket_path);

  // `request` is everything, headers and body. Returns the body of an answer with status 2xx; any
  // other answer is an error.
  Result<std::string> Call(const std::string& request);

  // A request that asks to keep the connection; without `body` it has no type. The answer is to
  // have the same one.
  static std::string MakeRequest(const std::string& method, const std::string& target,
                                 const std::string& body,
                                 const std::string& type = "application/json");

 private:
  explicit KeepAliveSocket(UniqueFd socket) : socket_(std::move(socket)) {}
  Status Send(const std::string& request);
  Status ReceiveMore();

  UniqueFd socket_;
  std::string received_;
};

}  // namespace gantry::bench
