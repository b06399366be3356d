// How sidecars authenticate each other over TCP: the settings and the current contents of their
// files. Refresh rereads the files; a broken file is logged and does not replace working contents.
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
  // Patterns for names. A peer's certificate must have a name that matches when this side connects.
  // Empty: the certificate must be for the host in the peer's address.
  std::vector<std::string> names;
  std::string rules_file;  // needs certificates; empty: each peer has all access that buffers grant
  std::string token_file;  // one token a line; the first is sent, all are accepted
  bool plaintext = false;  // allows the token unencrypted beyond loopback
};

class PeerSecurity {
 public:
  // Fails when settings contradict each other or a file is invalid.
  static Result<std::shared_ptr<PeerSecurity>> Load(PeerSecurityOptions options);

  // Checks that the peer API may listen at `host`; the error says what to configure.
  Status CheckListen(std::string_view host) const;
  // Checks that connecting to a peer at `host` is safe.
  Status CheckConnect(std::string_view host) const;

  // Rereads the files. Cheap when nothing has changed.
  void Refresh() EXCLUDES(refresh_mutex_, mutex_);

  bool has_tls() const { return options_.tls.any(); }
  bool has_token() const { return !options_.token_file.empty(); }
  const std::vector<std::string>& names() const { return options_.names; }

  std::shared_ptr<const TlsMaterial> tls() const EXCLUDES(mutex_);  // null: not configured
  std::shared_ptr<const TrustStore> trust() const EXCLUDES(mutex_);
  std::shared_ptr<const PeerRules> rules() const EXCLUDES(mutex_);  // null: not configured
  // "Bearer <token>", for the metadata `authorization`; empty: no token is configured.
  std::string Authorization() const EXCLUDES(mutex_);
  // Compares with every accepted token. The time does not depend on where a token differs.
  bool IsAuthorized(std::string_view authorization) const EXCLUDES(mutex_);

 private:
  explicit PeerSecurity(PeerSecurityOptions options) : options_(std::move(options)) {}

  Status ReadTls() EXCLUDES(mutex_);
  Status ReadRules() EXCLUDES(mutex_);
  Status ReadTokens() EXCLUDES(mutex_);

  const PeerSecurityOptions options_;

  Mutex refresh_mutex_;  // keeps the order of reading also for publishing
  mutable Mutex mutex_;
  std::shared_ptr<const TlsMaterial> tls_ GUARDED_BY(mutex_);
  std::shared_ptr<const TrustStore> trust_ GUARDED_BY(mutex_);
  std::shared_ptr<const PeerRules> rules_ GUARDED_BY(mutex_);
  std::string rules_text_ GUARDED_BY(mutex_);
  std::vector<std::string> tokens_ GUARDED_BY(mutex_);
  std::string last_problem_ GUARDED_BY(mutex_);  // logged once
};

}  // namespace gantry::peer
