// Certificates and tokens that are replaced while peers are at work: old connections live on, new
// ones use what is new, no call fails.
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/sidecar/peer/raw_initiator.h"
#include "tests/sidecar/peer/test_certificates.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {
namespace {

using engine::PeerState;

class PeerRotationTest : public ::testing::Test {
 protected:
  PeerRotationTest() {
    owner_files_.Write(NewOwner(), authority_.certificate());
    initiator_files_.Write(NewInitiator(), authority_.certificate());
    owner_.UseTcp({owner_files_.paths(), {}, "", "", false});
    initiator_.UseTcp({initiator_files_.paths(), {}, "", "", false});
    owner_.StartServer();
    owner_.Register(arena_, "k");
  }
  ~PeerRotationTest() override { owner_.StopServer(); }

  IssuedCertificate NewOwner() const { return authority_.Issue({"IP:127.0.0.1"}); }
  IssuedCertificate NewInitiator() const { return authority_.Issue({"URI:spiffe://x/me"}); }
  std::string address() { return owner_.server().tcp_address(); }

  // The certificate that a new connection to the owner is shown; empty: there is none.
  std::string Shown() {
    const IssuedCertificate own = NewInitiator();
    RawInitiator raw(address(), "looker",
                     grpc::SslCredentials({authority_.certificate() + next_authority_.certificate(),
                                           own.key, own.certificate}));
    return raw.CertificateOfOwner();
  }

  TestAuthority authority_{"authority"}, next_authority_{"next authority"};
  CertificateFiles owner_files_, initiator_files_;
  CountingMapper owner_mapper_, initiator_mapper_;
  TestArena arena_{1 << 20};
  TestSidecar owner_{"", "prefill", owner_mapper_};
  TestSidecar initiator_{"", "decode", initiator_mapper_};
};

TEST_F(PeerRotationTest, NoCallFailsAndNewConnectionsUseTheNewCertificate) {
  initiator_.ConnectToAddress(address(), "prefill");
  std::atomic<int> calls{0}, failures{0}, meetings{0};
  std::atomic<bool> done{false};
  // Old connection: each generation of the buffer is asked for anew.
  std::thread old_connection([&] {
    while (!done) {
      const auto missing = initiator_.Acquire("prefill", {"absent"});
      if (missing || missing.error().code != ErrorCode::kUnregistered) {
        ADD_FAILURE() << (missing ? "?" : missing.error().message);
        ++failures;
      }
      ++calls;
    }
  });
  // New connections all the time.
  std::thread new_connections([&] {
    while (!done) {
      const std::string name = "again" + std::to_string(meetings++);
      const auto info = initiator_.directory().Put(name, address(), In(5'000));
      if (!info || info->state != PeerState::kUp || info->error) {
        ADD_FAILURE() << (info ? info->error.value_or(Error()).message : info.error().message);
        ++failures;
      }
      if (!initiator_.directory().Remove(name, In(5'000))) ++failures;
    }
  });
  std::set<std::string> shown;
  for (int round = 0; round < 4; ++round) {
    const int before = meetings;
    const IssuedCertificate next = NewOwner();
    owner_files_.Write(next, authority_.certificate());
    initiator_files_.Write(NewInitiator(), authority_.certificate());
    EXPECT_TRUE(Eventually(6'000, [&] { return Shown() == next.certificate; })) << round;
    shown.insert(next.certificate);
    EXPECT_TRUE(Eventually(20'000, [&] { return meetings > before + 1; })) << round;
  }
  done = true;
  old_connection.join();
  new_connections.join();
  EXPECT_EQ(failures, 0);
  EXPECT_GT(calls, 100);
  EXPECT_EQ(initiator_.StateOf("prefill"), PeerState::kUp);
  EXPECT_EQ(shown.size(), 4U);
  RecordProperty("calls", calls);
  RecordProperty("meetings", meetings);
}

TEST_F(PeerRotationTest, AnAuthorityIsReplacedInThreeSteps) {
  const std::string both = authority_.certificate() + next_authority_.certificate();
  owner_files_.WriteOther("ca.pem", both);
  initiator_files_.WriteOther("ca.pem", both);
  initiator_files_.Write(next_authority_.Issue({"URI:spiffe://x/me"}), both);
  EXPECT_TRUE(Eventually(6'000, [&] {
    const auto info = initiator_.directory().Put("prefill", address(), In(500));
    return info && info->state == PeerState::kUp;
  }));
  owner_files_.Write(next_authority_.Issue({"IP:127.0.0.1"}), next_authority_.certificate());
  initiator_files_.WriteOther("ca.pem", next_authority_.certificate());
  EXPECT_EQ(initiator_.StateOf("prefill"), PeerState::kUp);
  // Who still shows what the old one signed is a stranger now.
  EXPECT_TRUE(Eventually(6'000, [&] { return Shown().empty(); }));
  ASSERT_TRUE(initiator_.directory().Remove("prefill", In(5'000)));
  initiator_.ConnectToAddress(address(), "prefill");
}

TEST_F(PeerRotationTest, FilesThatDoNotFitChangeNothing) {
  const std::string before = Shown();
  ASSERT_FALSE(before.empty());
  const IssuedCertificate next = NewOwner();
  owner_files_.WriteOther("cert.pem", next.certificate);  // the key is still the old one
  std::this_thread::sleep_for(milliseconds(1'500));
  EXPECT_EQ(Shown(), before);
  owner_files_.WriteOther("key.pem", "no key at all");
  std::this_thread::sleep_for(milliseconds(1'500));
  EXPECT_EQ(Shown(), before);
  owner_files_.WriteOther("key.pem", next.key);
  EXPECT_TRUE(Eventually(6'000, [&] { return Shown() == next.certificate; }));
}

}  // namespace
}  // namespace gantry::testing
