#include "tests/deviceplugin/fake_pods.h"

#include <algorithm>

namespace gantry::deviceplugin {
namespace {

void FillDevices(const std::string& resource, const std::vector<std::string>& ids,
                 v1::ContainerResources* container) {
  auto* const devices = container->add_devices();
  devices->set_resource_name(resource);
  for (const std::string& id : ids) devices->add_device_ids(id);
}

}  // namespace

void FakePods::Remove(const std::string& pod_namespace, const std::string& pod) {
  std::erase_if(pods_, [&](const FakePod& other) {
    return other.pod_namespace == pod_namespace && other.name == pod;
  });
  std::erase_if(given_, [&](const auto& entry) {
    return std::get<0>(entry.first) == pod_namespace && std::get<1>(entry.first) == pod;
  });
}

std::set<std::string> FakePods::InUse(const std::string& resource) const {
  std::set<std::string> ids;
  for (const auto& [key, by_resource] : given_) {
    const auto found = by_resource.find(resource);
    if (found != by_resource.end()) ids.insert(found->second.ids.begin(), found->second.ids.end());
  }
  return ids;
}

FakePods::ByResource FakePods::Of(const ContainerKey& key) const {
  const auto found = given_.find(key);
  return found == given_.end() ? ByResource() : found->second;
}

FakePods::Allocation FakePods::Find(const std::string& pod, const std::string& container,
                                    const std::string& resource) const {
  for (const auto& [key, by_resource] : given_) {
    const auto found = by_resource.find(resource);
    if (std::get<1>(key) == pod && std::get<2>(key) == container && found != by_resource.end()) {
      return found->second;
    }
  }
  return {};
}

void FakePods::Fill(v1::ListPodResourcesResponse* response) const {
  for (const FakePod& pod : pods_) {
    auto* const listed = response->add_pod_resources();
    listed->set_name(pod.name);
    listed->set_namespace_(pod.pod_namespace);
    for (const FakeContainer& container : pod.containers) {
      auto* const entry = listed->add_containers();
      entry->set_name(container.name);
      for (const auto& [resource, allocation] : Of({pod.pod_namespace, pod.name, container.name})) {
        FillDevices(resource, allocation.ids, entry);
      }
      for (const auto& [resource, ids] : container.given) FillDevices(resource, ids, entry);
      for (const auto& claimed : container.claimed) {
        *entry->add_dynamic_resources()->add_claim_resources() = claimed;
      }
    }
  }
}

}  // namespace gantry::deviceplugin
