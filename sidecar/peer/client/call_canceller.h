// Cancels a client's calls from another thread: those in flight and all later ones. Thread-safe.
#pragma once

#include <grpcpp/client_context.h>

#include <set>

#include "lib/base/mutex.h"

namespace gantry::peer {

class CallCanceller {
 public:
  // Registers a call: Cancel reaches it while this lives.
  class Call {
   public:
    Call(CallCanceller& canceller, grpc::ClientContext& context)
        : canceller_(canceller), context_(context) {
      const MutexLock lock(canceller_.mutex_);
      canceller_.calls_.insert(&context_);
      if (canceller_.cancelled_) context_.TryCancel();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      const MutexLock lock(canceller_.mutex_);
      canceller_.calls_.erase(&context_);
    }

   private:
    CallCanceller& canceller_;
    grpc::ClientContext& context_;
  };

  void Cancel() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* call : calls_) call->TryCancel();
  }
  bool cancelled() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return cancelled_;
  }

 private:
  mutable Mutex mutex_;
  std::set<grpc::ClientContext*> calls_ GUARDED_BY(mutex_);
  bool cancelled_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
