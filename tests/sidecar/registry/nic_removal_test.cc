// Buffers whose RDMA devices do not let go of their memory: they go all the same, with all else
// that can go, and who took them back is told of the first failure.
#include <gmock/gmock.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "sidecar/transport/rdma/verbs/rdma_devices.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

using gantry::testing::FakeCall;
using ::testing::HasSubstr;

class NicRemovalTest : public RegistryFixture {
 protected:
  NicRemovalTest() {
    transport::RdmaOptions options;
    options.chunk_bytes = kMiB / 4;
    devices_ = *transport::RdmaDevices::Open(options, host_);
    registrar_.emplace(*devices_);
    registry_.SetNicRegistrar(&*registrar_);
  }
  // The devices go before the registry.
  void TearDown() override { EXPECT_TRUE(registry_.RemoveAll(owner_.name, 0, Later())); }
  void ExpectNothingIsLeft(const Buffer& buffer) {
    EXPECT_EQ(buffer.state(), BufferState::kGone);
    EXPECT_TRUE(FailsWith(registry_.ById(buffer.description().id), ErrorCode::kNotFound));
    EXPECT_EQ(mapper_.live(), 0u);
    const RegistryTotals totals = registry_.Totals();
    EXPECT_EQ(totals.buffers + totals.allocations, 0u);
    EXPECT_EQ(totals.registered_bytes + totals.mapped_bytes, 0u);
    for (size_t i = 0; i < devices_->size(); ++i) EXPECT_EQ(registrar_->chunks(i), 0u);
  }
  int Tries(const std::string& device) const { return host_.calls(device, FakeCall::kDeregister); }

  gantry::testing::FakeFabric fabric_;
  gantry::testing::FakeVerbs host_{fabric_, {{.name = "first"}, {.name = "second"}}};
  std::unique_ptr<transport::RdmaDevices> devices_;
  std::optional<transport::RdmaRegistrar> registrar_;
};

TEST_F(NicRemovalTest, ARemovalGoesOnPastFailuresAndTellsTheFirst) {
  const auto buffer = RegisterWhole("k");
  ASSERT_EQ(host_.live().regions, 8);
  // Taken back from the last to the first: of the four on each device the second and the third.
  host_.FailCall("second", FakeCall::kDeregister, 2, EBUSY);
  host_.FailCall("first", FakeCall::kDeregister, 3, EIO);
  const Status removed = registry_.Remove(buffer->description().id, Later());
  ASSERT_TRUE(FailsWith(removed, ErrorCode::kDeviceError));
  EXPECT_THAT(removed.error().message, HasSubstr("buffer 'k' (" + buffer->description().id + ")"));
  EXPECT_THAT(removed.error().message, HasSubstr("is deleted"));
  EXPECT_THAT(removed.error().message, HasSubstr("second: deregistering: Device or resource busy"));
  EXPECT_THAT(removed.error().hint, HasSubstr("locked until this sidecar ends"));
  EXPECT_EQ(Tries("first"), 4);
  EXPECT_EQ(Tries("second"), 4);
  EXPECT_EQ(host_.live().regions, 2) << "those two alone";
  ExpectNothingIsLeft(*buffer);
  EXPECT_TRUE(FailsWith(registry_.Remove(buffer->description().id, Later()), ErrorCode::kNotFound));
  EXPECT_TRUE(RegisterWhole("k")) << "its name is free";
}

TEST_F(NicRemovalTest, OfManyAllGoAndTheFirstFailureIsTold) {
  const auto one = RegisterWhole("one");
  const auto two = RegisterWhole("two");
  host_.FailCalls("first", FakeCall::kDeregister, EBUSY);
  const Status removed = registry_.RemoveAll(owner_.name, 0, Later());
  ASSERT_TRUE(FailsWith(removed, ErrorCode::kDeviceError));
  EXPECT_THAT(removed.error().message, HasSubstr("buffer 'one'"));
  EXPECT_EQ(Tries("first"), 8);
  EXPECT_EQ(Tries("second"), 8);
  ExpectNothingIsLeft(*one);
  ExpectNothingIsLeft(*two);
}

TEST_F(NicRemovalTest, OneThatIsSuspendedIsAndComesBack) {
  const auto buffer = RegisterWhole("k");
  const std::string id = buffer->description().id;
  host_.FailCall("first", FakeCall::kDeregister, 1, EBUSY);
  const Status suspended = registry_.Suspend(id, Later());
  ASSERT_TRUE(FailsWith(suspended, ErrorCode::kDeviceError));
  EXPECT_THAT(suspended.error().message, HasSubstr("is suspended"));
  EXPECT_EQ(buffer->state(), BufferState::kSuspended);
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_TRUE(registry_.Suspend(id, Later())) << "it is said once";
  EXPECT_TRUE(registry_.Resume(id));
  EXPECT_TRUE(registry_.Remove(id, Later()));
  ExpectNothingIsLeft(*buffer);
}

// Whoever still has what was registered does not take it back once more, and nobody has to.
TEST_F(NicRemovalTest, WithoutAFailureNothingIsSaid) {
  const auto buffer = RegisterWhole("k");
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(registry_.Remove(buffer->description().id, Later()));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_EQ(Tries("first"), 4);
}

}  // namespace
}  // namespace gantry::registry
