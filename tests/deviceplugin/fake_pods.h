// Pods of a fake kubelet, and which devices of plugins it gave to their containers: what a kubelet
// keeps over its restarts (its checkpoint). Used under a mutex.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "deviceplugin/device_plugin.pb.h"
#include "deviceplugin/pod_resources.pb.h"

namespace gantry::deviceplugin {

// What a test's pod asks for. Init containers that restart come first, as the kubelet has it.
struct FakeContainer {
  std::string name;
  std::map<std::string, int> of_plugin = {};                   // resource -> how many
  std::map<std::string, std::vector<std::string>> given = {};  // resource -> ids, of other plugins
  std::vector<v1::ClaimResource> claimed = {};
};
struct FakePod {
  std::string pod_namespace;
  std::string name;
  std::vector<FakeContainer> containers;
};

class FakePods {
 public:
  struct Allocation {
    std::vector<std::string> ids;
    v1beta1::ContainerAllocateResponse response;
  };
  using ContainerKey = std::tuple<std::string, std::string, std::string>;  // namespace, pod, name
  using ByResource = std::map<std::string, Allocation>;

  void Add(const FakePod& pod) { pods_.push_back(pod); }
  void Remove(const std::string& pod_namespace, const std::string& pod);

  void Give(const ContainerKey& key, const std::string& resource, Allocation allocation) {
    given_[key][resource] = std::move(allocation);
  }
  std::set<std::string> InUse(const std::string& resource) const;
  ByResource Of(const ContainerKey& key) const;
  // Of a container in whatever namespace.
  Allocation Find(const std::string& pod, const std::string& container,
                  const std::string& resource) const;

  // As PodResources lists them.
  void Fill(v1::ListPodResourcesResponse* response) const;

 private:
  std::vector<FakePod> pods_;
  std::map<ContainerKey, ByResource> given_;
};

}  // namespace gantry::deviceplugin
