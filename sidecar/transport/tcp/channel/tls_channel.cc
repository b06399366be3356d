#include "sidecar/transport/tcp/channel/tls_channel.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

namespace gantry::transport {
namespace {

int FdOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int Outcome(BIO* bio, ssize_t bytes, int retry_flags) {
  BIO_clear_retry_flags(bio);
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    BIO_set_flags(bio, retry_flags | BIO_FLAGS_SHOULD_RETRY);
  }
  return static_cast<int>(bytes);
}

int WriteSocket(BIO* bio, const char* data, int bytes) {
  const ssize_t sent = ::send(FdOf(bio), data, static_cast<size_t>(bytes), MSG_NOSIGNAL);
  return Outcome(bio, sent, BIO_FLAGS_WRITE);
}

int ReadSocket(BIO* bio, char* data, int bytes) {
  const ssize_t received = ::recv(FdOf(bio), data, static_cast<size_t>(bytes), 0);
  return Outcome(bio, received, BIO_FLAGS_READ);
}

long ControlSocket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// OpenSSL's own socket BIO writes without MSG_NOSIGNAL.
const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gantry socket");
    BIO_meth_set_write(made, &WriteSocket);
    BIO_meth_set_read(made, &ReadSocket);
    BIO_meth_set_ctrl(made, &ControlSocket);
    return made;
  }();
  return method;
}

}  // namespace

void FreeSsl::operator()(ssl_st* ssl) const { SSL_free(ssl); }

std::string TakeTlsError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  std::array<char, 256> text = {};
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

std::string Sha256Of(const x509_st* certificate) {
  std::string digest(kSha256Bytes, '\0');
  auto* bytes = reinterpret_cast<unsigned char*>(digest.data());
  unsigned int length = 0;
  if (certificate == nullptr || X509_digest(certificate, EVP_sha256(), bytes, &length) != 1 ||
      length != kSha256Bytes) {
    return {};
  }
  return digest;
}

Result<std::unique_ptr<TlsChannel>> TlsChannel::Create(UniqueFd socket, SslPointer ssl,
                                                       std::string certificate_sha256) {
  BIO* bio = BIO_new(SocketMethod());
  if (bio == nullptr) return Fail(ErrorCode::kInternal, "BIO_new: " + TakeTlsError());
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket.get())));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl.get(), bio, bio);
  return std::unique_ptr<TlsChannel>(
      new TlsChannel(std::move(socket), std::move(ssl), std::move(certificate_sha256)));
}

TlsChannel::TlsChannel(UniqueFd socket, SslPointer ssl, std::string certificate_sha256)
    : socket_(std::move(socket)), ssl_(std::move(ssl)), expected_(std::move(certificate_sha256)) {}

IoResult TlsChannel::Stopped(int outcome) {
  const int error = SSL_get_error(ssl_.get(), outcome);
  receive_wants_send_ = error == SSL_ERROR_WANT_WRITE;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    return {IoState::kBlocked, 0};
  }
  if (!why_.empty()) return {IoState::kEnded, 0};
  if (error == SSL_ERROR_ZERO_RETURN || (error == SSL_ERROR_SYSCALL && ERR_peek_error() == 0)) {
    why_ = "the other side closed the connection";
  } else if (const long verified = SSL_get_verify_result(ssl_.get()); verified != X509_V_OK) {
    why_ = std::string("the other side's certificate is not taken: ") +
           X509_verify_cert_error_string(verified);
    ERR_clear_error();
  } else {
    why_ = "TLS: " + TakeTlsError();
  }
  return {IoState::kEnded, 0};
}

IoResult TlsChannel::Handshake() {
  ERR_clear_error();
  const int outcome = SSL_do_handshake(ssl_.get());
  if (outcome != 1) return Stopped(outcome);
  receive_wants_send_ = false;
  if (!expected_.empty() && Sha256Of(SSL_get0_peer_certificate(ssl_.get())) != expected_) {
    why_ = "the other side's certificate is not the one that the peer API named";
    return {IoState::kEnded, 0};
  }
  return {IoState::kMoved, 0};
}

// One record; what OpenSSL decrypted it keeps until it is read.
IoState TlsChannel::Fetch() {
  if (HasReceived()) return IoState::kMoved;
  ERR_clear_error();
  char first = 0;
  const int outcome = SSL_peek(ssl_.get(), &first, 1);
  if (outcome <= 0) return Stopped(outcome).state;
  receive_wants_send_ = false;
  return IoState::kMoved;
}

IoResult TlsChannel::Receive(const iovec* parts, int count) {
  ERR_clear_error();
  size_t moved = 0;
  for (int i = 0; i < count; ++i) {
    auto* at = static_cast<char*>(parts[i].iov_base);
    for (size_t left = parts[i].iov_len; left > 0;) {
      // Not more than is there, or OpenSSL would fetch the next record itself.
      const int ready = SSL_pending(ssl_.get());
      if (ready == 0) return {moved > 0 ? IoState::kMoved : IoState::kBlocked, moved};
      const int outcome =
          SSL_read(ssl_.get(), at, static_cast<int>(std::min(left, static_cast<size_t>(ready))));
      if (outcome <= 0) {
        const IoResult stopped = Stopped(outcome);
        // What has come is used first; the end is met again.
        return moved > 0 ? IoResult{IoState::kMoved, moved} : stopped;
      }
      at += outcome;
      left -= static_cast<size_t>(outcome);
      moved += static_cast<size_t>(outcome);
    }
  }
  return {IoState::kMoved, moved};
}

IoResult TlsChannel::Send(const iovec* parts, int count) {
  ERR_clear_error();
  size_t moved = 0;
  for (int i = 0; i < count; ++i) {
    const auto* at = static_cast<const char*>(parts[i].iov_base);
    for (size_t left = parts[i].iov_len; left > 0;) {
      const int outcome =
          SSL_write(ssl_.get(), at, static_cast<int>(std::min<size_t>(left, INT_MAX)));
      if (outcome <= 0) {
        const bool receive_wanted_send = receive_wants_send_;
        const IoResult stopped = Stopped(outcome);
        receive_wants_send_ = receive_wanted_send;
        return moved > 0 ? IoResult{IoState::kMoved, moved} : stopped;
      }
      at += outcome;
      left -= static_cast<size_t>(outcome);
      moved += static_cast<size_t>(outcome);
    }
  }
  return {IoState::kMoved, moved};
}

// Of a record that is not complete poll sees the rest.
bool TlsChannel::HasReceived() const { return SSL_pending(ssl_.get()) > 0; }

}  // namespace gantry::transport
