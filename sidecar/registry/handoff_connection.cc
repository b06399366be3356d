#include "sidecar/registry/handoff_connection.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <span>
#include <utility>

#include "lib/base/log.h"

namespace gantry::registry {
namespace {

constexpr int kSoPeerPidfd = 77;  // asm-generic/socket.h since Linux 6.5

// A descriptor of the process that connected. A child that inherits the socket does not count.
UniqueFd ProcessOf(int socket, pid_t pid) {
  int pidfd = -1;
  socklen_t length = sizeof(pidfd);
  if (::getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) == 0) return UniqueFd(pidfd);
  if (pid <= 0) return UniqueFd();
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

constexpr auto kPidFileSystem = 0x50494446;  // linux/magic.h since Linux 6.9

// The inode of such a descriptor is the process's alone until the machine starts anew, whatever PID
// namespace looks at it. Older kernels have one inode for all: then empty.
std::string NameOf(const UniqueFd& process) {
  struct statfs system = {};
  struct stat info = {};
  if (!process.valid() || ::fstatfs(process.get(), &system) != 0 ||
      system.f_type != kPidFileSystem || ::fstat(process.get(), &info) != 0) {
    return {};
  }
  return "process " + std::to_string(info.st_ino);
}

}  // namespace

Result<HandoffConnection> HandoffConnection::Create(UniqueFd socket, WorkloadTable& workloads) {
  ASSIGN_OR_RETURN(const PeerCredentials credentials, CredentialsOf(socket.get()));
  UniqueFd process = ProcessOf(socket.get(), credentials.pid);
  if (!process.valid()) {
    log::Warning("no descriptor of the client's process: only its socket tells when it ends",
                 {{"pid", credentials.pid}});
  }
  return HandoffConnection(std::move(socket), std::move(process), credentials, workloads);
}

HandoffConnection::HandoffConnection(UniqueFd socket, UniqueFd process, PeerCredentials credentials,
                                     WorkloadTable& workloads)
    : workloads_(&workloads),
      socket_(std::move(socket)),
      process_(std::move(process)),
      credentials_(credentials) {}

HandoffConnection::Next HandoffConnection::OnReadable() {
  auto message = ReceiveMessage(socket_.get(), wire::kHandoffMessageBytesMax);
  if (!message) {
    if (message.error().code == ErrorCode::kDeadlineExceeded) return Next::kReadable;
    const bool goes_on = message.error().code == ErrorCode::kMalformedBody ||
                         message.error().code == ErrorCode::kResourceExhausted;
    if (!goes_on) return Next::kClose;
    return Reply(wire::EncodeReply(Fail(std::move(message).error())));
  }
  if (message->closed) return Next::kClose;
  return Reply(wire::EncodeReply(Handle(*std::move(message))));
}

HandoffConnection::Next HandoffConnection::OnWritable() { return Reply(std::move(unsent_reply_)); }

HandoffConnection::Next HandoffConnection::Reply(std::string text) {
  unsent_reply_.clear();
  if (text.empty()) return Next::kReadable;
  const auto sent = SendMessage(socket_.get(), text, {});
  if (sent) return Next::kReadable;
  if (sent.error().code != ErrorCode::kDeadlineExceeded) return Next::kClose;
  unsent_reply_ = std::move(text);
  return Next::kWritable;
}

Result<wire::HandoffReply> HandoffConnection::Handle(FdMessage message) {
  ASSIGN_OR_RETURN(const wire::HandoffRequest request, wire::DecodeHandoffRequest(message.payload));
  const size_t expected = request.type == wire::HandoffType::kFds ? request.fd_count : 0;
  if (message.fds.size() != expected) {
    return Fail(ErrorCode::kInvalidArgument,
                "the message carries " + std::to_string(message.fds.size()) +
                    " descriptors and should carry " + std::to_string(expected),
                "count says how many descriptors come with the message");
  }
  if (request.type == wire::HandoffType::kPing) return wire::HandoffReply{};
  if (request.type == wire::HandoffType::kAttach) return Attach(request);
  if (!attached_) {
    return Fail(ErrorCode::kUnauthenticated, "this connection is not attached to a workload",
                "send attach with the workload's lease token first");
  }
  wire::HandoffReply reply;
  if (request.type == wire::HandoffType::kFds) {
    ASSIGN_OR_RETURN(reply.tokens,
                     workloads_->KeepFds(workload_, generation_, std::move(message.fds)));
  } else {
    RETURN_IF_ERROR(workloads_->ReleaseFds(workload_, generation_, request.tokens));
  }
  return reply;
}

Result<wire::HandoffReply> HandoffConnection::Attach(const wire::HandoffRequest& request) {
  if (attached_) {
    return Fail(ErrorCode::kConflict,
                "this connection is attached to workload '" + workload_ + "' already",
                "open another connection for another workload");
  }
  ASSIGN_OR_RETURN(const WorkloadInfo info,
                   workloads_->Attach(request.lease_token, credentials_.pid, credentials_.uid,
                                      NameOf(process_)));
  attached_ = true;
  workload_ = info.name;
  generation_ = info.generation;
  log::Info("workload attached",
            {{"workload", info.name}, {"pid", credentials_.pid}, {"uid", credentials_.uid}});
  wire::HandoffReply reply;
  reply.workload = info.name;
  reply.generation = info.generation;
  return reply;
}

}  // namespace gantry::registry
