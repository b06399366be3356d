#include "sidecar/peer/identity/peer_security.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <sstream>
#include <utility>

#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/random_id.h"

namespace gantry::peer {
namespace {

constexpr size_t kRulesBytesMax = 1 << 20;
constexpr size_t kTokensBytesMax = 64 << 10;
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 1024;
constexpr std::string_view kScheme = "Bearer ";

Result<std::vector<std::string>> TokensOf(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kTokensBytesMax));
  std::vector<std::string> tokens;
  std::istringstream words(text);
  for (std::string token; words >> token;) {
    const bool printable =
        std::all_of(token.begin(), token.end(), [](unsigned char c) { return std::isgraph(c); });
    if (token.size() < kTokenBytesMin || token.size() > kTokenBytesMax || !printable) {
      return Fail(ErrorCode::kInvalidArgument, path + " holds something that is no token",
                  "one token a line, of 16 to 1024 visible ASCII characters");
    }
    tokens.push_back(std::move(token));
  }
  if (!tokens.empty()) return tokens;
  return Fail(ErrorCode::kInvalidArgument, path + " holds no token",
              "write a random one, for example with: openssl rand -hex 32");
}

Status CheckTogether(const PeerSecurityOptions& options) {
  if (options.tls.any() && !options.tls.all()) {
    return Fail(ErrorCode::kInvalidArgument, "mutual TLS needs all of its three files",
                "give --peer-tls-cert, --peer-tls-key and --peer-tls-ca");
  }
  if (!options.tls.any() && (!options.rules_file.empty() || !options.names.empty())) {
    return Fail(ErrorCode::kInvalidArgument,
                "--peer-rules and --peer-tls-names are about certificates, and there are none",
                "give --peer-tls-cert, --peer-tls-key and --peer-tls-ca");
  }
  if (options.plaintext && (options.tls.any() || options.token_file.empty())) {
    return Fail(ErrorCode::kInvalidArgument,
                "--peer-plaintext is for a shared token without TLS alone",
                "give --peer-token-file and no --peer-tls-*, or leave it out");
  }
  return {};
}

constexpr char kWhatToDo[] =
    "give --peer-tls-cert, --peer-tls-key and --peer-tls-ca; or, where every peer is one trust "
    "domain on a network that nobody else reads, --peer-token-file with --peer-plaintext; or use "
    "a loopback address";

}  // namespace

Result<std::shared_ptr<PeerSecurity>> PeerSecurity::Load(PeerSecurityOptions options) {
  RETURN_IF_ERROR(CheckTogether(options));
  std::shared_ptr<PeerSecurity> security(new PeerSecurity(std::move(options)));
  RETURN_IF_ERROR(security->ReadTls());
  RETURN_IF_ERROR(security->ReadRules());
  RETURN_IF_ERROR(security->ReadTokens());
  const auto tls = security->tls();
  if (tls != nullptr && tls->not_after_unix_s <= static_cast<int64_t>(std::time(nullptr))) {
    log::Warning("this sidecar's own certificate is expired: peers will refuse it",
                 {{"file", security->options_.tls.certificate}});
  }
  return security;
}

Status PeerSecurity::CheckListen(std::string_view host) const {
  if (has_tls() || IsLoopback(host) || (has_token() && options_.plaintext)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "the peer API does not listen at " + std::string(host) +
                  (has_token() ? " with a token that would travel unencrypted"
                               : " with nothing that tells who connects"),
              kWhatToDo);
}

Status PeerSecurity::CheckConnect(std::string_view host) const {
  if (has_tls() || IsLoopback(host) || (has_token() && options_.plaintext)) return {};
  return Fail(ErrorCode::kPermissionDenied,
              "this sidecar has nothing that it could safely show a peer at " + std::string(host),
              kWhatToDo, "/address");
}

void PeerSecurity::Refresh() {
  const MutexLock one_at_a_time(refresh_mutex_);
  Status read = ReadTls();
  if (read) read = ReadRules();
  if (read) read = ReadTokens();
  const std::string problem = read ? "" : read.error().message;
  {
    const MutexLock lock(mutex_);
    if (problem == last_problem_) return;
    last_problem_ = problem;
  }
  if (!read) {
    log::Error(
        "a file of the peer API's security changed and cannot be used; what was read before "
        "stays in force",
        {{"error", read.error()}});
  }
}

Status PeerSecurity::ReadTls() {
  if (!has_tls()) return {};
  ASSIGN_OR_RETURN(TlsMaterial read, ReadTlsMaterial(options_.tls));
  {
    const MutexLock lock(mutex_);
    if (tls_ != nullptr && *tls_ == read) return {};
  }
  ASSIGN_OR_RETURN(auto trust, TrustStore::Make(read.authorities));
  const MutexLock lock(mutex_);
  if (tls_ != nullptr) {
    log::Info("the peer API's certificates were replaced",
              {{"file", options_.tls.certificate}, {"not_after_unix_s", read.not_after_unix_s}});
  }
  tls_ = std::make_shared<const TlsMaterial>(std::move(read));
  trust_ = std::move(trust);
  return {};
}

Status PeerSecurity::ReadRules() {
  if (options_.rules_file.empty()) return {};
  ASSIGN_OR_RETURN(std::string text, ReadSmallFile(options_.rules_file, kRulesBytesMax));
  {
    const MutexLock lock(mutex_);
    if (rules_ != nullptr && rules_text_ == text) return {};
  }
  auto rules = PeerRules::Parse(text);
  if (!rules) return Fail(std::move(rules).error().WithContext(options_.rules_file));
  const MutexLock lock(mutex_);
  rules_ = std::make_shared<const PeerRules>(*std::move(rules));
  rules_text_ = std::move(text);
  return {};
}

Status PeerSecurity::ReadTokens() {
  if (!has_token()) return {};
  ASSIGN_OR_RETURN(std::vector<std::string> tokens, TokensOf(options_.token_file));
  const MutexLock lock(mutex_);
  tokens_ = std::move(tokens);
  return {};
}

std::shared_ptr<const TlsMaterial> PeerSecurity::tls() const {
  const MutexLock lock(mutex_);
  return tls_;
}

std::shared_ptr<const TrustStore> PeerSecurity::trust() const {
  const MutexLock lock(mutex_);
  return trust_;
}

std::shared_ptr<const PeerRules> PeerSecurity::rules() const {
  const MutexLock lock(mutex_);
  return rules_;
}

std::string PeerSecurity::Authorization() const {
  const MutexLock lock(mutex_);
  return tokens_.empty() ? std::string() : std::string(kScheme) + tokens_.front();
}

bool PeerSecurity::IsAuthorized(std::string_view authorization) const {
  if (!authorization.starts_with(kScheme)) return false;
  const std::string_view shown = authorization.substr(kScheme.size());
  bool known = false;
  const MutexLock lock(mutex_);
  for (const std::string& token : tokens_) known = EqualSecrets(token, shown) || known;
  return known;
}

}  // namespace gantry::peer
