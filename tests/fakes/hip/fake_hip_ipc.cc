// libamdhip64 of machines without a GPU: handles for other processes. One names an address, and not
// an allocation. HSA_ENABLE_IPC_MODE_LEGACY=0 has descriptors sent over a socket of the exporter's,
// which has its PID for a name and is seen within a network namespace; else the kernel knows them.
// GANTRY_FAKE_GPU_FAIL may have handles_vary=1: no two handles are equal.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lib/base/fd_passing.h"
#include "tests/fakes/hip/fake_hip.h"
#include "tests/fakes/hip/fake_hip_attach.h"

namespace gantry::fake_hip {

using fake_gpu::MemoryName;

namespace {

constexpr std::chrono::milliseconds kWindow{50};  // for as long an attach is under way

// Whether another process of the test's attaches something now; if not, none that asks within the
// window may do so well.
bool IsBesideAnother() {
  const char* const folder = ::getenv("GANTRY_FAKE_GPU_DIR");
  const std::string path = std::string(folder == nullptr ? "/tmp" : folder) + "/attaching";
  const UniqueFd file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return true;
  std::this_thread::sleep_for(kWindow);
  return false;
}

}  // namespace

hip::Result Attach(FakeContext& context, MemoryName name, UniqueFd file, Address* address) {
  static std::mutex mutex;
  static std::vector<std::pair<MemoryName, int>> under_way;  // with descriptors that stay theirs
  const bool mix = Gpus().SettingOf("concurrent_attaches_mix") != 0;
  if (Gpus().SettingOf("attaches_are_wrong") != 0 ||
      (Gpus().SettingOf("attaches_beside_others_are_wrong") != 0 && IsBesideAnother())) {
    file = UniqueFd(::memfd_create("nobody's", MFD_CLOEXEC));
    if (::ftruncate(file.get(), static_cast<off_t>(name.lead + name.bytes)) != 0)
      return hip::kOutOfMemory;
  }
  if (mix) {
    {
      const std::lock_guard lock(mutex);
      if (!under_way.empty() && under_way.back().first.bytes >= name.bytes) {
        name.lead = under_way.back().first.lead;
        file = UniqueFd(fake_gpu::Duplicate(under_way.back().second));
      }
      under_way.emplace_back(name, file.get());
    }
    std::this_thread::sleep_for(kWindow);
    const std::lock_guard lock(mutex);
    std::erase_if(under_way, [&](const auto& other) { return other.second == file.get(); });
  }
  // A GPU that this process does not see has no peer access that could be enabled.
  const bool is_seen = GpuAt(fake_gpu::OrdinalOf(name.gpu)) == name.gpu;
  return Memory().Attach(name, std::move(file), {is_seen ? -1 : context.gpu, /*is_shared=*/false},
                         address);
}

namespace {

bool IsLegacy() {
  const char* const mode = ::getenv("HSA_ENABLE_IPC_MODE_LEGACY");
  return mode == nullptr || std::string_view(mode) != "0";
}

constexpr size_t kMessageMax = 256;

sockaddr_un SocketOf(int pid, socklen_t* length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // An abstract one: its first byte is zero.
  const int written =
      std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "xhsa%i", pid);
  *length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(written));
  return address;
}

// Sends descriptors of this process's memory to whoever asks.
class Exporter {
 public:
  static void Begin() {
    static std::mutex mutex;
    static int begun_by = -1;
    const std::lock_guard lock(mutex);
    if (begun_by == ::getpid()) return;  // a child has no thread
    begun_by = ::getpid();
    socklen_t length = 0;
    const sockaddr_un address = SocketOf(begun_by, &length);
    UniqueFd listens(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (::bind(listens.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(listens.get(), SOMAXCONN) != 0) {
      return;
    }
    std::thread(Serve, listens.release()).detach();
  }

 private:
  static void Serve(int listens) {
    std::vector<UniqueFd> waiting;  // for ever: whoever asked for what is not there any more
    for (;;) {
      UniqueFd asks(::accept4(listens, nullptr, nullptr, SOCK_CLOEXEC));
      if (!asks.valid()) return;
      const auto request = ReceiveMessage(asks.get(), kMessageMax);
      if (!request || request->closed) continue;
      const UniqueFd file = Memory().Lend(request->payload);
      if (file.valid()) {
        const int sent[] = {file.get()};
        static_cast<void>(SendMessage(asks.get(), "here", sent));
      } else {
        waiting.push_back(std::move(asks));
      }
    }
  }
};

UniqueFd Fetch(const MemoryName& name) {
  socklen_t length = 0;
  const sockaddr_un address = SocketOf(name.exporter, &length);
  const UniqueFd asks(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(asks.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return {};
  if (!SendMessage(asks.get(), name.file, {})) return {};
  auto answer = ReceiveMessage(asks.get(), kMessageMax);  // when the exporter has freed it, never
  return !answer || answer->fds.empty() ? UniqueFd() : std::move(answer->fds.front());
}

}  // namespace
}  // namespace gantry::fake_hip

using namespace gantry::fake_hip;
namespace hip = gantry::gpu::hip;
namespace fake_gpu = gantry::fake_gpu;

extern "C" {

hip::Result hipIpcGetMemHandle(hip::IpcMemHandle* handle, void* address) {
  return CallOnDevice("hipIpcGetMemHandle", [&](FakeContext&) {
    fake_gpu::MemoryName name;
    const hip::Result result = Memory().NameOf(AddressOf(address), &name);
    if (result != hip::kSuccess) return result;
    Encode(name, handle->reserved);
    if (Gpus().SettingOf("handles_vary") != 0) {
      // Behind the name, which is no text to anybody who reads it to its end.
      static std::atomic<uint16_t> last = 0;
      const uint16_t number = ++last;
      std::memcpy(handle->reserved + sizeof(handle->reserved) - 1 - sizeof(number), &number,
                  sizeof(number));
    }
    if (!IsLegacy()) Exporter::Begin();
    return hip::kSuccess;
  });
}
hip::Result hipIpcOpenMemHandle(void** address, hip::IpcMemHandle handle, unsigned flags) {
  return CallOnDevice("hipIpcOpenMemHandle", [&](FakeContext& context) -> hip::Result {
    fake_gpu::MemoryName name;
    if (flags != hip::LazyEnablePeerAccessOf(kVersion) || !Decode(handle.reserved, &name)) {
      return hip::kInvalidValue;
    }
    if (name.exporter == ::getpid()) return hip::kInvalidContext;
    if (!Gpus().Reaches(context.gpu, name.gpu)) return fake_gpu::kPeerAccessUnsupported;
    gantry::UniqueFd file = IsLegacy() ? Gpus().Open(name.gpu, name.file) : Fetch(name);
    if (!file.valid()) return hip::kInvalidDevicePointer;
    Address base = 0;
    const hip::Result attached = Attach(context, name, std::move(file), &base);
    *address = PointerTo(base + name.offset);
    return attached;
  });
}
hip::Result hipIpcCloseMemHandle(void* address) {
  return CallOnDevice("hipIpcCloseMemHandle", [&](FakeContext&) {
    const auto block = Memory().Around(AddressOf(address));
    return block ? Memory().Detach(block->base) : hip::kInvalidValue;
  });
}

}  // extern "C"
