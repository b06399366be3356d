#include "sidecar/app/run_directory.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace gantry {
namespace {

constexpr mode_t kNodeDirMode = 0700;         // one user's
constexpr mode_t kSharedNodeDirMode = 01777;  // as /tmp: who made a socket removes it

Status MakeDirectory(const std::string& path, mode_t mode) {
  std::error_code failed;
  const bool made = std::filesystem::create_directories(path, failed);
  if (failed) {
    return Fail(ErrorCode::kInvalidArgument,
                "cannot make directory " + path + ": " + failed.message(),
                "choose a directory that this user may write to");
  }
  if (made && ::chmod(path.c_str(), mode) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "chmod " + path, errno));
  }
  return {};
}

}  // namespace

Status PrepareNodeDirectory(const std::string& path, bool shared) {
  RETURN_IF_ERROR(MakeDirectory(path, shared ? kSharedNodeDirMode : kNodeDirMode));
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    return Fail(SystemError(ErrorCode::kInvalidArgument, "stat " + path, errno));
  }
  const bool others_write = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (!shared || !others_write || (info.st_mode & S_ISVTX) != 0) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "users who may write to " + path + " may take away each other's sockets there",
              "set its sticky bit (chmod +t), or leave out --node-uids");
}

RunDirectory::RunDirectory(std::string path, UniqueFd lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

Result<RunDirectory> RunDirectory::Take(const std::string& path, mode_t mode) {
  RETURN_IF_ERROR(MakeDirectory(path, mode));
  const std::string file = path + "/sidecar.lock";
  UniqueFd lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) {
    Error error = SystemError(ErrorCode::kInvalidArgument, "cannot make " + file, errno);
    error.hint = "choose a --run-dir that user " + std::to_string(::geteuid()) + " may write to";
    return Fail(std::move(error));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Fail(ErrorCode::kConflict, "another sidecar runs in " + path,
                "stop it, or give this one its own --run-dir");
  }
  return RunDirectory(path, std::move(lock));
}

}  // namespace gantry
