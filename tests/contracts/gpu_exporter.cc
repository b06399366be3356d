#include "tests/contracts/gpu_exporter.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include "lib/gpu/gpu_drivers.h"
#include "tests/contracts/gpu_allocations.h"

namespace gantry::testing {
namespace {

constexpr char kFlag[] = "--gpu-exporter";
constexpr int kSocket = 3;
constexpr size_t kMessageMax = 4096;
constexpr int kPatienceSeconds = 30;
constexpr uint64_t kPage = 4096;

// What the other process is.
class Exporter {
 public:
  Result<FdMessage> Answer(const std::string& request) {
    std::istringstream words(request);
    std::string command;
    words >> command;
    if (command != "free" && command != "check") return Make(command, words);
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t seed = 0;
    words >> offset >> bytes >> seed;
    if (command == "free") {
      RETURN_IF_ERROR(allocations_->Free(std::exchange(range_, {})));
    } else {
      RETURN_IF_ERROR(Check(offset, bytes, seed));
    }
    return FdMessage{.payload = "ok", .fds = {}};
  }

 private:
  Result<FdMessage> Make(const std::string& command, std::istringstream& words) {
    int ordinal = 0;
    uint64_t seed = 0;
    words >> ordinal >> seed;
    std::vector<uint64_t> sizes;
    for (uint64_t size = 0; words >> size;) sizes.push_back(size);
    if (driver_ == nullptr) {
      ASSIGN_OR_RETURN(driver_, gpu::LoadGpuDriver());
    }
    if (range_.size != 0) RETURN_IF_ERROR(allocations_->Free(std::exchange(range_, {})));
    ASSIGN_OR_RETURN(context_, driver_->OpenContext(ordinal));
    ASSIGN_OR_RETURN(allocations_, GpuAllocations::On(*context_));
    FdMessage answer;
    if (command != "virtual") {
      for (const uint64_t size : sizes) {
        ASSIGN_OR_RETURN(range_, allocations_->Make(gpu::MemoryOrigin::kDevice, size));
      }
      ASSIGN_OR_RETURN(const gpu::IpcHandle handle,
                       driver_->ExportIpc(range_.base + range_.size / 2));
      answer.payload.assign(reinterpret_cast<const char*>(handle.bytes.data()),
                            handle.bytes.size());
      if (command == "dma-buf") RETURN_IF_ERROR(AppendDmaBuf(answer));
    } else {
      ASSIGN_OR_RETURN(range_, allocations_->MakeVirtual(sizes));
      uint64_t at = 0;
      for (const uint64_t size : sizes) {
        ASSIGN_OR_RETURN(UniqueFd fd, driver_->ExportPiece(range_.base + at));
        answer.fds.push_back(std::move(fd));
        at += size;
      }
      answer.payload = "virtual";
    }
    const std::vector<uint8_t> bytes = Pattern(0, range_.size, seed);
    RETURN_IF_ERROR(context_->CopyFromHost(range_.base, bytes.data(), bytes.size()));
    return answer;
  }

  Status AppendDmaBuf(FdMessage& answer) {
    const uint64_t pages = (range_.size + kPage - 1) / kPage * kPage;
    ASSIGN_OR_RETURN(gpu::DmaBufExport exported, driver_->ExportDmaBuf({range_.base, pages}));
    answer.payload.append(reinterpret_cast<const char*>(&exported.offset), sizeof(exported.offset));
    answer.fds.push_back(std::move(exported.fd));
    return {};
  }

  Status Check(uint64_t offset, uint64_t bytes, uint64_t seed) {
    std::vector<uint8_t> found(bytes);
    RETURN_IF_ERROR(context_->CopyToHost(found.data(), range_.base + offset, bytes));
    for (uint64_t i = 0; i < bytes; ++i) {
      if (found[i] != PatternAt(offset + i, seed)) {
        return Fail(ErrorCode::kInternal, "byte " + std::to_string(offset + i) + " is wrong");
      }
    }
    return {};
  }

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::unique_ptr<gpu::GpuContext> context_;
  std::unique_ptr<GpuAllocations> allocations_;
  gpu::AddressRange range_;
};

}  // namespace

std::vector<uint8_t> Pattern(uint64_t offset, uint64_t bytes, uint64_t seed) {
  std::vector<uint8_t> made(bytes);
  for (uint64_t i = 0; i < bytes; ++i) made[i] = PatternAt(offset + i, seed);
  return made;
}

bool GpuExporter::IsExporter(int argc, char** argv) {
  return argc == 2 && std::strcmp(argv[1], kFlag) == 0;
}

int GpuExporter::Run() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Exporter exporter;
  for (;;) {
    auto request = ReceiveMessage(kSocket, kMessageMax);
    if (!request || request->closed) return 0;
    auto answer = exporter.Answer(request->payload);
    const std::string payload = answer ? answer->payload : "error " + answer.error().message;
    std::vector<int> fds;
    for (size_t i = 0; answer && i < answer->fds.size(); ++i) fds.push_back(answer->fds[i].get());
    if (!SendMessage(kSocket, payload, fds)) return 1;
  }
}

Result<GpuExporter> GpuExporter::Start() {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "socketpair", errno));
  }
  UniqueFd mine(sockets[0]);
  const UniqueFd theirs(sockets[1]);
  const timeval patience = {kPatienceSeconds, 0};
  ::setsockopt(mine.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), kSocket);
  std::string program = "/proc/self/exe";
  std::string flag = kFlag;
  char* arguments[] = {program.data(), flag.data(), nullptr};
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Fail(SystemError(ErrorCode::kInternal, "posix_spawn", failed));
  return GpuExporter(pid, std::move(mine));
}

GpuExporter::GpuExporter(GpuExporter&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::move(other.socket_)) {}

GpuExporter::~GpuExporter() { Kill(); }

void GpuExporter::Kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

Result<FdMessage> GpuExporter::Exchange(const std::string& request) {
  RETURN_IF_ERROR(SendMessage(socket_.get(), request, {}));
  ASSIGN_OR_RETURN(FdMessage answer, ReceiveMessage(socket_.get(), kMessageMax));
  if (answer.closed || answer.payload.starts_with("error ")) {
    return Fail(ErrorCode::kInternal,
                "the exporter says: " + (answer.closed ? "nothing" : answer.payload));
  }
  return answer;
}

Result<Exported> GpuExporter::MakeDevice(int ordinal, uint64_t bytes, uint64_t seed,
                                         int neighbours) {
  return MakeOne("device ", ordinal, bytes, seed, neighbours);
}

Result<Exported> GpuExporter::MakeDmaBuf(int ordinal, uint64_t bytes, uint64_t seed,
                                         int neighbours) {
  return MakeOne("dma-buf ", ordinal, bytes, seed, neighbours);
}

Result<Exported> GpuExporter::MakeOne(const std::string& command, int ordinal, uint64_t bytes,
                                      uint64_t seed, int neighbours) {
  std::string request = command + std::to_string(ordinal) + " " + std::to_string(seed);
  for (int i = 0; i <= neighbours; ++i) request += " " + std::to_string(bytes);
  ASSIGN_OR_RETURN(FdMessage answer, Exchange(request));
  Exported exported;
  exported.size = bytes;
  const size_t handle_bytes = exported.handle.bytes.size();
  const size_t offset_bytes = answer.fds.empty() ? 0 : sizeof(exported.offset);
  if (answer.payload.size() != handle_bytes + offset_bytes)
    return Fail(ErrorCode::kInternal, "no handle came");
  std::memcpy(exported.handle.bytes.data(), answer.payload.data(), handle_bytes);
  if (offset_bytes == 0) return exported;
  std::memcpy(&exported.offset, answer.payload.data() + handle_bytes, offset_bytes);
  exported.dma_buf = std::move(answer.fds.front());
  return exported;
}

Result<Exported> GpuExporter::MakeVirtual(int ordinal, const std::vector<uint64_t>& pieces,
                                          uint64_t seed) {
  std::string request = "virtual " + std::to_string(ordinal) + " " + std::to_string(seed);
  Exported exported;
  for (const uint64_t size : pieces) {
    request += " " + std::to_string(size);
    exported.size += size;
  }
  ASSIGN_OR_RETURN(FdMessage answer, Exchange(request));
  exported.fds = std::move(answer.fds);
  return exported;
}

Status GpuExporter::Check(uint64_t offset, uint64_t bytes, uint64_t seed) {
  RETURN_IF_ERROR(Exchange("check " + std::to_string(offset) + " " + std::to_string(bytes) + " " +
                           std::to_string(seed)));
  return {};
}

Status GpuExporter::Free() {
  RETURN_IF_ERROR(Exchange("free"));
  return {};
}

}  // namespace gantry::testing
