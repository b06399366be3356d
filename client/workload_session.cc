#include "client/workload_session.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "client/sealed_memfd.h"
#include "lib/base/name.h"

namespace gantry::client {
namespace {

constexpr std::array<std::string_view, 5> kMethods = {"GET", "PUT", "POST", "PATCH", "DELETE"};
// Waits are for as long as anybody can mean and short enough for every clock.
constexpr uint64_t kWaitMsMax = uint64_t{1000} * 3600 * 24 * 365;

milliseconds Bounded(uint64_t wait_ms) {
  return milliseconds(static_cast<int64_t>(std::min(wait_ms, kWaitMsMax)));
}

tl::unexpected<Error> Closed() { return Fail(ErrorCode::kCancelled, "the client is closed"); }

Status CheckTarget(std::string_view method, std::string_view target) {
  if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end()) {
    return Fail(ErrorCode::kInvalidArgument, "no such method", "GET, PUT, POST, PATCH or DELETE",
                "method");
  }
  const bool printable =
      std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!target.starts_with('/') || !printable) {
    return Fail(ErrorCode::kInvalidArgument, "not the path of a resource",
                "start with / and percent-encode what is not printable ASCII", "target");
  }
  return {};
}

}  // namespace

WorkloadSession::WorkloadSession(Options options, std::string api_socket)
    : options_(std::move(options)), owner_(::getpid()), http_(std::move(api_socket)) {}

Result<std::shared_ptr<WorkloadSession>> WorkloadSession::Open(Options options) {
  RETURN_IF_ERROR(CheckName(options.workload, "workload"));
  struct stat info = {};
  std::string api_socket = options.path;
  if (::stat(api_socket.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) api_socket += "/api.sock";
  std::shared_ptr<WorkloadSession> session(
      new WorkloadSession(std::move(options), std::move(api_socket)));
  RETURN_IF_ERROR(session->Attach());
  return session;
}

Status WorkloadSession::Attach() {
  const std::string target = "/v1/workloads/" + UrlEscape(options_.workload);
  const std::string body = LeaseBody(options_.engine_id);
  ASSIGN_OR_RETURN(const std::string answer, Ask({.method = "PUT",
                                                  .target = target,
                                                  .body = body,
                                                  .repeatable = true,
                                                  .timeout = options_.timeout}));
  ASSIGN_OR_RETURN(lease_answer_, ReadLease(answer));
  std::string path = options_.handoff_socket;
  if (path.empty()) {
    // The sidecar's own path may not be the one under which its directory is mounted here.
    path = http_.socket_path().substr(0, http_.socket_path().rfind('/') + 1) + "handoff.sock";
    if (::access(path.c_str(), F_OK) != 0) path = lease_answer_.handoff_socket;
  }
  auto lease = HandoffLease::Attach(path, lease_answer_.lease_token, options_.timeout);
  if (!lease) return Fail(std::move(lease).error().WithContext("attaching the lease"));
  lease_ = *std::move(lease);
  return {};
}

Status WorkloadSession::Close() {
  if (closed_.exchange(true)) return {};
  Status outcome;
  // The name may belong to a newer registration once this lease is gone.
  if (lease_->alive()) {
    const std::string target = "/v1/workloads/" + UrlEscape(options_.workload);
    auto reply = http_.Send({.method = "DELETE",
                             .target = target,
                             .bearer = lease_answer_.lease_token,
                             .timeout = options_.timeout});
    if (!reply) outcome = Fail(std::move(reply).error());
    if (reply && reply->status != 404) {
      if (auto answer = BodyOrProblem(*std::move(reply)); !answer) outcome = Fail(answer.error());
    }
  }
  http_.Close();
  lease_->End();
  MutexLock lock(mutex_);
  for (const BufferPointer& buffer : buffers_) buffer->registered = false;
  buffers_.clear();
  return outcome;
}

Status WorkloadSession::Check() {
  if (closed_) return Closed();
  return lease_->Ping();
}

Result<std::string> WorkloadSession::Ask(HttpRequest request, std::string* raw) {
  if (closed_) return Closed();
  request.bearer = lease_answer_.lease_token;
  ASSIGN_OR_RETURN(HttpReply reply, http_.Send(request));
  if (raw != nullptr) *raw = reply.body;
  auto body = BodyOrProblem(std::move(reply));
  if (!body && lease_ != nullptr && !lease_->alive()) {
    body.error().hint = "the lease is lost, the sidecar was probably restarted: open a new client";
  }
  return body;
}

Result<std::string> WorkloadSession::Post(std::string_view target, std::string_view body,
                                          uint64_t wait_ms) {
  return Ask({.method = "POST",
              .target = target,
              .body = body,
              .repeatable = true,  // each names what it makes, or asks only
              .timeout = options_.timeout + Bounded(wait_ms)});
}

Result<std::string> WorkloadSession::Request(std::string_view method, std::string_view target,
                                             std::string_view body, uint64_t wait_ms) {
  RETURN_IF_ERROR(CheckTarget(method, target));
  return Ask({.method = method,
              .target = target,
              .body = body,
              .repeatable = method != "POST" && method != "PATCH",
              .timeout = options_.timeout + Bounded(wait_ms)});
}

Result<std::shared_ptr<Arena>> WorkloadSession::AddArena(int fd, uint64_t bytes, void* address) {
  if (closed_) return Closed();
  bool writable = false;
  RETURN_IF_ERROR(CheckSealedMemfd(fd, bytes, &writable));
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "dup", errno));
  ASSIGN_OR_RETURN(auto arena, Arena::Map(std::move(copy), bytes, address, writable));
  ASSIGN_OR_RETURN(arena->fd_token, lease_->HandOver(arena->fd()));
  if (Status added = arenas_.Add(arena); !added) {
    static_cast<void>(lease_->Release({arena->fd_token}));  // the conflict is what to report
    return Fail(std::move(added).error());
  }
  return arena;
}

Status WorkloadSession::CloseArena(Arena& arena, uint64_t drain_ms) {
  const bool first_time = !arena.closed.exchange(true);
  arenas_.Remove(arena);
  std::vector<BufferPointer> inside;
  {
    MutexLock lock(mutex_);
    std::copy_if(buffers_.begin(), buffers_.end(), std::back_inserter(inside),
                 [&](const BufferPointer& buffer) {
                   const auto is_it = [&](const auto& held) { return held.get() == &arena; };
                   return std::any_of(buffer->arenas.begin(), buffer->arenas.end(), is_it);
                 });
  }
  Status first_failure;
  for (const BufferPointer& buffer : inside) {
    Status done = Unregister(buffer, drain_ms);
    if (!done && first_failure) first_failure = std::move(done);
  }
  if (first_time && !closed_ && lease_->alive()) {
    Status released = lease_->Release({arena.fd_token});
    if (!released && first_failure) first_failure = std::move(released);
  }
  return first_failure;
}

Result<std::vector<Extent>> WorkloadSession::Resolve(const void* address, uint64_t bytes) const {
  return arenas_.Resolve(address, bytes);
}

Result<BufferRequest> WorkloadSession::ResolveSpec(const gantry_buffer_spec& spec,
                                                   size_t index) const {
  const std::string field = "specs/" + std::to_string(index);
  BufferRequest request;
  request.name = spec.name != nullptr ? spec.name : "";
  RETURN_IF_ERROR(CheckName(request.name, field + "/name"));
  request.access.remote_read = (spec.access & GANTRY_REMOTE_READ) != 0;
  request.access.remote_write = (spec.access & GANTRY_REMOTE_WRITE) != 0;
  if ((spec.access & ~(GANTRY_REMOTE_READ | GANTRY_REMOTE_WRITE)) != 0) {
    return Fail(ErrorCode::kInvalidArgument, "unknown access", {}, field + "/access");
  }
  if (spec.pieces == nullptr || spec.piece_count == 0) {
    return Fail(ErrorCode::kInvalidArgument, "buffer '" + request.name + "' has no pieces", {},
                field + "/pieces");
  }
  for (const gantry_piece& piece : std::span(spec.pieces, spec.piece_count)) {
    auto extents = arenas_.Resolve(piece.address, piece.bytes);
    if (!extents) {
      return Fail(std::move(extents)
                      .error()
                      .WithContext("buffer '" + request.name + "'")
                      .WithField(field + "/pieces/" + std::to_string(&piece - spec.pieces)));
    }
    std::move(extents->begin(), extents->end(), std::back_inserter(request.extents));
  }
  if (spec.block_bytes != 0) {
    const uint64_t stride = spec.block_stride != 0 ? spec.block_stride : spec.block_bytes;
    request.layout = wire::BlockLayout{spec.block_bytes, stride, spec.blocks};
  }
  return request;
}

Result<std::vector<BufferPointer>> WorkloadSession::Register(
    std::span<const gantry_buffer_spec> specs) {
  if (closed_) return Closed();
  std::vector<BufferRequest> requests;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSIGN_OR_RETURN(BufferRequest request, ResolveSpec(specs[i], i));
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return std::vector<BufferPointer>();
  ASSIGN_OR_RETURN(const std::string answer,
                   Post("/v1/buffers", RegistrationBody(options_.workload, requests), 0));
  ASSIGN_OR_RETURN(const std::vector<BufferAnswer> answers, ReadBuffers(answer));
  return Keep(std::move(requests), answers);
}

// Matches what was asked for with what was answered.
Result<std::vector<BufferPointer>> WorkloadSession::Keep(std::vector<BufferRequest> requests,
                                                         const std::vector<BufferAnswer>& answers) {
  std::map<std::string_view, const BufferAnswer*> by_name;
  for (const BufferAnswer& answer : answers) by_name.emplace(answer.name, &answer);
  std::vector<BufferPointer> buffers;
  for (BufferRequest& request : requests) {
    const auto found = by_name.find(request.name);
    if (found == by_name.end()) {
      return Fail(ErrorCode::kInternal, "the sidecar's answer leaves out '" + request.name + "'");
    }
    auto buffer = std::make_shared<RegisteredBuffer>();
    buffer->name = std::move(request.name);
    buffer->id = found->second->id;
    buffer->generation = found->second->generation;
    for (Extent& extent : request.extents) {
      buffer->bytes += extent.bytes;
      buffer->arenas.push_back(std::move(extent.arena));
    }
    buffers.push_back(std::move(buffer));
  }
  bool arena_closed = false;
  {
    MutexLock lock(mutex_);
    for (const BufferPointer& buffer : buffers) {
      buffers_.insert(buffer);
      for (const auto& arena : buffer->arenas) arena_closed = arena_closed || arena->closed;
    }
  }
  if (arena_closed) {
    for (const BufferPointer& buffer : buffers) static_cast<void>(Unregister(buffer, 0));
    return Fail(ErrorCode::kNotExportable,
                "an arena was closed while buffers in it were registered");
  }
  return buffers;
}

Status WorkloadSession::Unregister(const BufferPointer& buffer, uint64_t drain_ms,
                                   std::string* report) {
  // With the lease gone the sidecar has dropped the buffer already, or is doing it.
  if (buffer->registered && !closed_ && lease_->alive()) {
    const std::string target = "/v1/buffers/" + UrlEscape(buffer->id) +
                               "?drain_ms=" + std::to_string(Bounded(drain_ms).count());
    auto answer = Ask({.method = "DELETE",
                       .target = target,
                       .repeatable = true,
                       .timeout = options_.timeout + Bounded(drain_ms)},
                      report);
    const bool gone = !answer && (answer.error().code == ErrorCode::kNotFound ||
                                  answer.error().code == ErrorCode::kUnregistered);
    if (!answer && !gone && !closed_ && lease_->alive()) {
      return Fail(std::move(answer).error().WithContext("buffer '" + buffer->name + "'"));
    }
  }
  buffer->registered = false;
  MutexLock lock(mutex_);
  buffers_.erase(buffer);
  return {};
}

Status WorkloadSession::Suspend(const std::vector<std::string>* names, uint64_t drain_ms) {
  return Suspension("suspend", names, drain_ms);
}

Status WorkloadSession::Resume(const std::vector<std::string>* names) {
  return Suspension("resume", names, std::nullopt);
}

Status WorkloadSession::Suspension(std::string_view verb, const std::vector<std::string>* names,
                                   std::optional<uint64_t> drain_ms) {
  if (drain_ms) drain_ms = static_cast<uint64_t>(Bounded(*drain_ms).count());
  RETURN_IF_ERROR(Post("/v1/buffers:" + std::string(verb),
                       SuspensionBody(options_.workload, names, drain_ms), drain_ms.value_or(0)));
  return {};
}

}  // namespace gantry::client
