// How sidecars prove over TCP who they are: the settings, and what their files say now. The files
// are read again by Refresh; what is broken then is logged and does not replace what worked.
// Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/peer/identity/peer_rules.h"
#include "sidecar/peer/identity/tls_material.h"

namespace gantry::peer {

struct PeerSecurityOptions {
  TlsFiles tls;  // all three or none
  // Patterns of names, one of which a peer's own certificate must have when it is connected to;
  // empty: the certificate must be for the host in its address.
  std::vector<std::string> names;
  std::string rules_file;  // needs certificates; empty: each may ask for all that buffers grant
  std::string token_file;  // one token a line; the first is shown, each is taken
  bool plaintext = false;  // the token may travel unencrypted beyond loopback
};

class PeerSecurity {
 public:
  // Fails when the settings contradict each other or a file is not as it has to be.
  static Result<std::shared_ptr<PeerSecurity>> Load(PeerSecurityOptions options);

  // Whether the peer API may listen at `host`; the error says what to configure.
  Status CheckListen(std::string_view host) const;
  // Whether a peer at `host` may be connected to.
  Status CheckConnect(std::string_view host) const;

  // Looks at the files again. Cheap when nothing changed.
  void Refresh() EXCLUDES(refresh_mutex_, mutex_);

  bool has_tls() const { return options_.tls.any(); }
  bool has_token() const { return !options_.token_file.empty(); }
  const std::vector<std::string>& names() const { return options_.names; }

  std::shared_ptr<const TlsMaterial> tls() const EXCLUDES(mutex_);  // null: none configured
  std::shared_ptr<const TrustStore> trust() const EXCLUDES(mutex_);
  std::shared_ptr<const PeerRules> rules() const EXCLUDES(mutex_);  // null: none configured
  // "Bearer <token>", for the metadata `authorization`; empty: no token is configured.
  std::string Authorization() const EXCLUDES(mutex_);
  // Compares with every token that is taken, in constant time.
  bool IsAuthorized(std::string_view authorization) const EXCLUDES(mutex_);

 private:
  explicit PeerSecurity(PeerSecurityOptions options) : options_(std::move(options)) {}

  Status ReadTls() EXCLUDES(mutex_);
  Status ReadRules() EXCLUDES(mutex_);
  Status ReadTokens() EXCLUDES(mutex_);

  const PeerSecurityOptions options_;

  Mutex refresh_mutex_;  // what was read first is also put first
  mutable Mutex mutex_;
  std::shared_ptr<const TlsMaterial> tls_ GUARDED_BY(mutex_);
  std::shared_ptr<const TrustStore> trust_ GUARDED_BY(mutex_);
  std::shared_ptr<const PeerRules> rules_ GUARDED_BY(mutex_);
  std::string rules_text_ GUARDED_BY(mutex_);
  std::vector<std::string> tokens_ GUARDED_BY(mutex_);
  std::string last_problem_ GUARDED_BY(mutex_);  // logged once
};

}  // namespace gantry::peer
