#include "lib/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <string_view>

#include "lib/base/log.h"

namespace gantry::rpc {
namespace {

// These call an error what is none, a peer's certificate without the name of a host, and what the
// process itself tells of better: who was turned away.
constexpr std::string_view kHandshakes[] = {"ssl_transport_security.cc", "security_handshaker.cc"};

bool IsAboutHandshakes(std::string_view file) {
  for (const std::string_view each : kHandshakes) {
    if (file.ends_with(each)) return true;
  }
  return false;
}

void Write(gpr_log_func_args* said) {
  const log::Fields fields = {{"said", said->message}, {"file", said->file}, {"line", said->line}};
  if (said->severity == GPR_LOG_SEVERITY_ERROR && !IsAboutHandshakes(said->file)) {
    log::Error("gRPC reports an error", fields);
  } else {
    log::Debug("gRPC says something", fields);
  }
}

}  // namespace

void TakeGrpcLog() { gpr_set_log_function(&Write); }

}  // namespace gantry::rpc
