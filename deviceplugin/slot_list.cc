#include "deviceplugin/slot_list.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace gantry::deviceplugin {
namespace {

std::vector<std::string> NamesOf(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    std::array<char, 32> name = {};
    std::snprintf(name.data(), name.size(), "slot-%03d", i);
    names.emplace_back(name.data());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

SlotList::SlotList(int count) : names_(NamesOf(count)) {}

bool SlotList::IsName(std::string_view slot) {
  static const auto* const all = new std::vector<std::string>(NamesOf(kSlotsMax));
  return std::binary_search(all->begin(), all->end(), slot);
}

bool SlotList::Knows(std::string_view slot) const {
  return std::binary_search(names_.begin(), names_.end(), slot);
}

void SlotList::SetHealthy(bool healthy) {
  const MutexLock lock(mutex_);
  if (healthy_ == healthy) return;
  healthy_ = healthy;
  ++version_;
  changed_.NotifyAll();
}

bool SlotList::healthy() const {
  const MutexLock lock(mutex_);
  return healthy_;
}

void SlotList::Wake() {
  const MutexLock lock(mutex_);
  ++version_;
  changed_.NotifyAll();
}

uint64_t SlotList::version() const {
  const MutexLock lock(mutex_);
  return version_;
}

void SlotList::AwaitChange(uint64_t version, TimePoint deadline) {
  MutexLock lock(mutex_);
  while (version_ == version) {
    if (!changed_.WaitUntil(lock, deadline)) return;
  }
}

}  // namespace gantry::deviceplugin
