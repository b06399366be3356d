#include "lib/gpu/shared/owned_memory.h"

#include <utility>

#include "lib/base/log.h"

namespace gantry::gpu {

OwnedMemory::OwnedMemory(AddressRange range, std::string_view left, GiveBack give_back)
    : range_(range), left_(left), give_back_(std::move(give_back)) {}

OwnedMemory::~OwnedMemory() {
  const Status given = Unregister();
  if (!given) log::Warning(left_, {{"error", given.error()}});
}

Status OwnedMemory::Unregister() {
  const GiveBack give_back = std::exchange(give_back_, nullptr);
  return give_back ? give_back() : Status();
}

}  // namespace gantry::gpu
