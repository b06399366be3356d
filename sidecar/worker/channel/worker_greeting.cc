#include "sidecar/worker/channel/worker_greeting.h"

#include <sstream>
#include <utility>

namespace gantry::worker {
namespace {

const std::string kNowhere = "-";  // stands for an address that is not known

}  // namespace

std::string TextOf(const Greeting& greeting, size_t bytes_max) {
  std::string text = std::to_string(greeting.memory.free) + " " +
                     std::to_string(greeting.memory.total) +
                     (greeting.sharing.one_attach_at_a_time ? " 1" : " 0") +
                     (greeting.sharing.handles_stay_in_pod ? " 1" : " 0");
  for (const Greeting::Gpu& gpu : greeting.gpus) {
    const std::string next = " " + gpu.uuid + (gpu.reached ? " 1 " : " 0 ") +
                             (gpu.pci_address.empty() ? kNowhere : gpu.pci_address);
    if (text.size() + next.size() > bytes_max) break;
    text += next;
  }
  return text;
}

Greeting GreetingOf(Status status, const std::string& said) {
  Greeting greeting;
  greeting.status = std::move(status);
  if (!greeting.status) return greeting;
  std::istringstream words(said);
  words >> greeting.memory.free >> greeting.memory.total;
  words >> greeting.sharing.one_attach_at_a_time >> greeting.sharing.handles_stay_in_pod;
  for (Greeting::Gpu gpu; words >> gpu.uuid >> gpu.reached >> gpu.pci_address;) {
    if (gpu.pci_address == kNowhere) gpu.pci_address.clear();
    greeting.gpus.push_back(gpu);
  }
  return greeting;
}

}  // namespace gantry::worker
