#include "sidecar/transport/tcp/tls_security.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>
#include <utility>

#include "sidecar/transport/tcp/tls_channel.h"

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
  return count == 0 ? Status(Unusable("the authorities")) : Status();
}

bool IsAddress(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

Status ExpectHost(SSL* ssl, const std::string& host) {
  X509_VERIFY_PARAM* wanted = SSL_get0_param(ssl);
  if (IsAddress(host)) {
    if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) != 1) return Unusable("the address");
    return {};
  }
  if (SSL_set1_host(ssl, host.c_str()) != 1 || SSL_set_tlsext_host_name(ssl, host.c_str()) != 1) {
    return Unusable("the name '" + host + "'");
  }
  return {};
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

Result<std::unique_ptr<SocketChannel>> TlsSecurity::Secure(UniqueFd socket,
                                                           const std::string& host) {
  Context context;
  {
    const MutexLock lock(mutex_);
    context = context_;
  }
  SslPointer ssl(SSL_new(context.get()));  // keeps the context
  if (ssl == nullptr) return Unusable("OpenSSL");
  if (host.empty()) {
    SSL_set_accept_state(ssl.get());
  } else {
    SSL_set_connect_state(ssl.get());
    RETURN_IF_ERROR(ExpectHost(ssl.get(), host));
  }
  return TlsChannel::Create(std::move(socket), std::move(ssl));
}

}  // namespace gantry::transport
