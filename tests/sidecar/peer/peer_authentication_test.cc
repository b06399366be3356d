// Who gets in over TCP, and how far: certificates, names, rules and tokens, each wrong in each way.
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "sidecar/peer/client/peer_channel.h"
#include "tests/sidecar/peer/raw_initiator.h"
#include "tests/sidecar/peer/test_certificates.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {
namespace {

using engine::PeerState;
using metrics::PeerRefusal;
using Until = TestSidecar::Until;

class PeerAuthenticationTest : public ::testing::Test {
 protected:
  PeerAuthenticationTest() {
    owner_.server_options().count_refusal = [this](PeerRefusal why) {
      ++refusals_.at(static_cast<size_t>(why));
    };
    owner_files_.Write(authority_.Issue({"IP:127.0.0.1,URI:spiffe://x/owner"}),
                       authority_.certificate());
  }
  ~PeerAuthenticationTest() override { owner_.StopServer(); }

  void StartOwner(peer::PeerSecurityOptions security) {
    owner_.UseTcp(std::move(security));
    owner_.StartServer();
    owner_.Register(arena_, "k");
  }
  peer::PeerSecurityOptions OwnerTls() const { return {owner_files_.paths(), {}, "", "", false}; }

  // What becomes of a peer whose initiator uses this.
  engine::PeerInfo Connect(peer::PeerSecurityOptions security, Until until = Until::kRefused) {
    initiator_.UseTcp(std::move(security));
    return initiator_.Try(owner_.server().tcp_address(), "prefill", until);
  }
  engine::PeerInfo ConnectWith(const IssuedCertificate& own, const std::string& authorities,
                               Until until = Until::kRefused) {
    initiator_files_.Write(own, authorities);
    return Connect({initiator_files_.paths(), {}, "", "", false}, until);
  }
  int Refused(PeerRefusal why) const { return refusals_.at(static_cast<size_t>(why)); }
  bool IsRefused(PeerRefusal why) const {
    return Eventually(2'000, [&] { return Refused(why) > 0; });
  }
  int AllRefused() const {
    int all = 0;
    for (const auto& count : refusals_) all += count;
    return all;
  }

  TestAuthority authority_{"authority"}, stranger_{"stranger"};
  CertificateFiles owner_files_, initiator_files_;
  CountingMapper owner_mapper_, initiator_mapper_;
  TestArena arena_{1 << 20};
  std::array<std::atomic<int>, metrics::kPeerRefusalNames.size()> refusals_{};
  TestSidecar owner_{"", "prefill", owner_mapper_};
  TestSidecar initiator_{"", "decode", initiator_mapper_};
};

TEST_F(PeerAuthenticationTest, BothCertificatesLetIn) {
  StartOwner(OwnerTls());
  const auto info =
      ConnectWith(authority_.Issue({"URI:spiffe://x/me"}), authority_.certificate(), Until::kUp);
  ASSERT_EQ(info.state, PeerState::kUp) << info.error.value_or(Error()).message;
  EXPECT_TRUE(initiator_.Acquire("prefill", {"k"}));
  EXPECT_EQ(AllRefused(), 0);
}

TEST_F(PeerAuthenticationTest, NoCertificateGetsNothing) {
  StartOwner(OwnerTls());
  grpc::SslCredentialsOptions only_roots;
  only_roots.pem_root_certs = authority_.certificate();
  RawInitiator raw(owner_.server().tcp_address(), "decode", grpc::SslCredentials(only_roots));
  EXPECT_EQ(raw.Hello().error().code, ErrorCode::kPeerUnavailable);
  EXPECT_FALSE(raw.Watch(owner_.generation()));
  EXPECT_TRUE(IsRefused(PeerRefusal::kCertificateMissing));
}

TEST_F(PeerAuthenticationTest, PlaintextGetsNothing) {
  StartOwner(OwnerTls());
  RawInitiator raw(owner_.server().tcp_address(), "decode");
  EXPECT_EQ(raw.Hello().error().code, ErrorCode::kPeerUnavailable);
}

TEST_F(PeerAuthenticationTest, AnotherAuthorityGetsNothing) {
  StartOwner(OwnerTls());
  const auto info = ConnectWith(stranger_.Issue({"URI:spiffe://x/me"}), authority_.certificate());
  EXPECT_NE(info.state, PeerState::kUp);
  ASSERT_TRUE(info.error);
  EXPECT_EQ(info.error->code, ErrorCode::kPeerUnavailable);
  EXPECT_TRUE(IsRefused(PeerRefusal::kCertificateUntrusted));
  EXPECT_EQ(owner_.server().Totals().sessions, 0U);
}

TEST_F(PeerAuthenticationTest, AnExpiredCertificateGetsNothing) {
  StartOwner(OwnerTls());
  const auto info =
      ConnectWith(authority_.Issue({"URI:spiffe://x/me", -120, -60}), authority_.certificate());
  EXPECT_NE(info.state, PeerState::kUp);
  EXPECT_TRUE(IsRefused(PeerRefusal::kCertificateExpired));
  EXPECT_EQ(owner_.server().Totals().sessions, 0U);
}

TEST_F(PeerAuthenticationTest, AnOwnerOfAnotherAuthorityIsNotTalkedTo) {
  StartOwner(OwnerTls());
  const auto info = ConnectWith(authority_.Issue({"URI:spiffe://x/me"}), stranger_.certificate());
  EXPECT_NE(info.state, PeerState::kUp);
  ASSERT_TRUE(info.error);
  EXPECT_EQ(info.error->code, ErrorCode::kPeerUnavailable);
}

TEST_F(PeerAuthenticationTest, AnOwnerOfAnotherNameIsNotTalkedTo) {
  owner_files_.Write(authority_.Issue({"IP:127.0.0.2,DNS:other.svc"}), authority_.certificate());
  StartOwner(OwnerTls());
  const auto info = ConnectWith(authority_.Issue({"URI:spiffe://x/me"}), authority_.certificate());
  EXPECT_NE(info.state, PeerState::kUp);
  ASSERT_TRUE(info.error);
  EXPECT_NE(info.error->message.find("not for 127.0.0.1"), std::string::npos)
      << info.error->message;
}

TEST_F(PeerAuthenticationTest, PatternsDecideWhichOwnersAreTalkedTo) {
  StartOwner(OwnerTls());
  initiator_files_.Write(authority_.Issue({"URI:spiffe://x/me"}), authority_.certificate());
  EXPECT_EQ(Connect({initiator_files_.paths(), {"spiffe://x/*"}, "", "", false}, Until::kUp).state,
            PeerState::kUp);
  const auto refused = Connect({initiator_files_.paths(), {"spiffe://y/*"}, "", "", false});
  EXPECT_NE(refused.state, PeerState::kUp);
}

TEST_F(PeerAuthenticationTest, ANameWithoutARuleGetsNothing) {
  auto security = OwnerTls();
  security.rules_file = owner_files_.WriteOther("rules", "spiffe://x/known engine read\n");
  StartOwner(security);
  const auto info = ConnectWith(authority_.Issue({"URI:spiffe://x/me"}), authority_.certificate());
  EXPECT_NE(info.state, PeerState::kUp);
  ASSERT_TRUE(info.error);
  EXPECT_EQ(info.error->code, ErrorCode::kPermissionDenied);
  EXPECT_TRUE(IsRefused(PeerRefusal::kNameNotAllowed));
}

TEST_F(PeerAuthenticationTest, ARuleGivesNoMoreThanItSays) {
  auto security = OwnerTls();
  security.rules_file = owner_files_.WriteOther("rules", "spiffe://x/* eng* read # no more\n");
  StartOwner(security);
  const auto info =
      ConnectWith(authority_.Issue({"URI:spiffe://x/me"}), authority_.certificate(), Until::kUp);
  ASSERT_EQ(info.state, PeerState::kUp) << info.error.value_or(Error()).message;
  const auto handles = initiator_.Acquire("prefill", {"k"});
  ASSERT_TRUE(handles) << handles.error().message;
  EXPECT_TRUE(handles->front()->access.remote_read);
  EXPECT_FALSE(handles->front()->access.remote_write);

  owner_.Register(arena_, "only_writable", {false, true});
  EXPECT_EQ(initiator_.Acquire("prefill", {"only_writable"}).error().code,
            ErrorCode::kPermissionDenied);
  const auto other = initiator_.directory().Acquire(
      "prefill", {{"prefill", "another-workload", "k", 0}}, engine::RemoteUse::kMove, In(2'000));
  EXPECT_EQ(other.error().code, ErrorCode::kPermissionDenied);
}

TEST_F(PeerAuthenticationTest, RulesAreReadAgain) {
  auto security = OwnerTls();
  security.rules_file = owner_files_.WriteOther("rules", "spiffe://x/known engine read\n");
  StartOwner(security);
  EXPECT_NE(ConnectWith(authority_.Issue({"URI:spiffe://x/me"}), authority_.certificate()).state,
            PeerState::kUp);
  owner_files_.WriteOther("rules", "spiffe://x/me engine read,write\n");
  EXPECT_TRUE(Eventually(8'000, [&] { return initiator_.StateOf("prefill") == PeerState::kUp; }));
}

class PeerTokensTest : public PeerAuthenticationTest {
 protected:
  peer::PeerSecurityOptions Token(const CertificateFiles& files, const std::string& text) const {
    return {{}, {}, "", files.WriteOther("token", text), false};
  }
  const std::string right_ = "0123456789abcdef", wrong_ = "0123456789abcdeX";
};

TEST_F(PeerTokensTest, TheSameTokenLetsIn) {
  StartOwner(Token(owner_files_, right_ + "\n"));
  EXPECT_EQ(Connect(Token(initiator_files_, right_), Until::kUp).state, PeerState::kUp);
  EXPECT_TRUE(initiator_.Acquire("prefill", {"k"}));
  EXPECT_EQ(AllRefused(), 0);
}

TEST_F(PeerTokensTest, ASecondTokenLetsInToo) {
  StartOwner(Token(owner_files_, wrong_ + "\n" + right_ + "\n"));
  EXPECT_EQ(Connect(Token(initiator_files_, right_), Until::kUp).state, PeerState::kUp);
}

TEST_F(PeerTokensTest, AWrongTokenGetsNothing) {
  StartOwner(Token(owner_files_, right_));
  const auto info = Connect(Token(initiator_files_, wrong_));
  EXPECT_NE(info.state, PeerState::kUp);
  ASSERT_TRUE(info.error);
  EXPECT_EQ(info.error->code, ErrorCode::kUnauthenticated);
  EXPECT_TRUE(IsRefused(PeerRefusal::kTokenWrong));
}

TEST_F(PeerTokensTest, NoTokenGetsNothingFromAnyCall) {
  StartOwner(Token(owner_files_, right_));
  RawInitiator raw(owner_.server().tcp_address(), "decode");
  EXPECT_EQ(raw.Hello().error().code, ErrorCode::kUnauthenticated);
  EXPECT_FALSE(raw.Watch(owner_.generation()));
  EXPECT_EQ(raw.Describe("k").error().code, ErrorCode::kUnauthenticated);
  EXPECT_EQ(raw.Connect({}, false, 1).error().code, ErrorCode::kUnauthenticated);
  EXPECT_EQ(raw.Acknowledge(1).error().code, ErrorCode::kUnauthenticated);
  EXPECT_EQ(Refused(PeerRefusal::kTokenMissing), 5);
}

TEST_F(PeerTokensTest, ATokenIsNeededBesideACertificate) {
  auto security = OwnerTls();
  security.token_file = owner_files_.WriteOther("token", right_);
  StartOwner(security);
  const auto info = ConnectWith(authority_.Issue({"URI:spiffe://x/me"}), authority_.certificate());
  ASSERT_TRUE(info.error);
  EXPECT_EQ(info.error->code, ErrorCode::kUnauthenticated);
}

}  // namespace
}  // namespace gantry::testing
