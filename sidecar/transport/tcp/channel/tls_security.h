// TLS for data connections: 1.3 only, and both sides show a certificate of an authority that the
// other one trusts. Whom a client reached is told by the very certificate, which the peer API
// named: pods have addresses that no certificate is for. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/base/mutex.h"
#include "sidecar/transport/tcp/channel/socket_channel.h"

struct ssl_ctx_st;

namespace gantry::transport {

// PEM texts.
struct TlsIdentity {
  std::string certificate;  // and its intermediates
  std::string key;
  std::string authorities;
};

class TlsSecurity final : public ChannelSecurity {
 public:
  static Result<std::unique_ptr<TlsSecurity>> Create(const TlsIdentity& identity);

  // For connections from now on; those that are open live on.
  Status Update(const TlsIdentity& identity) EXCLUDES(mutex_);

  Result<std::unique_ptr<SocketChannel>> Accept(UniqueFd socket) override EXCLUDES(mutex_);
  Result<std::unique_ptr<SocketChannel>> Connect(UniqueFd socket,
                                                 std::string certificate_sha256) override
      EXCLUDES(mutex_);
  Result<std::string> CertificateSha256() override EXCLUDES(mutex_);

 private:
  using Context = std::shared_ptr<ssl_ctx_st>;
  TlsSecurity() = default;
  Context context() EXCLUDES(mutex_);
  static Result<Context> ContextOf(const TlsIdentity& identity);

  Mutex mutex_;
  Context context_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
