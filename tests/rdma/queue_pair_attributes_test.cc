// What is asked of a queue pair arrives in it, as the device tells it back.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/contracts/verbs_ends.h"
#include "tests/rdma/real_rdma_place.h"
#include "tests/rdma/verbs_endpoint.h"

namespace gantry::testing {
namespace {

using transport::QueuePairAddress;
using transport::QueuePairOptions;
using transport::RdmaOptions;

constexpr uint8_t kHopLimitOfLinux = 64;  // net.ipv4.ip_default_ttl

// Of this program, which makes them by the functions below.
struct MadePairs {
  static MadePairs& Get() {
    static MadePairs made;
    return made;
  }
  std::map<ibv_qp*, ibv_ah_attr> routes;  // asked for, of those that live
};

template <typename Function>
Function* Library(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace gantry::testing

// In the place of the library's, to which they pass everything on: SystemVerbs shows nobody its
// queue pairs.
extern "C" {
ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  static auto* const create = gantry::testing::Library<decltype(ibv_create_qp)>("ibv_create_qp");
  ibv_qp* const made = create(domain, attributes);
  if (made != nullptr) gantry::testing::MadePairs::Get().routes[made] = {};
  return made;
}
int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  static auto* const modify = gantry::testing::Library<decltype(ibv_modify_qp)>("ibv_modify_qp");
  auto& routes = gantry::testing::MadePairs::Get().routes;
  if ((mask & IBV_QP_AV) != 0) routes[pair] = attributes->ah_attr;
  return modify(pair, attributes, mask);
}
int ibv_destroy_qp(ibv_qp* pair) {
  static auto* const destroy = gantry::testing::Library<decltype(ibv_destroy_qp)>("ibv_destroy_qp");
  gantry::testing::MadePairs::Get().routes.erase(pair);
  return destroy(pair);
}
}

namespace gantry::testing {
namespace {

ibv_qp_attr Told(ibv_qp* pair) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made_with{};
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                   IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_DEST_QPN |
                   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
                   IBV_QP_ACCESS_FLAGS | IBV_QP_CAP;
  EXPECT_EQ(ibv_query_qp(pair, &attributes, mask, &made_with), 0);
  return attributes;
}

// Soft-RoCE keeps no service level, and Linux has a hop limit of its own for RoCE: of these what
// was asked for is looked at.
void ExpectPacketsAsOf(const QueuePairOptions& options, ibv_qp* pair) {
  const ibv_qp_attr told = Told(pair);
  EXPECT_EQ(told.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(told.timeout, options.timeout);
  EXPECT_EQ(told.retry_cnt, options.retries);
  EXPECT_EQ(told.rnr_retry, options.rnr_retries);
  EXPECT_EQ(told.ah_attr.is_global, 1);
  EXPECT_EQ(MadePairs::Get().routes.at(pair).grh.hop_limit, options.hop_limit);
  if (InGuest()) {
    EXPECT_EQ(told.ah_attr.grh.hop_limit, kHopLimitOfLinux);
  }
  EXPECT_EQ(told.ah_attr.grh.traffic_class, options.traffic_class);
  EXPECT_EQ(told.ah_attr.grh.sgid_index, options.gid_index);
  EXPECT_EQ(MadePairs::Get().routes.at(pair).sl, options.service_level);
  EXPECT_GE(told.cap.max_send_wr, options.work_requests);
}

struct Case {
  QueuePairOptions options;
  uint32_t mtu_here, mtu_there;
  uint32_t reads_answered_here, reads_answered_there;
  ibv_mtu mtu;     // then
  uint32_t reads;  // sent at a time, then
};

std::vector<Case> Cases() {
  QueuePairOptions one;
  one.work_requests = 40;
  one.timeout = 11;
  one.retries = 3;
  one.rnr_retries = 5;
  one.min_rnr_timer = 20;
  one.hop_limit = 17;
  one.traffic_class = 0x68;
  one.service_level = 3;
  one.reads_sent = 4;
  one.remote_read = true;
  QueuePairOptions other;
  other.work_requests = 9;
  other.timeout = 17;
  other.retries = 5;
  other.rnr_retries = 2;
  other.min_rnr_timer = 7;
  other.hop_limit = 200;
  other.traffic_class = 0x9c;
  other.service_level = 6;
  other.reads_sent = 16;
  other.remote_write = true;
  return {{one, 4096, 1024, 16, 16, IBV_MTU_1024, 4}, {other, 512, 4096, 8, 2, IBV_MTU_512, 2}};
}

class QueuePairAttributes : public VerbsEnds {
 protected:
  void SetUp() override {
    const auto names = verbs_->Devices();
    ASSERT_TRUE(names) << names.error().message;
    ASSERT_FALSE(names->empty()) << "there has to be an RDMA device here";
    device_ = names->front();
  }

  const std::unique_ptr<transport::Verbs> verbs_ = transport::MakeSystemVerbs();
  std::string device_;
};

TEST_F(QueuePairAttributes, ArriveAsTheyWereAskedFor) {
  for (const Case& each : Cases()) {
    const auto a = MakeEnd(*verbs_, device_, 1);
    const auto b = MakeEnd(*verbs_, device_, 2);
    const auto before = MadePairs::Get().routes;
    QueuePairOptions options = each.options;
    options.gid_index = a->options.gid_index;
    const auto made = a->device->CreateQueuePair(*a->queue, options);
    ASSERT_TRUE(made) << made.error().message;
    QueuePairAddress here = a->AddressOf(**made);
    QueuePairAddress there = b->Address();
    here.packet_sequence = 0x123456;
    there.packet_sequence = 0x654321;
    here.mtu = each.mtu_here;
    there.mtu = each.mtu_there;
    here.reads_max = each.reads_answered_here;
    there.reads_max = each.reads_answered_there;
    const Status connected = (*made)->Connect(here, there, options);
    ASSERT_TRUE(connected) << connected.error().message;
    for (const auto& [pair, route] : MadePairs::Get().routes) {
      if (before.contains(pair)) continue;
      ExpectPacketsAsOf(options, pair);
      const ibv_qp_attr told = Told(pair);
      EXPECT_EQ(told.path_mtu, each.mtu) << "the smaller of both ends";
      EXPECT_EQ(told.min_rnr_timer, options.min_rnr_timer);
      EXPECT_EQ(told.max_rd_atomic, each.reads) << "no more than the other end answers";
      EXPECT_EQ(told.max_dest_rd_atomic, each.reads_answered_here);
      EXPECT_EQ(told.dest_qp_num, there.number);
      EXPECT_EQ(told.sq_psn, here.packet_sequence);
      EXPECT_EQ(told.rq_psn, there.packet_sequence);
      EXPECT_EQ(std::memcmp(told.ah_attr.grh.dgid.raw, there.gid.data(), there.gid.size()), 0);
      const unsigned access = (options.remote_read ? IBV_ACCESS_REMOTE_READ : 0) |
                              (options.remote_write ? IBV_ACCESS_REMOTE_WRITE : 0);
      EXPECT_EQ(told.qp_access_flags, access);
    }
    ASSERT_EQ(MadePairs::Get().routes.size(), before.size() + 1);
  }
}

// Both ends of a connection, as an operator's settings say it.
TEST_F(QueuePairAttributes, OfAConnectionAreTheSettings) {
  RdmaOptions settings;
  settings.mtu = 512;
  settings.queue_pairs = 3;
  settings.work_requests = 21;
  settings.inline_bytes = 200;
  settings.timeout = 12;
  settings.retries = 4;
  settings.rnr_retries = 3;
  settings.hop_limit = 33;
  settings.traffic_class = 0xb8;
  settings.service_level = 5;
  transport::RealRdmaPlace place(settings);
  transport::RdmaWorld& world = place.world();
  world.MoveSomething();
  const auto& made = MadePairs::Get().routes;
  ASSERT_EQ(made.size(), 2 * 3 * world.devices_->size());
  QueuePairOptions options;
  options.work_requests = settings.work_requests;
  options.timeout = settings.timeout;
  options.retries = settings.retries;
  options.rnr_retries = settings.rnr_retries;
  options.hop_limit = settings.hop_limit;
  options.traffic_class = settings.traffic_class;
  options.service_level = settings.service_level;
  options.gid_index = world.devices_->at(0).gid.index;
  for (const auto& [pair, route] : made) {
    ExpectPacketsAsOf(options, pair);
    const ibv_qp_attr told = Told(pair);
    EXPECT_EQ(128U << told.path_mtu, settings.mtu);
    const bool is_initiators = told.qp_access_flags == 0;
    if (is_initiators || InGuest()) {
      EXPECT_EQ(told.cap.max_inline_data >= settings.inline_bytes, is_initiators);
    }
  }
}

}  // namespace
}  // namespace gantry::testing
