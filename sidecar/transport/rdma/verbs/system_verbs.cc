#include "sidecar/transport/rdma/verbs/system_verbs.h"

#include <fcntl.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/verbs/system_queue_pair.h"
#include "sidecar/transport/rdma/verbs/verbs_error.h"

namespace gantry::transport {
namespace {

constexpr int kGidsMax = 256;

tl::unexpected<Error> Failed(const std::string& device, const char* what, int error_number) {
  return Fail(VerbsError(device, what, error_number));
}

int FlagsOf(const RegionAccess& access) {
  int flags = 0;
  if (access.local_write) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (access.remote_read) flags |= IBV_ACCESS_REMOTE_READ;
  if (access.remote_write) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (access.relaxed_ordering) flags |= IBV_ACCESS_RELAXED_ORDERING;
  return flags;
}

class SystemRegion final : public VerbsRegion {
 public:
  SystemRegion(std::string device, ibv_mr* region) : device_(std::move(device)), region_(region) {}
  ~SystemRegion() override {
    if (const Status done = Deregister(); !done) {
      log::Error("a memory region stays registered", {{"why", done.error()}});
    }
  }

  uint32_t local_key() const override { return region_->lkey; }
  uint32_t remote_key() const override { return region_->rkey; }
  Status Deregister() override {
    ibv_mr* const region = std::exchange(region_, nullptr);
    if (region == nullptr) return {};
    const int failed = ibv_dereg_mr(region);
    if (failed == 0) return {};
    return Failed(device_, "ibv_dereg_mr", failed);
  }

 private:
  const std::string device_;
  ibv_mr* region_;  // null once it is deregistered
};

class SystemDevice final : public VerbsDevice {
 public:
  SystemDevice(std::string name, uint8_t port, ibv_context* context, ibv_pd* domain,
               const VerbsLimits& limits)
      : name_(std::move(name)), port_(port), context_(context), domain_(domain), limits_(limits) {}
  ~SystemDevice() override {
    if (const int failed = ibv_dealloc_pd(domain_); failed != 0) {
      log::Error("a protection domain stays", {{"device", name_}, {"errno", failed}});
    }
    ibv_close_device(context_);
  }

  const std::string& name() const override { return name_; }
  const VerbsLimits& limits() const override { return limits_; }

  Result<VerbsPort> Port() const override {
    ibv_port_attr attributes{};
    if (const int failed = ibv_query_port(context_, port_, &attributes); failed != 0) {
      return Failed(name_, "ibv_query_port", failed);
    }
    VerbsPort port;
    port.active = attributes.state == IBV_PORT_ACTIVE;
    port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.mtu = 128U << attributes.active_mtu;  // IBV_MTU_256 is 1
    port.message_bytes_max = attributes.max_msg_sz;
    port.lid = attributes.lid;
    return port;
  }

  std::vector<GidEntry> Gids() const override {
    std::array<ibv_gid_entry, kGidsMax> entries{};
    const ssize_t count = ibv_query_gid_table(context_, entries.data(), entries.size(), 0);
    std::vector<GidEntry> gids;
    for (ssize_t i = 0; i < count; ++i) {
      const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
      if (entry.port_num != port_) continue;
      GidEntry gid;
      gid.index = static_cast<int>(entry.gid_index);
      gid.type = entry.gid_type == IBV_GID_TYPE_IB        ? GidType::kInfiniBand
                 : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidType::kRoceV1
                                                          : GidType::kRoceV2;
      std::memcpy(gid.gid.data(), entry.gid.raw, gid.gid.size());
      gid.netdev = NetdevOf(gid.index);
      gid.is_here = !gid.netdev.empty();
      gids.push_back(std::move(gid));
    }
    return gids;
  }

  Result<std::unique_ptr<VerbsRegion>> Register(std::span<std::byte> memory,
                                                const RegionAccess& access) override {
    const int flags = FlagsOf(access);
    return Made(ibv_reg_mr(domain_, memory.data(), memory.size(), static_cast<unsigned>(flags)),
                "ibv_reg_mr");
  }

  Result<std::unique_ptr<VerbsRegion>> RegisterDmabuf(int fd, uint64_t offset, uint64_t length,
                                                      uint64_t iova,
                                                      const RegionAccess& access) override {
    return Made(ibv_reg_dmabuf_mr(domain_, offset, length, iova, fd, FlagsOf(access)),
                "ibv_reg_dmabuf_mr");
  }

  Result<std::unique_ptr<VerbsCompletionQueue>> CreateCompletionQueue(uint32_t depth) override {
    return MakeSystemCompletionQueue(context_, name_, depth);
  }
  Result<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(
      VerbsCompletionQueue& queue, const QueuePairOptions& options) override {
    return MakeSystemQueuePair(domain_, name_, port_, queue, options);
  }

  int event_fd() const override { return context_->async_fd; }
  PortChange NextEvent() override {
    ibv_async_event event{};
    if (ibv_get_async_event(context_, &event) != 0) return PortChange::kNone;  // non-blocking
    ibv_ack_async_event(&event);
    switch (event.event_type) {
      case IBV_EVENT_PORT_ACTIVE:
        return event.element.port_num == port_ ? PortChange::kUp : PortChange::kOther;
      case IBV_EVENT_PORT_ERR:
        return event.element.port_num == port_ ? PortChange::kDown : PortChange::kOther;
      case IBV_EVENT_DEVICE_FATAL:
        return PortChange::kDeviceGone;
      default:
        return PortChange::kOther;
    }
  }

 private:
  Result<std::unique_ptr<VerbsRegion>> Made(ibv_mr* region, const char* what) const {
    if (region == nullptr) return Failed(name_, what, errno);
    return std::make_unique<SystemRegion>(name_, region);
  }
  // Only this network namespace's are named to it.
  std::string NetdevOf(int gid_index) const {
    std::ifstream file("/sys/class/infiniband/" + name_ + "/ports/" + std::to_string(port_) +
                       "/gid_attrs/ndevs/" + std::to_string(gid_index));
    std::string netdev;
    std::getline(file, netdev);
    return netdev;
  }

  const std::string name_;
  const uint8_t port_;
  ibv_context* const context_;
  ibv_pd* const domain_;
  const VerbsLimits limits_;
};

// As the library lists them: valid until the list is freed.
class DeviceList {
 public:
  DeviceList() : devices_(ibv_get_device_list(&count_)), error_number_(errno) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (devices_ != nullptr) ibv_free_device_list(devices_);
  }
  // A kernel without RDMA at all has no devices.
  Status Check() const {
    if (devices_ != nullptr || error_number_ == ENOSYS) return {};
    return Fail(SystemError(ErrorCode::kDeviceError, "ibv_get_device_list", error_number_));
  }
  std::span<ibv_device*> devices() const {
    return {devices_, devices_ == nullptr ? 0 : static_cast<size_t>(count_)};
  }

 private:
  int count_ = 0;
  ibv_device** const devices_;
  const int error_number_;
};

Result<std::unique_ptr<VerbsDevice>> OpenDevice(ibv_device* device, const std::string& name,
                                                uint8_t port) {
  ibv_context* const context = ibv_open_device(device);
  if (context == nullptr) {
    auto error = SystemError(ErrorCode::kDeviceError, "opening RDMA device " + name, errno);
    error.hint = "give the container /dev/infiniband/uverbs*: the device plugin does";
    return Fail(std::move(error));
  }
  const auto fail = [&](const char* what, int error_number) {
    ibv_close_device(context);
    return Failed(name, what, error_number);
  };
  ibv_device_attr attributes{};
  if (const int failed = ibv_query_device(context, &attributes); failed != 0) {
    return fail("ibv_query_device", failed);
  }
  const int flags = fcntl(context->async_fd, F_GETFL);
  if (flags < 0 || fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return fail("making its events non-blocking", errno);
  }
  ibv_pd* const domain = ibv_alloc_pd(context);
  if (domain == nullptr) return fail("ibv_alloc_pd", errno);
  const auto count = [](int value) { return static_cast<uint32_t>(std::max(value, 0)); };
  VerbsLimits limits;
  limits.region_bytes_max = attributes.max_mr_size;
  limits.regions_max = count(attributes.max_mr);
  limits.queue_pairs_max = count(attributes.max_qp);
  limits.work_requests_max = count(attributes.max_qp_wr);
  limits.completions_max = count(attributes.max_cqe);
  limits.reads_max = count(attributes.max_qp_rd_atom);
  limits.reads_sent_max = count(attributes.max_qp_init_rd_atom);
  return std::make_unique<SystemDevice>(name, port, context, domain, limits);
}

class SystemVerbs final : public Verbs {
 public:
  Result<std::vector<std::string>> Devices() override {
    const DeviceList list;
    RETURN_IF_ERROR(list.Check());
    std::vector<std::string> names;
    for (ibv_device* device : list.devices()) names.emplace_back(ibv_get_device_name(device));
    std::sort(names.begin(), names.end());
    return names;
  }
  Result<std::unique_ptr<VerbsDevice>> Open(const std::string& name, uint8_t port) override {
    const DeviceList list;
    RETURN_IF_ERROR(list.Check());
    for (ibv_device* device : list.devices()) {
      if (name == ibv_get_device_name(device)) return OpenDevice(device, name, port);
    }
    return Fail(ErrorCode::kNotFound, "there is no RDMA device '" + name + "'",
                "`gantryctl doctor` lists those that are there");
  }
};

}  // namespace

std::unique_ptr<Verbs> MakeSystemVerbs() {
  // A child that is forked by some library must not take pages along that a device writes to. Linux
  // 5.12 and later sees to it; before, the library keeps them from it, and has to know that there
  // are huge pages. Where it is asked to without need it refuses parts of huge pages.
  if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED) {
    ::setenv("RDMAV_HUGEPAGES_SAFE", "1", 0);
    ibv_fork_init();
  }
  return std::make_unique<SystemVerbs>();
}

}  // namespace gantry::transport
