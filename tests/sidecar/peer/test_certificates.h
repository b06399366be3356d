// A certificate authority for one test, and the files that it fills. Used by one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "sidecar/peer/identity/peer_security.h"
#include "tests/fakes/test_folder.h"

struct x509_st;
struct evp_pkey_st;

namespace gantry::testing {

struct CertificateWish {
  std::string names;  // as OpenSSL writes them: "DNS:a.svc,IP:127.0.0.1,URI:spiffe://x/y"
  int valid_from_s = -60;
  int valid_until_s = 3'600;
};

struct IssuedCertificate {
  std::string certificate;  // PEM
  std::string key;
};

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);

  const std::string& certificate() const { return pem_; }
  IssuedCertificate Issue(const CertificateWish& wish) const;

 private:
  std::shared_ptr<evp_pkey_st> key_;
  std::shared_ptr<x509_st> self_;
  std::string pem_;
};

// The three files of one sidecar.
class CertificateFiles {
 public:
  // Each file is replaced at once, one after the other.
  void Write(const IssuedCertificate& own, const std::string& authorities) const;
  // Another file beside them; its path.
  std::string WriteOther(const std::string& name, const std::string& text) const;
  peer::TlsFiles paths() const;

 private:
  const TestFolder folder_;
};

}  // namespace gantry::testing
