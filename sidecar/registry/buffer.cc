#include "sidecar/registry/buffer.h"

#include <algorithm>
#include <utility>

namespace gantry::registry {

std::string_view NameOf(BufferState state) {
  switch (state) {
    case BufferState::kActive:
      return "active";
    case BufferState::kSuspended:
      return "suspended";
    case BufferState::kDraining:
      return "draining";
    case BufferState::kGone:
      break;
  }
  return "gone";
}

Buffer::NicRegistration Buffer::WithoutNics() {
  return Fail(ErrorCode::kPathUnavailable, "this sidecar uses no RDMA device");
}

Buffer::Buffer(Description description, Allocations allocations, NicRegistration nic_registration)
    : description_(std::move(description)),
      backing_(std::make_shared<const Backing>(
          Backing{std::move(allocations), std::move(nic_registration)})) {}

BufferState Buffer::state() const {
  MutexLock lock(mutex_);
  return state_;
}

size_t Buffer::uses() const {
  MutexLock lock(mutex_);
  return users_.size();
}

std::string Buffer::WhyNotOnNics() const {
  MutexLock lock(mutex_);
  if (backing_ == nullptr || backing_->nic_registration) return {};
  return backing_->nic_registration.error().message;
}

std::vector<std::string> Buffer::Users(size_t limit) const {
  std::vector<std::string> users;
  MutexLock lock(mutex_);
  for (const std::string& user : users_) {
    if (users.size() == limit) break;
    users.push_back(user);
  }
  return users;
}

Result<Buffer::Use> Buffer::Acquire(std::shared_ptr<Buffer> buffer, std::string_view user) {
  Buffer& self = *buffer;
  MutexLock lock(self.mutex_);
  if (self.state_ != BufferState::kActive) {
    return Fail(ErrorCode::kDraining,
                "buffer '" + self.description_.name + "' of workload '" +
                    self.description_.workload + "' is " + std::string(NameOf(self.state_)),
                self.state_ == BufferState::kSuspended ? "resume it first" : "register it again");
  }
  if (self.spare_.empty()) self.spare_.emplace_front();
  self.spare_.front() = user;
  self.users_.splice(self.users_.begin(), self.spare_, self.spare_.begin());
  return Use(std::move(buffer), self.backing_, self.users_.begin());
}

Result<Buffer::Use> Buffer::Acquire(std::string_view user) {
  return Acquire(shared_from_this(), user);
}

void Buffer::EndUse(std::list<std::string>::iterator user) {
  MutexLock lock(mutex_);
  if (spare_.size() < kSpareMax) {
    spare_.splice(spare_.begin(), users_, user);
  } else {
    users_.erase(user);
  }
  if (users_.empty()) changed_.NotifyAll();
}

bool Buffer::StopUses(BufferState next) {
  MutexLock lock(mutex_);
  if (state_ == BufferState::kGone) return false;
  if (state_ == BufferState::kDraining) return next == BufferState::kDraining;
  state_ = next;
  changed_.NotifyAll();
  return true;
}

bool Buffer::AwaitUnused(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (state_ != BufferState::kActive && !users_.empty() && !waits_ended_) {
    if (!changed_.WaitUntil(lock, deadline)) break;
  }
  return state_ != BufferState::kActive && users_.empty();
}

void Buffer::EndWaits() {
  MutexLock lock(mutex_);
  waits_ended_ = true;
  changed_.NotifyAll();
}

// A buffer that is resumed meanwhile has other regions.
bool Buffer::RefuseToPeers() const {
  std::shared_ptr<const Backing> backing;
  {
    const MutexLock lock(mutex_);
    if (state_ == BufferState::kActive || !users_.empty()) return false;
    backing = backing_;
  }
  return backing == nullptr || !backing->nic_registration ||
         (*backing->nic_registration)->Deregister();
}

bool Buffer::Release(Status* on_devices) {
  std::shared_ptr<const Backing> released;  // its end unmaps
  bool is_gone = false;
  {
    const MutexLock lock(mutex_);
    if (state_ == BufferState::kActive || state_ == BufferState::kGone || !users_.empty()) {
      return false;
    }
    released = std::exchange(backing_, nullptr);
    is_gone = state_ == BufferState::kDraining;
    if (is_gone) state_ = BufferState::kGone;
  }
  if (released != nullptr && released->nic_registration) {
    *on_devices = (*released->nic_registration)->Deregister();
  }
  return is_gone;
}

bool Buffer::Resume(Allocations allocations, NicRegistration nic_registration) {
  auto resumed =
      std::make_shared<const Backing>(Backing{std::move(allocations), std::move(nic_registration)});
  MutexLock lock(mutex_);
  if (state_ != BufferState::kSuspended) return false;
  std::swap(backing_, resumed);
  state_ = BufferState::kActive;
  changed_.NotifyAll();
  return true;
}

bool Buffer::IsAsleep() const {
  MutexLock lock(mutex_);
  return state_ == BufferState::kSuspended && backing_ == nullptr;
}

Buffer::Use::Use(std::shared_ptr<Buffer> buffer, std::shared_ptr<const Backing> backing,
                 std::list<std::string>::iterator user)
    : buffer_(std::move(buffer)), backing_(std::move(backing)), user_(user) {}

Buffer::Use& Buffer::Use::operator=(Use&& other) noexcept {
  if (this == &other) return *this;
  End();
  buffer_ = std::move(other.buffer_);
  backing_ = std::move(other.backing_);
  user_ = other.user_;
  return *this;
}

Buffer::Use::~Use() { End(); }

void Buffer::Use::End() {
  if (buffer_ == nullptr) return;
  // First the mappings, then the count: whoever waits for the count unmaps.
  backing_.reset();
  buffer_->EndUse(user_);
  buffer_.reset();
}

}  // namespace gantry::registry
