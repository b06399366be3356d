// The mailboxes that a server gives out, so few that what clients keep of them is bounded: memory
// that a server has touched counts as its own for as long as anybody has it. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/log_gate.h"
#include "lib/base/mailbox.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry {

class MailboxStore {
 public:
  // Who had one may still read the last message or take one back: for so long it is left alone.
  static constexpr milliseconds kRest{1'000};

  explicit MailboxStore(size_t most);

  // The server's end; where it goes, the memory is freed after kRest, whoever has it still. One of
  // no store is only deleted.
  struct Retire {
    Retire() : store(nullptr) {}
    explicit Retire(MailboxStore* store_in) : store(store_in) {}
    MailboxStore* store;
    void operator()(Mailbox* end) const { store != nullptr ? store->Rest(end) : delete end; }
  };
  using End = std::unique_ptr<Mailbox, Retire>;
  struct Opened {
    End end;
    UniqueFd memory;  // for the client
  };
  // kResourceExhausted where so many are in use or at rest. The store outlives what it gives out.
  Result<Opened> Open() EXCLUDES(mutex_);
  // How many there are to be had now, or soon: those at rest, too.
  size_t left() const EXCLUDES(mutex_);
  // Those that have rested; called now and then.
  void FreeRested() EXCLUDES(mutex_);

 private:
  struct Resting {
    std::unique_ptr<Mailbox> end;
    TimePoint until;
  };
  void Rest(Mailbox* end) EXCLUDES(mutex_);

  const size_t most_;
  mutable Mutex mutex_;
  log::Gate refused_ GUARDED_BY(mutex_);
  size_t in_use_ GUARDED_BY(mutex_) = 0;
  std::vector<Resting> resting_ GUARDED_BY(mutex_);  // the first to end first
};

}  // namespace gantry
