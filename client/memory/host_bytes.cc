#include "client/memory/host_bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "client/memory/sealed_memfd.h"
#include "lib/base/random_id.h"

namespace gantry::client {
namespace {

// Repeats a call that a signal interrupted; what is moved in part counts as a failure.
template <typename Call>
bool MovesAll(size_t bytes, Call call) {
  ssize_t moved = 0;
  do {
    moved = call();
  } while (moved < 0 && errno == EINTR);
  return moved == static_cast<ssize_t>(bytes);
}

tl::unexpected<Error> CannotBe(const char* what, const void* at, size_t bytes) {
  return Fail(ErrorCode::kFdReadOnly,
              std::to_string(bytes) + " bytes at 0x" + HexOf(reinterpret_cast<uintptr_t>(at)) +
                  " cannot be " + what + " in this process",
              "keep the arena mapped readable and writable while a buffer in it is verified, or "
              "register it without");
}

}  // namespace

Result<HostBytes> HostBytes::Create() {
  UniqueFd file = NewMemfd("gantry-bytes", MFD_CLOEXEC);
  if (!file.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "memfd_create", errno));
  return HostBytes(std::move(file));
}

Status HostBytes::Read(void* to, const void* from, size_t bytes) const {
  if (!MovesAll(bytes, [&] { return ::pwrite(file_.get(), from, bytes, 0); })) {
    return CannotBe("read", from, bytes);
  }
  if (MovesAll(bytes, [&] { return ::pread(file_.get(), to, bytes, 0); })) return {};
  return Fail(SystemError(ErrorCode::kInternal, "reading a memfd", errno));
}

Status HostBytes::Write(void* to, const void* from, size_t bytes) const {
  if (!MovesAll(bytes, [&] { return ::pwrite(file_.get(), from, bytes, 0); })) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "writing a memfd", errno));
  }
  if (MovesAll(bytes, [&] { return ::pread(file_.get(), to, bytes, 0); })) return {};
  return CannotBe("written", to, bytes);
}

}  // namespace gantry::client
