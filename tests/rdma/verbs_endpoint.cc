#include "tests/rdma/verbs_endpoint.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace gantry::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint8_t kPort = 1;
constexpr int kQueueDepth = 64;
// A lost packet is sent again after 4.096 us * 2^14, six times at most: soft-RoCE takes seven for
// "without end", so that an end that is gone would be waited for forever.
constexpr uint8_t kTimeoutExponent = 14, kRetries = 6;
// Of receives that are not there yet seven means without end to every device.
constexpr uint8_t kReceiverRetries = 7;
constexpr auto kCompletionLimit = std::chrono::seconds(20);

// What the IPv6 address begins with that stands for an IPv4 address.
constexpr std::array<uint8_t, 12> kMappedIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool InGuest() { return Variable("GANTRY_TEST_RDMA") == "guest"; }
bool RdmaIsPromised() { return InGuest() || Variable("GANTRY_TEST_RDMA") == "real"; }
bool CableLosesPackets() { return !Variable("GANTRY_TEST_RDMA_LOSS").empty(); }

std::vector<std::string> DeviceNames() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) names.emplace_back(ibv_get_device_name(list[i]));
  if (list != nullptr) ibv_free_device_list(list);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<ibv_gid_entry> Ipv4Gid(ibv_context* context) {
  std::array<ibv_gid_entry, 256> entries{};
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    if (entry.port_num == kPort && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        std::memcmp(entry.gid.raw, kMappedIpv4.data(), kMappedIpv4.size()) == 0) {
      return entry;
    }
  }
  return std::nullopt;
}

VerbsEndpoint::VerbsEndpoint(const std::string& device) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (ibv_get_device_name(list[i]) == device) context_.reset(ibv_open_device(list[i]));
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (!context_) {
    ADD_FAILURE() << device << " cannot be opened: " << std::strerror(errno);
    return;
  }
  const auto gid = Ipv4Gid(context_.get());
  if (!gid || ibv_query_port(context_.get(), kPort, &port_) != 0) {
    ADD_FAILURE() << device << " has no RoCE v2 GID of an IPv4 address at port 1";
    return;
  }
  gid_ = *gid;
  domain_.reset(ibv_alloc_pd(context_.get()));
  completions_.reset(ibv_create_cq(context_.get(), 2 * kQueueDepth, nullptr, nullptr, 0));
  MakeQueuePair();
}

MemoryRegion VerbsEndpoint::Register(std::span<uint8_t> bytes, unsigned access) const {
  MemoryRegion region(ibv_reg_mr(domain_.get(), bytes.data(), bytes.size(), access));
  EXPECT_NE(region, nullptr) << std::strerror(errno);
  return region;
}

void VerbsEndpoint::MakeQueuePair() {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = completions_.get();
  wanted.recv_cq = completions_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  wanted.cap.max_send_wr = kQueueDepth;
  wanted.cap.max_recv_wr = kQueueDepth;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  queue_pair_.reset(ibv_create_qp(domain_.get(), &wanted));
  if (!queue_pair_) ADD_FAILURE() << "no queue pair: " << std::strerror(errno);
}

void VerbsEndpoint::Connect(VerbsEndpoint& other) {
  MoveToInit();
  other.MoveToInit();
  MoveToReadyWith(other);
  other.MoveToReadyWith(*this);
}

void VerbsEndpoint::MoveToInit() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = kPort;
  attributes.qp_access_flags = kAllRemoteAccess;
  EXPECT_EQ(ibv_modify_qp(queue_pair_.get(), &attributes,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
}

void VerbsEndpoint::MoveToReadyWith(const VerbsEndpoint& other) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(port_.active_mtu, other.port_.active_mtu);
  attributes.dest_qp_num = other.queue_pair_->qp_num;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = kPort;
  attributes.ah_attr.grh.dgid = other.gid_.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  EXPECT_EQ(ibv_modify_qp(queue_pair_.get(), &attributes,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kTimeoutExponent;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kReceiverRetries;
  attributes.max_rd_atomic = 1;
  EXPECT_EQ(ibv_modify_qp(queue_pair_.get(), &attributes,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            0);
}

std::optional<ibv_wc> VerbsEndpoint::NextCompletion() {
  ibv_wc completion{};
  for (const auto end = Clock::now() + kCompletionLimit; Clock::now() < end;) {
    const int count = ibv_poll_cq(completions_.get(), 1, &completion);
    EXPECT_GE(count, 0);
    if (count == 1) return completion;
  }
  return std::nullopt;
}

ibv_wc_status VerbsEndpoint::Run(ibv_send_wr& request, const ibv_mr& region,
                                 std::span<uint8_t> local, const uint8_t* remote, uint32_t key) {
  ibv_sge piece{reinterpret_cast<uint64_t>(local.data()), static_cast<uint32_t>(local.size()),
                region.lkey};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(remote);
  request.wr.rdma.rkey = key;
  ibv_send_wr* refused = nullptr;
  const int posted = ibv_post_send(queue_pair_.get(), &request, &refused);
  if (posted != 0) {
    ADD_FAILURE() << "ibv_post_send: " << std::strerror(posted);
    return IBV_WC_GENERAL_ERR;
  }
  const auto completion = NextCompletion();
  if (!completion) {
    ADD_FAILURE() << "no completion within 20 seconds";
    return IBV_WC_GENERAL_ERR;
  }
  return completion->status;
}

ibv_wc_status VerbsEndpoint::Write(const ibv_mr& region, std::span<uint8_t> local,
                                   const uint8_t* remote, uint32_t key) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  return Run(request, region, local, remote, key);
}

ibv_wc_status VerbsEndpoint::Read(const ibv_mr& region, std::span<uint8_t> local,
                                  const uint8_t* remote, uint32_t key) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_READ;
  return Run(request, region, local, remote, key);
}

ibv_wc_status VerbsEndpoint::WriteWithImmediate(const ibv_mr& region, std::span<uint8_t> local,
                                                const uint8_t* remote, uint32_t key,
                                                uint32_t immediate) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = immediate;
  return Run(request, region, local, remote, key);
}

void VerbsEndpoint::PostReceive() {
  ibv_recv_wr request{};
  ibv_recv_wr* refused = nullptr;
  EXPECT_EQ(ibv_post_recv(queue_pair_.get(), &request, &refused), 0);
}

void VerbsTest::SetUp() {
  devices_ = DeviceNames();
  if (devices_.empty() && RdmaIsPromised()) FAIL() << "there has to be an RDMA device here";
  if (devices_.empty()) {
    GTEST_SKIP() << "no RDMA device here: run it by \"make test-rdma\", or by tests/rdma/guest";
  }
}

}  // namespace gantry::testing
