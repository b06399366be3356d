// A certificate, its key and the authorities that are trusted, read from files and checked to
// belong together before anything uses them. Immutable once read; thread-safe.
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

// Why the other side's certificate is not taken.
enum class CertificateFault { kMissing, kExpired, kUntrusted };

struct TlsMaterial {
  std::string certificate;
  std::string key;
  std::string authorities;
  int64_t not_after_unix_s = 0;  // of the certificate

  bool operator==(const TlsMaterial& other) const {
    return certificate == other.certificate && key == other.key && authorities == other.authorities;
  }
};

// Fails when a file cannot be read, when the key is not the certificate's, or when a file holds
// something else; never because a certificate is expired, which its user may say better.
Result<TlsMaterial> ReadTlsMaterial(const TlsFiles& files);

// A whole file of at most `bytes_max`.
Result<std::string> ReadSmallFile(const std::string& path, size_t bytes_max);

// Who signed what, against one bundle of authorities.
class TrustStore {
 public:
  static Result<std::shared_ptr<const TrustStore>> Make(std::string_view authorities);

  // `leaf` and `chain` as the other side sent them, in PEM; `chain` may repeat the leaf. Fails with
  // kUnauthenticated and says in *fault which kind of failure it is.
  Status CheckClient(std::string_view leaf, std::string_view chain, CertificateFault* fault) const;

 private:
  explicit TrustStore(std::shared_ptr<x509_store_st> store) : store_(std::move(store)) {}

  const std::shared_ptr<x509_store_st> store_;
};

}  // namespace gantry::peer
