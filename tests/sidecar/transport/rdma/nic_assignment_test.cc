// Which devices have a buffer, on machines of all shapes, with ports that come and go, and that
// nothing else is registered anywhere.
#include "sidecar/transport/rdma/verbs/nic_assignment.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "sidecar/transport/rdma/verbs/rdma_registrar.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/fakes/test_arena.h"
#include "tests/lib/topology/fake_sysfs.h"

namespace gantry::transport {
namespace {

using gantry::testing::FakeCall;
using gantry::testing::TestArena;

constexpr uint64_t kArena = 1 << 20;

class NicAssignmentTest : public ::testing::Test {
 protected:
  // All that sysfs lists.
  void Open() {
    std::vector<gantry::testing::FakeDeviceOptions> made;
    for (const auto& nic : topology::ListRdmaDevices(sysfs_.root())) made.push_back({nic.name});
    Open(std::move(made));
  }
  void Open(std::vector<gantry::testing::FakeDeviceOptions> made) {
    host_ = std::make_unique<gantry::testing::FakeVerbs>(fabric_, std::move(made));
    devices_ = *RdmaDevices::Open({}, *host_);
    NicAssignment::Machine machine;
    machine.address_of_gpu = [this](const std::string& uuid) {
      return uuid.empty() ? std::string() : sysfs_.gpus().at(std::stoul(uuid));
    };
    machine.node_of_memory = [this](const auto& memory) {
      asked_ += memory.size();
      return node_;
    };
    machine.root = sysfs_.root();
    nics_.emplace(*devices_, std::move(machine));
    registrar_.emplace(*devices_, [this](const auto& pieces) { return nics_->For(pieces); });
  }
  void TearDown() override {
    kept_.clear();
    registrar_.reset();
    devices_.reset();
  }
  DeviceSet Some(std::initializer_list<const char*> names) const {
    DeviceSet set;
    for (size_t i = 0; i < devices_->size(); ++i) {
      for (const char* const name : names) {
        if (devices_->at(i).device->name() == name) set.Add(i);
      }
    }
    return set;
  }
  DeviceSet All() const { return devices_->Up(); }
  memory::NicPiece Host() {
    return {*memory::MappedAllocation::Create(mapper_, arena_.source()), 0, kArena};
  }
  memory::NicPiece OfGpu(const std::string& uuid) {
    memory::AllocationSource source = arena_.source();
    source.kind = wire::MemoryKind::kGpu;
    source.gpu.form = wire::GpuExport::kPiece;
    source.gpu.device_uuid = uuid;
    return {*memory::MappedAllocation::Create(mapper_, std::move(source)), 0, kArena};
  }
  void SetPort(const std::string& device, bool up) {
    host_->SetPort(device, up);
    for (size_t i = 0; i < devices_->size(); ++i) devices_->TakeEvents(i);
  }

  topology::FakeSysfs sysfs_;
  gantry::testing::FakeFabric fabric_;
  std::unique_ptr<gantry::testing::FakeVerbs> host_;
  std::unique_ptr<RdmaDevices> devices_;
  std::optional<NicAssignment> nics_;
  CountingMapper mapper_;
  const TestArena arena_{kArena};
  std::optional<RdmaRegistrar> registrar_;
  std::vector<std::shared_ptr<const memory::NicMemory>> kept_;
  int node_ = -1;     // that the memory is on
  size_t asked_ = 0;  // about parts of it
};

TEST_F(NicAssignmentTest, AGpusMemoryIsOnTheDeviceBehindItsSwitch) {
  sysfs_.AddEightGpusWithNics();
  Open();
  for (int gpu = 0; gpu < 8; ++gpu) {
    const std::string nic = "mlx5_" + std::to_string(gpu);
    EXPECT_EQ(nics_->For({OfGpu(std::to_string(gpu))}), Some({nic.c_str()}));
  }
  EXPECT_EQ(nics_->For({OfGpu("1"), OfGpu("6"), OfGpu("1")}), Some({"mlx5_1", "mlx5_6"}));
  EXPECT_EQ(asked_, 0u);
}

TEST_F(NicAssignmentTest, HostMemoryIsOnThoseOfItsNode) {
  sysfs_.AddEightGpusWithNics();
  Open();
  node_ = 1;
  EXPECT_EQ(nics_->For({Host()}), Some({"mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_9"}));
  EXPECT_EQ(asked_, 1u);
  node_ = 0;
  EXPECT_EQ(nics_->For({Host(), Host()}), Some({"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_8"}));
  node_ = -1;
  EXPECT_EQ(nics_->For({Host()}), All());
  EXPECT_EQ(nics_->For({Host(), OfGpu("2")}), All());
}

TEST_F(NicAssignmentTest, WhereDistancesAreUnknownOrEqualAllHaveIt) {
  Open({{"rxe0"}, {"rxe1"}, {"rxe2"}});  // sysfs knows none of them
  EXPECT_EQ(nics_->For({Host()}), All());
  EXPECT_EQ(nics_->For({OfGpu("")}), All());
  EXPECT_EQ(asked_, 0u) << "where it lies makes no difference";
}

TEST_F(NicAssignmentTest, AGpuOfAnUnknownPlaceHasAll) {
  sysfs_.AddEightGpusWithNics();
  Open();
  EXPECT_EQ(nics_->For({OfGpu("")}), All());
  EXPECT_EQ(nics_->For({OfGpu("3")}), Some({"mlx5_3"}));
}

// What comes back is used again by what was registered meanwhile.
TEST_F(NicAssignmentTest, WhileItsPortIsDownTheNextNearestHaveItBesides) {
  sysfs_.AddEightGpusWithNics();
  Open();
  EXPECT_EQ(nics_->For({OfGpu("0")}), Some({"mlx5_0"}));
  SetPort("mlx5_0", false);
  EXPECT_EQ(nics_->For({OfGpu("0")}), Some({"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_8"}));
  EXPECT_EQ(nics_->For({OfGpu("1")}), Some({"mlx5_1"}));
  SetPort("mlx5_0", true);
  EXPECT_EQ(nics_->For({OfGpu("0")}), Some({"mlx5_0"}));
}

TEST_F(NicAssignmentTest, WithoutAnyActivePortTheNearestHaveIt) {
  Open({{"rxe0"}, {"rxe1"}});
  SetPort("rxe0", false);
  EXPECT_EQ(nics_->For({Host()}), (DeviceSet{0, 1}));
  SetPort("rxe1", false);
  EXPECT_EQ(nics_->For({Host()}), (DeviceSet{0, 1}));
}

TEST_F(NicAssignmentTest, RegistrationsAreOnTheChosenDevicesAlone) {
  sysfs_.AddEightGpusWithNics();
  Open();
  node_ = 1;
  auto registered = registrar_->Register({Host()}, {true, true});
  ASSERT_TRUE(registered) << registered.error().message;
  kept_.push_back(*std::move(registered));
  const DeviceSet expected = Some({"mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_9"});
  for (size_t i = 0; i < devices_->size(); ++i) {
    const std::string& name = devices_->at(i).device->name();
    EXPECT_EQ(registrar_->chunks(i), expected.Has(i) ? 1u : 0u) << name;
    EXPECT_EQ(host_->calls(name, FakeCall::kRegister), expected.Has(i) ? 1 : 0) << name;
  }
  const auto& set = dynamic_cast<const MemoryRegionSet&>(*kept_.front());
  EXPECT_EQ(set.devices(), expected);
  for (size_t i = 0; i < devices_->size(); ++i) {
    EXPECT_EQ(set.list().front().remote_keys.at(i) != 0, expected.Has(i));
  }
  kept_.clear();
  for (size_t i = 0; i < devices_->size(); ++i) EXPECT_EQ(registrar_->chunks(i), 0u);
  EXPECT_EQ(host_->live().regions, 0);
}

// Of the GPUs of one node: its own device takes none, or learns that.
TEST_F(NicAssignmentTest, MemoryOfAGpuIsOnTheNearestThatTakeItsDmaBufs) {
  sysfs_.AddEightGpusWithNics();
  std::vector<gantry::testing::FakeDeviceOptions> made;
  for (const auto& nic : topology::ListRdmaDevices(sysfs_.root())) {
    made.push_back({.name = nic.name, .dmabuf = nic.name != "mlx5_0" && nic.name != "mlx5_8"});
  }
  Open(std::move(made));
  const DeviceSet others = Some({"mlx5_1", "mlx5_2", "mlx5_3"});
  EXPECT_EQ(nics_->For({OfGpu("0")}), others);
  EXPECT_EQ(nics_->For({OfGpu("1")}), Some({"mlx5_1"}));
  node_ = 0;
  EXPECT_EQ(nics_->For({Host(), OfGpu("1")}), others) << "each has both";
  EXPECT_EQ(nics_->For({Host()}), others | Some({"mlx5_0", "mlx5_8"}));

  host_->FailCall("mlx5_1", FakeCall::kRegisterDmabuf, 1, EOPNOTSUPP);
  memory::AllocationSource source = arena_.gpu_source(0, kArena);
  source.gpu.device_uuid = "1";
  const auto registered = registrar_->Register(
      {{*memory::MappedAllocation::Create(mapper_, std::move(source)), 0, kArena}}, {});
  ASSERT_TRUE(registered) << registered.error().message;
  EXPECT_EQ(dynamic_cast<const MemoryRegionSet&>(**registered).devices(),
            Some({"mlx5_2", "mlx5_3"}))
      << "the next nearest, at once";
  EXPECT_EQ(nics_->For({OfGpu("0")}), others) << "of another GPU it takes them";
}

TEST(MemoryNodeTest, AsksTheKernelAndTakesNoForAnAnswer) {
  const TestArena arena(kArena);
  const auto* const begin = reinterpret_cast<const std::byte*>(arena.data());
  const int node = MemoryNodeOf({{begin, kArena}});
  int mode = 0;
  const bool may_ask = ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0;
  EXPECT_EQ(node >= 0, may_ask);
  EXPECT_EQ(MemoryNodeOf({{begin, 5}, {begin + 4096, kArena - 4096}}), node);
  EXPECT_EQ(MemoryNodeOf({}), -1);
  // Nobody has mapped the first page.
  EXPECT_EQ(MemoryNodeOf({{reinterpret_cast<const std::byte*>(8), 4096}}), -1);
}

}  // namespace
}  // namespace gantry::transport
