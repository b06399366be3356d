#include "tests/sidecar/peer/test_certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace gantry::testing {
namespace {

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string PemOf(X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  return TextOf(bio);
}

std::string PemOf(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  return TextOf(bio);
}

std::shared_ptr<EVP_PKEY> NewKey() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

void Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (extension == nullptr) std::abort();
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

std::shared_ptr<X509> NewCertificate(const std::string& name, EVP_PKEY* key, int from_s,
                                     int until_s) {
  static std::atomic<long> serial{1};
  std::shared_ptr<X509> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), from_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), until_s);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

TestAuthority::TestAuthority(const std::string& name)
    : key_(NewKey()), self_(NewCertificate(name, key_.get(), -3'600, 36'000)) {
  X509_set_issuer_name(self_.get(), X509_get_subject_name(self_.get()));
  Extend(self_.get(), self_.get(), NID_basic_constraints, "critical,CA:TRUE");
  Extend(self_.get(), self_.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  X509_sign(self_.get(), key_.get(), EVP_sha256());
  pem_ = PemOf(self_.get());
}

IssuedCertificate TestAuthority::Issue(const CertificateWish& wish) const {
  const std::shared_ptr<EVP_PKEY> key = NewKey();
  const auto certificate = NewCertificate("leaf", key.get(), wish.valid_from_s, wish.valid_until_s);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(self_.get()));
  Extend(certificate.get(), self_.get(), NID_ext_key_usage, "serverAuth,clientAuth");
  if (!wish.names.empty()) {
    Extend(certificate.get(), self_.get(), NID_subject_alt_name, wish.names);
  }
  X509_sign(certificate.get(), key_.get(), EVP_sha256());
  return {PemOf(certificate.get()), PemOf(key.get())};
}

std::string CertificateFiles::WriteOther(const std::string& name, const std::string& text) const {
  const std::string path = folder_.File(name);
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
  return path;
}

void CertificateFiles::Write(const IssuedCertificate& own, const std::string& authorities) const {
  WriteOther("ca.pem", authorities);
  WriteOther("cert.pem", own.certificate);
  WriteOther("key.pem", own.key);
}

peer::TlsFiles CertificateFiles::paths() const {
  return {folder_.File("cert.pem"), folder_.File("key.pem"), folder_.File("ca.pem")};
}

}  // namespace gantry::testing
