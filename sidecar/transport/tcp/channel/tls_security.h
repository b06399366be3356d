// TLS 1.3 for data connections. Both sides present a certificate from an authority that the other
// trusts. A client accepts only the certificate that the peer API announced, since no certificate
// is for a pod's address. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/base/mutex.h"
#include "sidecar/transport/tcp/channel/socket_channel.h"

struct ssl_ctx_st;

namespace gantry::transport {

// PEM texts.
struct TlsIdentity {
  std::string certificate;  // and intermediates
  std::string key;
  std::string authorities;
};

class TlsSecurity final : public ChannelSecurity {
 public:
  static Result<std::unique_ptr<TlsSecurity>> Create(const TlsIdentity& identity);

  // Applies to new connections; existing ones continue.
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
