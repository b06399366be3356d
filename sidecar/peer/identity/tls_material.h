// A certificate, its key and the trusted authorities, read from files and checked to match.
// Immutable once read; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

struct x509_store_st;

namespace gantry::peer {

struct TlsFiles {
  std::string certificate;  // PEM: the certificate, then its intermediates
  std::string key;          // PEM, not encrypted
  std::string authorities;  // PEM bundle

  bool any() const { return !certificate.empty() || !key.empty() || !authorities.empty(); }
  bool all() const { return !certificate.empty() && !key.empty() && !authorities.empty(); }
};

// Why the other side's certificate is refused.
enum class CertificateFault { kMissing, kExpired, kUntrusted };

struct TlsMaterial {
  std::string certificate;
  std::string key;
  std::string authorities;
  int64_t not_after_unix_s = 0;  // the certificate's

  bool operator==(const TlsMaterial& other) const {
    return certificate == other.certificate && key == other.key && authorities == other.authorities;
  }
};

// Fails when a file cannot be read, the key does not match the certificate, or a file has other
// content. An expired certificate is accepted: its user can report that better.
Result<TlsMaterial> ReadTlsMaterial(const TlsFiles& files);

// Reads a whole file of at most `bytes_max`.
Result<std::string> ReadSmallFile(const std::string& path, size_t bytes_max);

// Verifies certificates against one bundle of authorities.
class TrustStore {
 public:
  static Result<std::shared_ptr<const TrustStore>> Make(std::string_view authorities);

  // `leaf` and `chain` are as received, in PEM; `chain` may repeat the leaf. Fails with
  // kUnauthenticated and sets *fault.
  Status CheckClient(std::string_view leaf, std::string_view chain, CertificateFault* fault) const;

 private:
  explicit TrustStore(std::shared_ptr<x509_store_st> store) : store_(std::move(store)) {}

  const std::shared_ptr<x509_store_st> store_;
};

}  // namespace gantry::peer
