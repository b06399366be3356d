// TLS credentials for both ends of a connection between sidecars, from PeerSecurity's contents. No
// other code uses gRPC's TLS options.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "sidecar/peer/identity/peer_admission.h"
#include "sidecar/peer/identity/peer_security.h"

namespace gantry::peer {

// The owner's end. New connections get the newest certificate that Update has read; existing ones
// continue. One thread at a time calls Update.
class ServerTls {
 public:
  // REQUIRES security->has_tls().
  static Result<std::unique_ptr<ServerTls>> Make(std::shared_ptr<const PeerSecurity> security,
                                                 CountRefusal count);

  std::shared_ptr<grpc::ServerCredentials> credentials() const { return credentials_; }
  // Adopts the current contents of `security`.
  Status Update();

 private:
  explicit ServerTls(std::shared_ptr<const PeerSecurity> security)
      : security_(std::move(security)) {}

  const std::shared_ptr<const PeerSecurity> security_;
  std::shared_ptr<const TlsMaterial> given_;
  UniqueFd file_;  // certificate and key in memory; gRPC reads it through /proc/self/fd
  std::shared_ptr<grpc::ServerCredentials> credentials_;
};

// The initiator's end of one connection to `host`. REQUIRES security.has_tls().
std::shared_ptr<grpc::ChannelCredentials> ChannelTls(const PeerSecurity& security,
                                                     const std::string& host);

}  // namespace gantry::peer
