#include "lib/base/mailbox_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lib/base/log.h"

namespace gantry {

// An end that goes needs no memory to rest.
MailboxStore::MailboxStore(size_t most) : most_(most) { resting_.reserve(most); }

Result<MailboxStore::Opened> MailboxStore::Open() {
  FreeRested();
  const MutexLock lock(mutex_);
  if (in_use_ + resting_.size() >= most_) {
    if (const auto untold = refused_.Pass()) {
      log::Info("a client goes without a mailbox: all are in use",
                {{"mailboxes_max", most_}, {"more_since_the_last_line", *untold}});
    }
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(most_) + " mailboxes are in use, or were a second ago",
                "go on over the socket");
  }
  ASSIGN_OR_RETURN(UniqueFd memory, Mailbox::CreateMemory());
  ASSIGN_OR_RETURN(Mailbox end, Mailbox::Map(memory.get(), Mailbox::End::kServer));
  Opened opened{End(new Mailbox(std::move(end)), Retire{this}), std::move(memory)};
  ++in_use_;
  return opened;
}

size_t MailboxStore::left() const {
  const MutexLock lock(mutex_);
  return most_ - in_use_;
}

void MailboxStore::Rest(Mailbox* end) {
  end->StopLooking();
  const MutexLock lock(mutex_);
  --in_use_;
  resting_.push_back({std::unique_ptr<Mailbox>(end), Clock::now() + kRest});
}

void MailboxStore::FreeRested() {
  const MutexLock lock(mutex_);
  const TimePoint now = Clock::now();
  const auto rested =
      std::ranges::find_if(resting_, [now](const Resting& one) { return one.until > now; });
  for (auto one = resting_.begin(); one != rested; ++one) one->end->FreeMemory();
  resting_.erase(resting_.begin(), rested);
}

}  // namespace gantry
