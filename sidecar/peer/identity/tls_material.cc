#include "sidecar/peer/identity/tls_material.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "lib/base/unique_fd.h"

namespace gantry::peer {
namespace {

constexpr size_t kPemBytesMax = 4 << 20;
constexpr size_t kCertificatesMax = 4096;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;

struct FreeStack {
  void operator()(STACK_OF(X509) * stack) const { sk_X509_pop_free(stack, X509_free); }
};
using CertificateStack = std::unique_ptr<STACK_OF(X509), FreeStack>;

Bio BioOf(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A passphrase is never asked for on a terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

std::vector<Certificate> CertificatesOf(std::string_view pem) {
  std::vector<Certificate> certificates;
  const Bio bio = BioOf(pem);
  while (bio != nullptr && certificates.size() < kCertificatesMax) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  ERR_clear_error();
  return certificates;
}

int64_t UnixSecondsOf(const ASN1_TIME* time) {
  std::tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(::timegm(&parts)) : 0;
}

std::string SubjectOf(X509* certificate) {
  char text[256] = {};
  X509_NAME_oneline(X509_get_subject_name(certificate), text, sizeof(text));
  return text;
}

CertificateFault FaultOf(int error) {
  return error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID
             ? CertificateFault::kExpired
             : CertificateFault::kUntrusted;
}

}  // namespace

Result<std::string> ReadSmallFile(const std::string& path, size_t bytes_max) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return Fail(SystemError(ErrorCode::kInvalidArgument, "open " + path, errno));
  std::string text;
  while (text.size() <= bytes_max) {
    char part[16'384];
    const ssize_t count = ::read(fd.get(), part, sizeof(part));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Fail(SystemError(ErrorCode::kInvalidArgument, "read " + path, errno));
    if (count == 0) return text;
    text.append(part, static_cast<size_t>(count));
  }
  return Fail(ErrorCode::kInvalidArgument,
              path + " has more than " + std::to_string(bytes_max) + " bytes");
}

Result<TlsMaterial> ReadTlsMaterial(const TlsFiles& files) {
  TlsMaterial material;
  ASSIGN_OR_RETURN(material.certificate, ReadSmallFile(files.certificate, kPemBytesMax));
  ASSIGN_OR_RETURN(material.key, ReadSmallFile(files.key, kPemBytesMax));
  ASSIGN_OR_RETURN(material.authorities, ReadSmallFile(files.authorities, kPemBytesMax));
  const std::vector<Certificate> chain = CertificatesOf(material.certificate);
  if (chain.empty()) {
    return Fail(ErrorCode::kInvalidArgument, files.certificate + " holds no PEM certificate");
  }
  const Bio bio = BioOf(material.key);
  const PrivateKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, files.key + " holds no PEM private key",
                "a key without a passphrase");
  }
  const bool belongs = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!belongs) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "the key in " + files.key + " is not that of the certificate in " + files.certificate,
        "replace both together: a renamed directory or symbolic link changes them at once");
  }
  if (CertificatesOf(material.authorities).empty()) {
    return Fail(ErrorCode::kInvalidArgument, files.authorities + " holds no PEM certificate");
  }
  material.not_after_unix_s = UnixSecondsOf(X509_get0_notAfter(chain.front().get()));
  return material;
}

Result<std::shared_ptr<const TrustStore>> TrustStore::Make(std::string_view authorities) {
  std::shared_ptr<X509_STORE> store(X509_STORE_new(), X509_STORE_free);
  for (const Certificate& authority : CertificatesOf(authorities)) {
    if (store == nullptr || X509_STORE_add_cert(store.get(), authority.get()) != 1) {
      ERR_clear_error();
      return Fail(ErrorCode::kInternal, "an authority's certificate cannot be used");
    }
  }
  // Each certificate of the bundle is an anchor, as gRPC takes it on the other side.
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  return std::shared_ptr<const TrustStore>(new TrustStore(std::move(store)));
}

Status TrustStore::CheckClient(std::string_view leaf, std::string_view chain,
                               CertificateFault* fault) const {
  *fault = CertificateFault::kMissing;
  const std::vector<Certificate> own = CertificatesOf(leaf);
  if (own.empty()) {
    return Fail(ErrorCode::kUnauthenticated, "the peer showed no certificate",
                "give its sidecar --peer-tls-cert and --peer-tls-key");
  }
  *fault = CertificateFault::kUntrusted;
  const CertificateStack untrusted(sk_X509_new_null());
  for (const Certificate& certificate : CertificatesOf(chain)) {
    if (X509_up_ref(certificate.get()) == 1) sk_X509_push(untrusted.get(), certificate.get());
  }
  const StoreContext context(X509_STORE_CTX_new());
  const bool ready =
      context != nullptr &&
      X509_STORE_CTX_init(context.get(), store_.get(), own.front().get(), untrusted.get()) == 1 &&
      X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_CLIENT) == 1;
  const bool valid = ready && X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (valid) return {};
  const int error = ready ? X509_STORE_CTX_get_error(context.get()) : X509_V_ERR_UNSPECIFIED;
  *fault = FaultOf(error);
  return Fail(ErrorCode::kUnauthenticated,
              "the peer's certificate (" + SubjectOf(own.front().get()) +
                  ") is not taken: " + X509_verify_cert_error_string(error),
              "it has to be valid now, for client authentication, and signed by an authority of "
              "--peer-tls-ca");
}

}  // namespace gantry::peer
