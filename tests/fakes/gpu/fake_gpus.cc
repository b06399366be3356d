#include "tests/fakes/gpu/fake_gpus.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <random>
#include <sstream>

namespace gantry::fake_gpu {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr int kHangs = -2;  // as a failure of a call

std::string Setting(const char* name, const std::string& otherwise) {
  const char* text = ::getenv(name);
  return text == nullptr ? otherwise : text;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// A process that has ended keeps no lock: the owner has the first byte of a file, whoever else uses
// the memory a share of the second.
constexpr off_t kOwnerByte = 0;
constexpr off_t kUserByte = 1;
constexpr char kFreed[] = "freed-";  // before the name of what its owner gave up

struct flock LockOf(short type, off_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

bool Lock(int fd, short type, off_t byte) {
  struct flock lock = LockOf(type, byte);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool IsLocked(int fd, off_t byte) {
  struct flock lock = LockOf(F_WRLCK, byte);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

int Duplicate(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }

std::vector<int> ChosenBy(const char* variable, const std::vector<int>& all) {
  const char* const text = ::getenv(variable);
  if (text == nullptr) return all;
  std::vector<int> chosen;
  for (const std::string& part : Split(text)) {
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const size_t index = is_number ? static_cast<size_t>(std::atoi(part.c_str())) : all.size();
    if (index >= all.size()) break;
    chosen.push_back(all[index]);
  }
  return chosen;
}

FakeGpus& FakeGpus::Instance() {
  static FakeGpus* const gpus = new FakeGpus;  // outlives every other static
  return *gpus;
}

FakeGpus::FakeGpus()
    : folder_(Setting("GANTRY_FAKE_GPU_DIR", "/nonexistent")),
      late_failures_(folder_ + "/failures"),
      gpus_(std::stoi(Setting("GANTRY_FAKE_GPUS", "2"))),
      memory_bytes_(std::stoull(Setting("GANTRY_FAKE_GPU_MIB", "4096")) * kMiB),
      context_bytes_(std::stoull(Setting("GANTRY_FAKE_CONTEXT_MIB", "64")) * kMiB),
      peer_access_(Setting("GANTRY_FAKE_PEER_ACCESS", "1") != "0") {
  visible_ = ChosenGpus(gpus_);
  const std::string devices = Setting("GANTRY_FAKE_GPU_DEV", "");
  std::erase_if(visible_, [&](int gpu) {
    const std::string device = devices + "/" + DeviceFileOf(gpu);
    return !devices.empty() && ::access(device.c_str(), F_OK) != 0;
  });
  for (const std::string& part : Split(Setting("GANTRY_FAKE_GPU_FAIL", ""))) {
    const size_t equals = part.find('=');
    failures_[part.substr(0, equals)] = std::stoi(part.substr(equals + 1));
  }
  for (const std::string& part : Split(Setting("GANTRY_FAKE_GPU_SPEEDS", ""))) {
    const size_t equals = part.find('=');
    speeds_[part.substr(0, equals)] = std::stod(part.substr(equals + 1));
  }
}

double FakeGpus::SpeedOf(std::string_view name) const {
  const auto found = speeds_.find(name);
  return found == speeds_.end() ? 0 : found->second;
}

int FakeGpus::SettingOf(std::string_view call) const {
  const auto found = failures_.find(call);
  return found == failures_.end() ? 0 : found->second;
}

int FakeGpus::FailureOf(std::string_view call) const {
  int failure = SettingOf(call);
  if (failure == 0) failure = LateFailureOf(call);
  while (failure == kHangs) ::pause();
  if (failure < 0) ::abort();  // a driver that ends its process
  return failure;
}

int FakeGpus::LateFailureOf(std::string_view call) const {
  const UniqueFd file(::open(late_failures_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return 0;
  char content[512] = {};
  const ssize_t length = ::read(file.get(), content, sizeof(content) - 1);
  std::string_view rest(content, length > 0 ? static_cast<size_t>(length) : 0);
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part.starts_with(call) && part.substr(call.size()).starts_with('=')) {
      return std::atoi(part.data() + call.size() + 1);
    }
  }
  return 0;
}

std::string FakeGpus::FolderOf(int gpu) const { return folder_ + "/gpu" + std::to_string(gpu); }

UniqueFd FakeGpus::Create(int gpu, uint64_t bytes, std::string* name) {
  static std::atomic<uint64_t> last = 0;
  // Whoever comes first: a GPU is every user's.
  if (::mkdir(FolderOf(gpu).c_str(), 0777) == 0) ::chmod(FolderOf(gpu).c_str(), 0777);
  // One at a time: what is free is not given away twice.
  const std::string turn = FolderOf(gpu) + "/.turn";
  const UniqueFd one(::open(turn.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!one.valid()) return {};
  ::fchmod(one.get(), 0666);  // refused where it is another user's, who has done so
  struct flock lock = LockOf(F_WRLCK, kOwnerByte);
  while (::fcntl(one.get(), F_OFD_SETLKW, &lock) != 0 && errno == EINTR) continue;
  if (!Take(one.get(), gpu, bytes)) return {};
  static const uint32_t life = std::random_device()();  // a PID is not unique: there are namespaces
  *name = std::to_string(::getpid()) + "-" + std::to_string(life) + "-" + std::to_string(++last);
  // Under another name until it is locked, lest somebody takes its owner for dead.
  const std::string hidden = FolderOf(gpu) + "/." + *name;
  UniqueFd fd(::open(hidden.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid() || ::fchmod(fd.get(), 0666) != 0 || !Lock(fd.get(), F_WRLCK, kOwnerByte) ||
      ::ftruncate(fd.get(), static_cast<off_t>(WholePages(bytes))) != 0 ||
      ::rename(hidden.c_str(), (FolderOf(gpu) + "/" + *name).c_str()) != 0) {
    return {};
  }
  return fd;
}

// The file of the turn holds how many bytes were taken at most: what was freed since is found by a
// look at all files, which is made when that may be needed, and not for each of tens of thousands.
bool FakeGpus::Take(int turn, int gpu, uint64_t bytes) {
  uint64_t taken = 0;
  if (::pread(turn, &taken, sizeof(taken), 0) != sizeof(taken)) taken = memory_bytes_;
  if (taken > memory_bytes_ || bytes > memory_bytes_ - taken)
    taken = memory_bytes_ - FreeBytes(gpu);
  if (bytes > memory_bytes_ - taken) return false;
  taken += WholePages(bytes);
  return ::pwrite(turn, &taken, sizeof(taken), 0) == sizeof(taken);
}

UniqueFd FakeGpus::Open(int gpu, const std::string& name) {
  UniqueFd fd(::open((FolderOf(gpu) + "/" + name).c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid() || !IsLocked(fd.get(), kOwnerByte) || !Lock(fd.get(), F_RDLCK, kUserByte)) {
    return {};
  }
  return fd;
}

void FakeGpus::Remove(int gpu, const std::string& name) {
  ::rename((FolderOf(gpu) + "/" + name).c_str(), (FolderOf(gpu) + "/" + kFreed + name).c_str());
}

UniqueFd FakeGpus::TakeContext(int gpu) {
  std::string name;
  return Create(gpu, context_bytes_, &name);
}

uint64_t FakeGpus::FreeBytes(int gpu) {
  uint64_t used = 0;
  // Closed also where a test lets an allocation fail.
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(FolderOf(gpu).c_str()), &::closedir);
  if (folder == nullptr) return memory_bytes_;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const std::string path = FolderOf(gpu) + "/" + entry->d_name;
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat status = {};
    if (!fd.valid() || ::fstat(fd.get(), &status) != 0) continue;
    if (IsLocked(fd.get(), kOwnerByte) || IsLocked(fd.get(), kUserByte)) {
      used += static_cast<uint64_t>(status.st_size);
    } else {
      ::unlink(path.c_str());
    }
  }
  return used > memory_bytes_ ? 0 : memory_bytes_ - used;
}

int FakeGpus::GpuOf(int fd) const {
  std::string path(4096, '\0');
  const ssize_t length =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.data(), path.size());
  path.resize(length > 0 ? static_cast<size_t>(length) : 0);
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    if (path.starts_with(FolderOf(gpu) + "/")) return gpu;
  }
  return -1;
}

}  // namespace gantry::fake_gpu
