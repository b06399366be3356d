// The tcp transport through TLS: the contract, and who is not let in.
#include <gtest/gtest.h>

#include "sidecar/transport/tcp/channel/tls_security.h"
#include "tests/sidecar/peer/test_certificates.h"
#include "tests/sidecar/transport/tcp/tcp_harness.h"
#include "tests/sidecar/transport/tcp/tcp_raw_peer.h"

namespace gantry::transport {
namespace {

using gantry::testing::TestAuthority;

TlsIdentity IdentityOf(const TestAuthority& authority, const std::string& names,
                       int valid_until_s = 3'600) {
  gantry::testing::CertificateWish wish;
  wish.names = names;
  wish.valid_until_s = valid_until_s;
  const auto issued = authority.Issue(wish);
  return {issued.certificate, issued.key, authority.certificate()};
}

class TlsWorld {
 public:
  // `named`: the SHA-256 that the client is told of; empty: the server's.
  TlsWorld(const TlsIdentity& server, const TlsIdentity& client, const std::string& named = "")
      : server_(*TlsSecurity::Create(server)), client_(*TlsSecurity::Create(client)) {
    TcpWorldOptions options;
    options.server_security = server_.get();
    options.client_security = client_.get();
    options.tcp.connect_timeout = milliseconds(2'000);
    world_ = std::make_unique<TcpWorld>(options);
    if (!named.empty()) world_->opener_->set_certificate(named);
  }
  std::unique_ptr<TlsSecurity> server_;
  std::unique_ptr<TlsSecurity> client_;
  std::unique_ptr<TcpWorld> world_;
};

using gantry::testing::TransportContract;
INSTANTIATE_TEST_SUITE_P(TcpThroughTls, TransportContract, ::testing::Values([] {
                           const TestAuthority authority("test");
                           const auto tls = std::make_shared<TlsWorld>(
                               IdentityOf(authority, "DNS:b"), IdentityOf(authority, "DNS:a"));
                           return std::make_unique<TcpHarness>(
                               std::shared_ptr<TcpWorld>(tls, tls->world_.get()));
                         }));

class TcpTlsTest : public ::testing::Test {
 protected:
  static std::optional<Error> ReadBetween(TlsWorld& tls) { return ReadIn(*tls.world_); }
  static std::string WhyNot(TcpWorldOptions options) {
    options.tcp.connect_timeout = milliseconds(2'000);
    TcpWorld world(options);
    const auto error = ReadIn(world);
    return error ? error->message : "";
  }
  // What a read from this server to this client ends with.
  static std::optional<Error> ReadIn(TcpWorld& world) {
    TestArena here(8192, 1);
    TestArena there(8192, 2);
    auto operation = world.transport_->Start(
        PlanOf(wire::Operation::kRead, world.Local(here), world.Remote(there), 0, 0, 8192), 0, 1);
    EXPECT_TRUE(world.Finish(*operation, milliseconds(8'000)));
    const bool moved = std::memcmp(here.data(), there.data(), 8192) == 0;
    EXPECT_EQ(moved, !operation->error().has_value());
    return operation->error();
  }
  const TestAuthority authority_{"test"};
  const TestAuthority other_{"other"};
};

TEST_F(TcpTlsTest, BothSidesMustBeKnownAndTheServerMustBeTheOneThatWasNamed) {
  const TlsIdentity server = IdentityOf(authority_, "DNS:b");
  const TlsIdentity client = IdentityOf(authority_, "DNS:a");
  TlsIdentity stranger = IdentityOf(other_, "DNS:b");
  stranger.authorities += authority_.certificate();  // it trusts both, and is trusted by itself
  TlsWorld good(server, client);
  EXPECT_FALSE(ReadBetween(good));
  TlsWorld strange_client(server, stranger);
  EXPECT_TRUE(ReadBetween(strange_client));
  TlsWorld strange_server(stranger, client);
  EXPECT_TRUE(ReadBetween(strange_server));
  // Trusted, and with the same names, and yet another one.
  const auto another = TlsSecurity::Create(IdentityOf(authority_, "DNS:b"));
  TlsWorld not_named(server, client, *(*another)->CertificateSha256());
  auto error = ReadBetween(not_named);
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("not the one"), std::string::npos) << error->message;
  TlsWorld unnamed(server, client, "short");
  EXPECT_TRUE(ReadBetween(unnamed));
  TlsWorld expired(IdentityOf(authority_, "DNS:b", -10), client);
  error = ReadBetween(expired);
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("expired"), std::string::npos) << error->message;
}

TEST_F(TcpTlsTest, ACertificateThatWasReplacedSinceTheOfferIsAskedForAgain) {
  const TlsIdentity server = IdentityOf(authority_, "DNS:b");
  TlsWorld tls(server, IdentityOf(authority_, "DNS:a"));
  const auto before = TlsSecurity::Create(IdentityOf(authority_, "DNS:b"));
  tls.world_->opener_->set_certificate(*(*before)->CertificateSha256(), 1);
  const auto error = ReadBetween(tls);
  EXPECT_FALSE(error) << error->message;
  EXPECT_EQ(tls.world_->opener_->calls(), 2);
  EXPECT_EQ(tls.world_->peer_->counts().failed, 0u);
}

// As the peer API takes them: an intermediate, or the very certificate of the other side.
TEST_F(TcpTlsTest, AnAuthorityNeedsNotBeARoot) {
  TlsIdentity server = IdentityOf(authority_, "DNS:b");
  TlsIdentity client = IdentityOf(authority_, "DNS:a");
  server.authorities = client.certificate;
  client.authorities = server.certificate;
  TlsWorld pinned(server, client);
  const auto error = ReadBetween(pinned);
  EXPECT_FALSE(error) << error->message;
  TlsWorld another(server, IdentityOf(authority_, "DNS:a"));
  EXPECT_TRUE(ReadBetween(another));
}

TEST_F(TcpTlsTest, WhoHasNoCertificateOrWantsNothingElseSaysSo) {
  const auto security = TlsSecurity::Create(IdentityOf(authority_, "DNS:b"));
  TcpWorldOptions options;
  options.server_security = security->get();
  EXPECT_NE(WhyNot(options).find("TLS alone"), std::string::npos);
  options.server_security = nullptr;
  options.client_security = security->get();
  options.tcp.tls_required = true;
  EXPECT_NE(WhyNot(options).find("without TLS alone"), std::string::npos);
}

TEST_F(TcpTlsTest, PlainTextIsNotServed) {
  const TlsIdentity identity = IdentityOf(authority_, "DNS:b");
  TlsWorld tls(identity, identity);
  RawConnection plain = RawConnection::To(tls.world_->server_->port());
  plain.Send(RawConnection::HelloOf(
      tls.world_->server_->tickets().Issue("s", 1, milliseconds(5000))->front()));
  EXPECT_TRUE(plain.IsEnded());
}

TEST_F(TcpTlsTest, ANewCertificateIsUsedFromThenOn) {
  const TlsIdentity client = IdentityOf(authority_, "DNS:a");
  TlsWorld tls(IdentityOf(authority_, "DNS:b", -10), client);
  EXPECT_TRUE(ReadBetween(tls));
  ASSERT_TRUE(tls.server_->Update(IdentityOf(authority_, "DNS:b")));
  EXPECT_FALSE(ReadBetween(tls));
  EXPECT_FALSE(tls.server_->Update({"no certificate", "no key", ""}));
  EXPECT_FALSE(ReadBetween(tls));
}

}  // namespace
}  // namespace gantry::transport
