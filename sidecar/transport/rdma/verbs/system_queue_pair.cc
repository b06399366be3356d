#include "sidecar/transport/rdma/verbs/system_queue_pair.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/verbs/verbs_error.h"

namespace gantry::transport {
namespace {

constexpr size_t kBatch = 64;
constexpr uint8_t kGlobalRouteAlways = 1;

tl::unexpected<Error> QueuePairFailed(const std::string& device, const std::string& what,
                                      int error_number) {
  return Fail(VerbsError(device, what, error_number));
}

class SystemCompletionQueue final : public VerbsCompletionQueue {
 public:
  SystemCompletionQueue(std::string device, ibv_comp_channel* channel, ibv_cq* queue)
      : device_(std::move(device)), channel_(channel), queue_(queue) {}
  ~SystemCompletionQueue() override {
    TakeEvents();
    if (const int failed = ibv_destroy_cq(queue_); failed != 0) {
      log::Error("a completion queue stays", {{"device", device_}, {"errno", failed}});
    }
    ibv_destroy_comp_channel(channel_);
  }

  int Poll(std::span<WorkCompletion> completions) override {
    std::array<ibv_wc, kBatch> taken;
    const int room = static_cast<int>(std::min(completions.size(), taken.size()));
    const int count = ibv_poll_cq(queue_, room, taken.data());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& from = taken[static_cast<size_t>(i)];
      completions[static_cast<size_t>(i)] = {from.wr_id, static_cast<WorkStatus>(from.status),
                                             from.qp_num, from.vendor_err};
    }
    return count;
  }
  Status Arm() override {
    const int failed = ibv_req_notify_cq(queue_, 0);
    if (failed == 0) return {};
    return QueuePairFailed(device_, "ibv_req_notify_cq", failed);
  }
  int fd() const override { return channel_->fd; }
  void TakeEvents() override {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(channel_, &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
  }
  ibv_cq* get() const { return queue_; }

 private:
  const std::string device_;
  ibv_comp_channel* const channel_;
  ibv_cq* const queue_;
};

ibv_mtu MtuOf(uint32_t bytes) {
  for (const auto mtu : {IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512}) {
    if (bytes >= 128U << mtu) return mtu;
  }
  return IBV_MTU_256;
}

class SystemQueuePair final : public VerbsQueuePair {
 public:
  SystemQueuePair(std::string device, uint8_t port, ibv_qp* queue_pair, uint32_t inline_bytes)
      : device_(std::move(device)),
        port_(port),
        queue_pair_(queue_pair),
        inline_bytes_(inline_bytes) {}
  ~SystemQueuePair() override {
    if (const int failed = ibv_destroy_qp(queue_pair_); failed != 0) {
      log::Error("a queue pair stays", {{"device", device_}, {"errno", failed}});
    }
  }

  uint32_t number() const override { return queue_pair_->qp_num; }
  uint32_t inline_bytes() const override { return inline_bytes_; }

  Status Connect(const QueuePairAddress& from, const QueuePairAddress& to,
                 const QueuePairOptions& options) override {
    RETURN_IF_ERROR(Initialize(options));
    RETURN_IF_ERROR(ReadyToReceive(from, to, options));
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = options.timeout;
    attributes.retry_cnt = options.retries;
    attributes.rnr_retry = options.rnr_retries;
    attributes.sq_psn = from.packet_sequence;
    attributes.max_rd_atomic = ReadsOf(ReadsSent(options, to));
    return Modify(&attributes,
                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                  "ready to send");
  }

  size_t Post(std::span<const WorkItem> items, int* error_number) override {
    *error_number = 0;
    size_t posted = 0;
    while (posted < items.size()) {
      const size_t count = std::min(items.size() - posted, kBatch);
      const size_t taken = PostBatch(items.subspan(posted, count), error_number);
      posted += taken;
      if (taken < count) break;
    }
    return posted;
  }

  Status Fail() override {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    return Modify(&attributes, IBV_QP_STATE, "error");
  }

 private:
  static uint8_t ReadsOf(uint32_t reads) {
    return static_cast<uint8_t>(std::clamp<uint32_t>(reads, 1, 255));
  }

  Status Initialize(const QueuePairOptions& options) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = port_;
    if (options.remote_read) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
    if (options.remote_write) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
    return Modify(&attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                  "initialized");
  }

  Status ReadyToReceive(const QueuePairAddress& from, const QueuePairAddress& to,
                        const QueuePairOptions& options) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = MtuOf(std::min(from.mtu, to.mtu));
    attributes.dest_qp_num = to.number;
    attributes.rq_psn = to.packet_sequence;
    attributes.max_dest_rd_atomic = ReadsOf(from.reads_max);
    attributes.min_rnr_timer = options.min_rnr_timer;
    ibv_ah_attr& route = attributes.ah_attr;
    route.dlid = to.lid;
    route.sl = options.service_level;
    route.port_num = port_;
    route.is_global = kGlobalRouteAlways;
    std::memcpy(route.grh.dgid.raw, to.gid.data(), to.gid.size());
    route.grh.sgid_index = static_cast<uint8_t>(options.gid_index);
    route.grh.hop_limit = options.hop_limit;
    route.grh.traffic_class = options.traffic_class;
    return Modify(&attributes,
                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                  "ready to receive");
  }

  Status Modify(ibv_qp_attr* attributes, int mask, const char* state) {
    const int failed = ibv_modify_qp(queue_pair_, attributes, mask);
    if (failed == 0) return {};
    return QueuePairFailed(device_, std::string("making a queue pair '") + state + "'", failed);
  }

  size_t PostBatch(std::span<const WorkItem> items, int* error_number) {
    std::array<ibv_send_wr, kBatch> requests;
    std::array<ibv_sge, kBatch> pieces;
    for (size_t i = 0; i < items.size(); ++i) {
      const WorkItem& item = items[i];
      pieces[i] = {item.local_address, item.length, item.local_key};
      ibv_send_wr& request = requests[i];
      request = {};
      request.wr_id = item.id;
      request.next = i + 1 < items.size() ? &requests[i + 1] : nullptr;
      request.sg_list = &pieces[i];
      request.num_sge = 1;
      request.opcode =
          item.operation == WorkOperation::kWrite ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
      request.send_flags = item.signalled ? IBV_SEND_SIGNALED : 0;
      if (item.inlined) request.send_flags |= IBV_SEND_INLINE;
      request.wr.rdma = {item.remote_address, item.remote_key};
    }
    ibv_send_wr* refused = nullptr;
    const int failed = ibv_post_send(queue_pair_, requests.data(), &refused);
    if (failed == 0) return items.size();
    *error_number = failed < 0 ? -failed : failed;
    return refused == nullptr ? 0 : static_cast<size_t>(refused - requests.data());
  }

  const std::string device_;
  const uint8_t port_;
  ibv_qp* const queue_pair_;
  const uint32_t inline_bytes_;
};

}  // namespace

Result<std::unique_ptr<VerbsCompletionQueue>> MakeSystemCompletionQueue(ibv_context* context,
                                                                        const std::string& device,
                                                                        uint32_t depth) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  if (channel == nullptr) return QueuePairFailed(device, "ibv_create_comp_channel", errno);
  const int flags = fcntl(channel->fd, F_GETFL);
  if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    const int error_number = errno;
    ibv_destroy_comp_channel(channel);
    return QueuePairFailed(device, "making completions non-blocking", error_number);
  }
  ibv_cq* const queue = ibv_create_cq(context, static_cast<int>(depth), nullptr, channel, 0);
  if (queue == nullptr) {
    const int error_number = errno;
    ibv_destroy_comp_channel(channel);
    return QueuePairFailed(device, "ibv_create_cq", error_number);
  }
  return std::make_unique<SystemCompletionQueue>(device, channel, queue);
}

Result<std::unique_ptr<VerbsQueuePair>> MakeSystemQueuePair(ibv_pd* domain,
                                                            const std::string& device, uint8_t port,
                                                            VerbsCompletionQueue& queue,
                                                            const QueuePairOptions& options) {
  ibv_cq* const completions = static_cast<SystemCompletionQueue&>(queue).get();
  ibv_qp_init_attr attributes{};
  attributes.send_cq = completions;
  attributes.recv_cq = completions;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = options.work_requests;
  attributes.cap.max_recv_wr = 1;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = options.inline_bytes;
  ibv_qp* made = ibv_create_qp(domain, &attributes);
  // No device tells how much it takes inline; asked for more it makes nothing.
  if (made == nullptr && options.inline_bytes != 0) {
    attributes.cap.max_inline_data = 0;
    made = ibv_create_qp(domain, &attributes);
  }
  if (made == nullptr) return QueuePairFailed(device, "ibv_create_qp", errno);
  return std::make_unique<SystemQueuePair>(device, port, made, attributes.cap.max_inline_data);
}

}  // namespace gantry::transport
