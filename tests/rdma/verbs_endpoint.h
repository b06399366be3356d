// For tests that use libibverbs directly: one end of a reliable connection on a RoCE device, and
// the objects it needs, which are destroyed with their owner. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gantry::testing {

template <auto destroy>
struct VerbsDestroyer {
  template <typename Object>
  void operator()(Object* object) const {
    EXPECT_EQ(destroy(object), 0);
  }
};
using VerbsContext = std::unique_ptr<ibv_context, VerbsDestroyer<&ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, VerbsDestroyer<&ibv_dealloc_pd>>;
using MemoryRegion = std::unique_ptr<ibv_mr, VerbsDestroyer<&ibv_dereg_mr>>;
using CompletionQueue = std::unique_ptr<ibv_cq, VerbsDestroyer<&ibv_destroy_cq>>;
using QueuePair = std::unique_ptr<ibv_qp, VerbsDestroyer<&ibv_destroy_qp>>;

constexpr unsigned kAllRemoteAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// What the environment says about where the test runs (tests/rdma/guest sets it).
bool InGuest();
bool RdmaIsPromised();
// Packets are lost on purpose.
bool CableLosesPackets();

// Names of the devices, sorted.
std::vector<std::string> DeviceNames();
// The GID of an IPv4 address for RoCE v2 at port 1.
std::optional<ibv_gid_entry> Ipv4Gid(ibv_context* context);

class VerbsEndpoint {
 public:
  // Fails the test and is not usable() when something of it cannot be had.
  explicit VerbsEndpoint(const std::string& device);

  bool usable() const { return queue_pair_ != nullptr; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }

  MemoryRegion Register(std::span<uint8_t> bytes, unsigned access = kAllRemoteAccess) const;
  // Connects both ways.
  void Connect(VerbsEndpoint& other);

  // Between `local`, which lies in the region, and the other end's address; waits for the outcome.
  ibv_wc_status Write(const ibv_mr& region, std::span<uint8_t> local, const uint8_t* remote,
                      uint32_t key);
  ibv_wc_status Read(const ibv_mr& region, std::span<uint8_t> local, const uint8_t* remote,
                     uint32_t key);
  ibv_wc_status WriteWithImmediate(const ibv_mr& region, std::span<uint8_t> local,
                                   const uint8_t* remote, uint32_t key, uint32_t immediate);
  // Lets one immediate in.
  void PostReceive();
  // The next completion, within 20 seconds.
  std::optional<ibv_wc> NextCompletion();

 private:
  ibv_wc_status Run(ibv_send_wr& request, const ibv_mr& region, std::span<uint8_t> local,
                    const uint8_t* remote, uint32_t key);
  void MakeQueuePair();
  void MoveToInit();
  void MoveToReadyWith(const VerbsEndpoint& other);

  VerbsContext context_;
  ProtectionDomain domain_;
  CompletionQueue completions_;
  QueuePair queue_pair_;
  ibv_gid_entry gid_{};
  ibv_port_attr port_{};
};

// Skips a test where there is no RDMA device, and fails it where there has to be one.
class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override;
  std::vector<std::string> devices_;
};

}  // namespace gantry::testing
