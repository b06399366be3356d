// A kubelet's device manager, PodResources server and container runtime, as far as a device plugin
// can tell: the rules of pkg/kubelet/cm/devicemanager (v1.34) over real sockets. Thread-safe.
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deviceplugin/cdi/container_edits.h"
#include "deviceplugin/device_plugin.grpc.pb.h"
#include "deviceplugin/pod_resources.grpc.pb.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "tests/deviceplugin/fake_endpoint.h"
#include "tests/deviceplugin/fake_pods.h"
#include "tests/fakes/test_folder.h"

namespace gantry::deviceplugin {

class FakeKubelet {
 public:
  FakeKubelet();
  ~FakeKubelet();

  std::string plugin_folder() const { return folder_.File("device-plugins"); }
  std::string pod_resources_folder() const { return folder_.File("pod-resources"); }
  std::string cdi_folder() const { return folder_.File("cdi"); }
  std::string File(const std::string& name) const { return folder_.File(name); }

  // Removes every socket from the folder of plugins, as a kubelet that starts does.
  void Start() EXCLUDES(mutex_);
  // Of plugins it knows no more than the names of resources, and calls none before it registers
  // again; what it gave to pods it keeps (both: its checkpoint).
  void Stop() EXCLUDES(mutex_);
  void Restart() {
    Stop();
    Start();
  }

  // Admits the pod: allocates for each container in order. The error is what the pod would fail
  // with (UnexpectedAdmissionError).
  Status Admit(const FakePod& pod) EXCLUDES(mutex_);
  // Sends an Allocate of these ids, whether they are there, free, or none: beyond its rules.
  Result<v1beta1::ContainerAllocateResponse> AllocateIds(const std::string& resource,
                                                         const std::vector<std::string>& ids)
      EXCLUDES(mutex_);
  // A pod whose container has that, however it came by it.
  void RecordPod(const FakePod& pod, const std::string& container, const std::string& resource,
                 const FakePods::Allocation& given) EXCLUDES(mutex_);
  void Remove(const std::string& pod_namespace, const std::string& pod) EXCLUDES(mutex_);
  // Asks PreStartContainer where the plugin wants it, and creates the container: answers its CDI
  // names that resolve to nothing as an error, and else the slot's edits.
  Result<nlohmann::json> StartContainer(const std::string& pod_namespace, const std::string& pod,
                                        const std::string& container) EXCLUDES(mutex_);

  // Of a resource, as the node's status has it.
  int Capacity(const std::string& resource) const EXCLUDES(mutex_);
  int Allocatable(const std::string& resource) const EXCLUDES(mutex_);
  std::vector<std::string> DevicesOf(const std::string& pod, const std::string& container,
                                     const std::string& resource) const EXCLUDES(mutex_);
  int registrations() const { return registrations_; }
  // Registrations of sockets that nobody served.
  int failed_dials() const { return failed_dials_; }
  // The answers of the plugin for a container.
  v1beta1::ContainerAllocateResponse AllocatedFor(const std::string& pod,
                                                  const std::string& container,
                                                  const std::string& resource) const
      EXCLUDES(mutex_);

  // What it does wrong, or late.
  void RefuseRegistrations(bool refuse) { refuse_ = refuse; }
  // Answers no registration before it is cancelled, for 20 s at most.
  void HangRegistrations(bool hang) { hang_ = hang; }
  bool hangs() const { return hanging_ > 0; }  // a registration waits for its answer
  // Of the next registrations it follows none: the stream ends before the plugin hears of it.
  void LoseStreams(int count) { lose_streams_ = count; }
  void DelayPodResources(milliseconds time) { pod_resources_delay_ = time; }
  void FailPodResources(bool fail) { pod_resources_fail_ = fail; }
  // Not listed before this is called with false: what the kubelet has not recorded yet.
  void HidePods(bool hide) { hide_pods_ = hide; }
  // Stops following the plugin, as after a broken connection.
  void DropStream(const std::string& resource) EXCLUDES(mutex_);
  // Hears of the end of a stream that much later.
  void DelayGoodbyes(milliseconds time) { goodbye_delay_ = time; }
  // Before 1.36 (kubernetes#135437): whichever stream of a resource ends, the resource is taken for
  // gone, and whoever registered last has to do so again.
  void ConfuseInstances(bool confuse) { confuse_instances_ = confuse; }
  // Five minutes after a plugin's end the node has its resource no more.
  void PassGracePeriod() EXCLUDES(mutex_);

 private:
  class Registration;
  class PodResources;
  struct Resource {
    std::shared_ptr<FakeEndpoint> endpoint;  // null: only the checkpoint knows of it
    bool stopped = true;
    std::map<std::string, bool> healthy;  // by id
  };
  using ContainerKey = FakePods::ContainerKey;

  grpc::Status Register(const v1beta1::RegisterRequest& request) EXCLUDES(mutex_);
  void Follow(const std::shared_ptr<FakeEndpoint>& endpoint) EXCLUDES(mutex_);
  void Heard(const std::string& resource, const FakeEndpoint::List& list) EXCLUDES(mutex_);
  void HeardGoodbye(const FakeEndpoint& endpoint) EXCLUDES(mutex_);
  Status Allocate(const ContainerKey& key, const std::string& resource, int count) EXCLUDES(mutex_);
  Result<std::vector<std::string>> Choose(const std::string& resource, int count) const
      REQUIRES(mutex_);
  Status PreStart(const std::string& resource, const std::vector<std::string>& ids)
      EXCLUDES(mutex_);
  void FillPods(v1::ListPodResourcesResponse* response) const EXCLUDES(mutex_);

  const testing::TestFolder folder_;
  std::atomic<bool> refuse_ = false;
  std::atomic<bool> hang_ = false;
  std::atomic<int> hanging_ = 0;
  std::atomic<int> lose_streams_ = 0;
  std::atomic<milliseconds> pod_resources_delay_{milliseconds(0)};
  std::atomic<bool> pod_resources_fail_ = false;
  std::atomic<bool> hide_pods_ = false;
  std::atomic<milliseconds> goodbye_delay_{milliseconds(0)};
  std::atomic<bool> confuse_instances_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> registrations_ = 0;
  std::atomic<int> failed_dials_ = 0;

  mutable Mutex mutex_;
  std::map<std::string, Resource> resources_ GUARDED_BY(mutex_);
  FakePods pods_ GUARDED_BY(mutex_);
  // Of all registrations: those that others came after are followed, too.
  std::vector<std::shared_ptr<FakeEndpoint>> followed_ GUARDED_BY(mutex_);
  std::vector<std::thread> followers_ GUARDED_BY(mutex_);

  std::unique_ptr<Registration> registration_;
  std::unique_ptr<PodResources> pod_resources_;
  std::unique_ptr<grpc::Server> registration_server_;
  std::unique_ptr<grpc::Server> pod_resources_server_;
};

// Until it is so, for 10 s at most.
template <typename Condition>
bool Eventually(const Condition& condition, milliseconds at_most = milliseconds(10'000)) {
  const TimePoint end = Clock::now() + at_most;
  while (!condition()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

}  // namespace gantry::deviceplugin
