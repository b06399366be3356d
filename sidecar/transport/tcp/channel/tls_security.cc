#include "sidecar/transport/tcp/channel/tls_security.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <climits>
#include <string_view>
#include <utility>

#include "sidecar/transport/tcp/channel/tls_channel.h"

namespace gantry::transport {
namespace {

struct FreeOpenSsl {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename Object>
using Owned = std::unique_ptr<Object, FreeOpenSsl>;

tl::unexpected<Error> Unusable(std::string_view what) {
  return Fail(ErrorCode::kInvalidArgument,
              "TLS for data connections: " + std::string(what) + ": " + TakeTlsError(),
              "give the PEM files that the peer API uses");
}

Owned<BIO> Open(const std::string& text) {
  return Owned<BIO>(
      BIO_new_mem_buf(text.data(), static_cast<int>(std::min<size_t>(text.size(), INT_MAX))));
}

Owned<X509> NextCertificate(BIO* bio) {
  return Owned<X509>(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr));
}

Status UseCertificate(SSL_CTX* context, const std::string& text) {
  const Owned<BIO> bio = Open(text);
  const Owned<X509> leaf = NextCertificate(bio.get());
  if (leaf == nullptr || SSL_CTX_use_certificate(context, leaf.get()) != 1) {
    return Unusable("the certificate");
  }
  while (const Owned<X509> next = NextCertificate(bio.get())) {
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) return Unusable("an intermediate");
  }
  return {};
}

Status UseKey(SSL_CTX* context, const std::string& text) {
  const Owned<BIO> bio = Open(text);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return Unusable("the key");
  }
  return {};
}

Status TrustAuthorities(SSL_CTX* context, const std::string& text) {
  const Owned<BIO> bio = Open(text);
  int count = 0;
  while (const Owned<X509> authority = NextCertificate(bio.get())) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1) {
      return Unusable("an authority");
    }
    ++count;
  }
  // Each of them is an anchor, also one that is no root: as the peer API takes them.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context),
                       X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  return count == 0 ? Status(Unusable("the authorities")) : Status();
}

}  // namespace

Result<TlsSecurity::Context> TlsSecurity::ContextOf(const TlsIdentity& identity) {
  Context context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
  if (context == nullptr) return Unusable("OpenSSL");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // A payload is sent from where it lies; what a blocked call took may come from another address
  // of the same bytes.
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A connection is opened for a ticket and lives long: nothing is resumed.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  RETURN_IF_ERROR(UseCertificate(context.get(), identity.certificate));
  RETURN_IF_ERROR(UseKey(context.get(), identity.key));
  RETURN_IF_ERROR(TrustAuthorities(context.get(), identity.authorities));
  TakeTlsError();  // the end of a PEM text is one
  return context;
}

Result<std::unique_ptr<TlsSecurity>> TlsSecurity::Create(const TlsIdentity& identity) {
  auto security = std::unique_ptr<TlsSecurity>(new TlsSecurity());
  RETURN_IF_ERROR(security->Update(identity));
  return security;
}

Status TlsSecurity::Update(const TlsIdentity& identity) {
  ASSIGN_OR_RETURN(Context context, ContextOf(identity));
  const MutexLock lock(mutex_);
  context_ = std::move(context);
  return {};
}

TlsSecurity::Context TlsSecurity::context() {
  const MutexLock lock(mutex_);
  return context_;
}

Result<std::unique_ptr<SocketChannel>> TlsSecurity::Accept(UniqueFd socket) {
  SslPointer ssl(SSL_new(context().get()));  // keeps the context
  if (ssl == nullptr) return Unusable("OpenSSL");
  SSL_set_accept_state(ssl.get());
  return TlsChannel::Create(std::move(socket), std::move(ssl), "");
}

Result<std::unique_ptr<SocketChannel>> TlsSecurity::Connect(UniqueFd socket,
                                                            std::string certificate_sha256) {
  if (certificate_sha256.size() != kSha256Bytes) {
    return Fail(ErrorCode::kMalformedBody, "the peer does not say which certificate it shows");
  }
  SslPointer ssl(SSL_new(context().get()));
  if (ssl == nullptr) return Unusable("OpenSSL");
  SSL_set_connect_state(ssl.get());
  return TlsChannel::Create(std::move(socket), std::move(ssl), std::move(certificate_sha256));
}

Result<std::string> TlsSecurity::CertificateSha256() {
  const Context held = context();
  std::string digest = Sha256Of(SSL_CTX_get0_certificate(held.get()));
  if (digest.empty()) return Unusable("the certificate's digest");
  return digest;
}

}  // namespace gantry::transport
