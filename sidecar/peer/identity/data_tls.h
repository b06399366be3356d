// TLS for data connections with PeerSecurity's current certificates, also after their replacement.
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/base/mutex.h"
#include "sidecar/peer/identity/peer_security.h"
#include "sidecar/transport/tcp/channel/tls_security.h"

namespace gantry::peer {

class DataTls final : public transport::ChannelSecurity {
 public:
  // REQUIRES security->has_tls().
  static Result<std::unique_ptr<DataTls>> Make(std::shared_ptr<const PeerSecurity> security);

  Result<std::unique_ptr<transport::SocketChannel>> Accept(UniqueFd socket) override;
  Result<std::unique_ptr<transport::SocketChannel>> Connect(
      UniqueFd socket, std::string certificate_sha256) override;
  Result<std::string> CertificateSha256() override;

 private:
  DataTls(std::shared_ptr<const PeerSecurity> security, std::shared_ptr<const TlsMaterial> used,
          std::unique_ptr<transport::TlsSecurity> tls);
  transport::TlsSecurity& Current() EXCLUDES(mutex_);

  const std::shared_ptr<const PeerSecurity> security_;
  const std::unique_ptr<transport::TlsSecurity> tls_;
  Mutex mutex_;
  std::shared_ptr<const TlsMaterial> used_ GUARDED_BY(mutex_);
};

}  // namespace gantry::peer
