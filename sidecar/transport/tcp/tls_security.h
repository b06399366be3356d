// TLS for data connections: 1.3 only, and both sides show a certificate of an authority that the
// other one trusts. The same certificate as the peer API's. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/base/mutex.h"
#include "sidecar/transport/tcp/socket_channel.h"

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

  // A client checks that the other side's certificate is for `host`: a DNS name or an address.
  Result<std::unique_ptr<SocketChannel>> Secure(UniqueFd socket, const std::string& host) override
      EXCLUDES(mutex_);

 private:
  using Context = std::shared_ptr<ssl_ctx_st>;
  TlsSecurity() = default;
  static Result<Context> ContextOf(const TlsIdentity& identity);

  Mutex mutex_;
  Context context_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
