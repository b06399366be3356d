// What every function of gantry.h does on its way in and out: nothing is thrown across the border,
// a child of fork is turned away, and the calling thread is not cancelled in the middle.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "client/include/gantry.h"
#include "client/session/workload_session.h"
#include "lib/base/result.h"

struct gantry_error {
  std::string code;
  std::string message;
  std::string hint;
  std::string field;
};

struct gantry_client {
  std::shared_ptr<gantry::client::WorkloadSession> session;
};

struct gantry_arena {
  std::shared_ptr<gantry::client::WorkloadSession> session;
  std::shared_ptr<gantry::client::Arena> arena;
  std::atomic<bool> holds{false};  // of adopted private memory, until it is closed
};

struct gantry_buffer {
  std::shared_ptr<gantry::client::WorkloadSession> session;
  gantry::client::BufferPointer buffer;
};

struct gantry_view {
  std::shared_ptr<gantry::client::WorkloadSession> session;
  std::shared_ptr<gantry::client::ViewRecord> record;
};

struct gantry_transfer {
  std::shared_ptr<gantry::client::WorkloadSession> session;
  std::shared_ptr<gantry::client::TransferRecord> record;
};

namespace gantry::client {

// The error for when there is no memory for an error; never freed.
gantry_error* OutOfMemory() noexcept;
gantry_error* ToC(const Error& error);

// pthread_cancel would unwind through code that catches everything; it waits until the end.
class NoCancellation {
 public:
  NoCancellation() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { ::pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = 0;
};

// Runs `work`, which returns a Status, and makes what comes of it an answer in C.
template <typename Work>
gantry_error* Enter(Work work) noexcept {
  const NoCancellation no_cancellation;
  try {
    Status status;
    try {
      status = work();
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    } catch (const std::exception& failure) {
      status = Fail(ErrorCode::kInternal, failure.what());
    } catch (...) {
      status = Fail(ErrorCode::kInternal, "an unknown exception");
    }
    return status ? nullptr : ToC(status.error());
  } catch (...) {
    return OutOfMemory();
  }
}

// The same for a function of an object, which may be NULL or made before a fork.
template <typename Object, typename Work>
gantry_error* EnterObject(const Object* object, Work work) noexcept {
  return Enter([&]() -> Status {
    if (object == nullptr) return Fail(ErrorCode::kInvalidArgument, "the object is NULL");
    if (object->session->owner() != ::getpid()) {
      return Fail(ErrorCode::kPermissionDenied,
                  "the client belongs to process " + std::to_string(object->session->owner()) +
                      ", this is its child " + std::to_string(::getpid()),
                  "open a client of its own in each process");
    }
    return work();
  });
}

// Frees an object after `work`; in a child of fork it stays as it is.
template <typename Object, typename Work>
void Destroy(Object* object, Work work) noexcept {
  if (object == nullptr || object->session->owner() != ::getpid()) return;
  gantry_error_destroy(Enter([&]() -> Status { return work(); }));
  const NoCancellation no_cancellation;
  delete object;
}

}  // namespace gantry::client
