#include "client/session/workload_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "client/memory/sealed_memfd.h"
#include "client/session/placed_nonces.h"
#include "lib/base/url_escape.h"

namespace gantry::client {

WorkloadMemory::WorkloadMemory(SidecarLink& link)
    : link_(link),
      locator_([&link](std::span<const int> fds) { return link.HandOver(fds); }),
      sleep_(link, locator_, buffers_),
      private_memory_(locator_, [this](int fd, uint64_t bytes, void* address) {
        return AddArena(fd, bytes, address);
      }) {}

Result<std::shared_ptr<Arena>> WorkloadMemory::AddArena(int fd, uint64_t bytes, void* address) {
  if (link_.is_closed()) return Fail(SidecarLink::Closed());
  bool writable = false;
  RETURN_IF_ERROR(CheckMemoryFile(fd, bytes, link_.takes_unsealed_memory(), &writable));
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "dup", errno));
  ASSIGN_OR_RETURN(auto arena, Arena::Map(std::move(copy), bytes, address, writable));
  const int handed_over = arena->fd();
  ASSIGN_OR_RETURN(auto tokens, link_.HandOver(std::span(&handed_over, 1)));
  arena->fd_token = std::move(tokens.front());
  arena->handed_over = true;
  if (Status added = locator_.arenas().Add(arena); !added) {
    static_cast<void>(ReleaseFd(*arena));  // the conflict is what to report
    return Fail(std::move(added).error());
  }
  return arena;
}

Status WorkloadMemory::ReleaseFd(Arena& arena) {
  bool due = arena.handed_over.exchange(false);
  if (!due || !link_.is_alive()) return {};
  // Without memory for it: whoever closes the arena again tries again.
  const struct AtTheEnd {
    ~AtTheEnd() { arena.handed_over = due; }
    Arena& arena;
    const bool& due;
  } at_the_end{arena, due};
  Status released = link_.ReleaseFd(arena.fd_token);
  due = false;
  return released;
}

Status WorkloadMemory::DropArena(Arena& arena) {
  const auto drop = [&] {
    if (!link_.silence().IsOn() || link_.is_closed()) return;
    for (const BufferPointer& buffer : buffers_.In(arena)) static_cast<void>(Drop(buffer));
    if (arena.handed_over.exchange(false)) link_.silence().KeepToken(arena.fd_token);
  };
  drop();
  Status closed = CloseArena(arena, kDropDrainMs);
  drop();
  return closed;
}

Status WorkloadMemory::CloseArena(Arena& arena, uint64_t drain_ms) {
  // Without memory for what is between, too: the caller may unmap what is his from there on.
  const struct AtTheEnd {
    ~AtTheEnd() { arena.UnpinQuietly(); }
    Arena& arena;
  } at_the_end{arena};
  arena.closed = true;
  locator_.arenas().Remove(arena);
  Status first_failure;
  // A sidecar that stands still is waited for once. Whoever closes the arena again asks again.
  const auto asks = [&] { return first_failure || !link_.silence().IsOn(); };
  for (const BufferPointer& buffer : buffers_.In(arena)) {
    if (!asks()) break;
    Status done = Unregister(buffer, drain_ms);
    if (!done && first_failure) first_failure = std::move(done);
  }
  if (asks()) {
    Status released = ReleaseFd(arena);
    if (!released && first_failure) first_failure = std::move(released);
  }
  Status unpinned = arena.Unpin();
  if (!unpinned && first_failure) first_failure = std::move(unpinned);
  return first_failure;
}

Result<std::vector<BufferPointer>> WorkloadMemory::Register(
    std::span<const gantry_buffer_spec> specs, Trust trust) {
  auto buffers = RegisterAll(specs, trust);
  if (!buffers) sleep_.ReleaseUnusedGpuMemory();  // what was exported for them
  return buffers;
}

Result<std::vector<BufferPointer>> WorkloadMemory::RegisterAll(
    std::span<const gantry_buffer_spec> specs, Trust trust) {
  if (link_.is_closed()) return Fail(SidecarLink::Closed());
  RETURN_IF_ERROR(link_.ResendUnheard());  // they may have the same names
  std::vector<BufferRequest> requests;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSIGN_OR_RETURN(BufferRequest request, locator_.RequestFor(specs[i], i));
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return std::vector<BufferPointer>();
  if (trust == Trust::kVerify) return RegisterVerified(std::move(requests));
  return PostBuffers(std::move(requests));
}

Result<std::vector<BufferPointer>> WorkloadMemory::RegisterVerified(
    std::vector<BufferRequest> requests) {
  PlacedNonces nonces;  // puts the bytes back on every way out
  RETURN_IF_ERROR(nonces.Place(requests));
  auto buffers = PostBuffers(std::move(requests));
  Status usable = nonces.Restore();
  if (!usable) {
    const std::string after = buffers ? "" : " (after: " + buffers.error().message + ")";
    usable = Fail(std::move(usable).error().WithContext("bytes were not restored" + after));
    usable.error().hint = "what a buffer begins and ends with, and what is at its seams, is lost";
  }
  if (!buffers) return usable ? std::move(buffers) : Fail(std::move(usable).error());
  if (usable) {
    std::vector<std::string> names;
    for (const BufferPointer& buffer : *buffers) names.push_back(buffer->name);
    usable = sleep_.Resume(&names);
  }
  if (usable) return buffers;
  for (const BufferPointer& buffer : *buffers) static_cast<void>(Unregister(buffer, 0));
  return Fail(std::move(usable).error());
}

Result<std::vector<BufferPointer>> WorkloadMemory::PostBuffers(
    std::vector<BufferRequest> requests) {
  ASSIGN_OR_RETURN(const std::string answer,
                   link_.Post("/v1/buffers", RegistrationBody(link_.workload(), requests), 0));
  ASSIGN_OR_RETURN(const std::vector<BufferAnswer> answers, ReadBuffers(answer));
  return Keep(std::move(requests), answers);
}

// Matches what was asked for with what was answered.
Result<std::vector<BufferPointer>> WorkloadMemory::Keep(std::vector<BufferRequest> requests,
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
    buffer->name = request.name;
    buffer->id = found->second->id;
    buffer->generation = found->second->generation;
    for (const ResolvedPiece& piece : request.pieces) {
      if (const auto* const extent = std::get_if<Extent>(&piece)) {
        buffer->bytes += extent->bytes;
        buffer->arenas.push_back(extent->arena);
      } else {
        buffer->bytes += std::get<GpuPiece>(piece).bytes;
        buffer->on_gpu = true;
      }
    }
    TakeGpuPieces(request.pieces, buffer.get());
    request.pieces.clear();
    request.verify.clear();
    buffer->again = std::move(request);
    buffers.push_back(std::move(buffer));
  }
  buffers_.Add(buffers);
  bool arena_closed = false;  // looked at once CloseArena finds the buffers
  for (const BufferPointer& buffer : buffers) {
    for (const auto& arena : buffer->arenas) arena_closed = arena_closed || arena->closed;
  }
  if (arena_closed) {
    for (const BufferPointer& buffer : buffers) static_cast<void>(Unregister(buffer, 0));
    return Fail(ErrorCode::kNotExportable,
                "an arena was closed while buffers in it were registered");
  }
  return buffers;
}

std::string WorkloadMemory::BufferTarget(const RegisteredBuffer& buffer, uint64_t drain_ms) const {
  return "/v1/buffers/" + UrlEscape(buffer.id) +
         "?drain_ms=" + std::to_string(SidecarLink::Bounded(drain_ms).count());
}

Status WorkloadMemory::Drop(const BufferPointer& buffer) {
  // By this request's own end: meanwhile another thread's may begin or end the silence.
  Status done;
  bool unheard = link_.silence().IsOn();
  if (!unheard) {
    done = Unregister(buffer, kDropDrainMs);
    unheard = !done && done.error().code == ErrorCode::kDeadlineExceeded;
  }
  if (!unheard) return link_.ResendUnheard();
  if (!buffer->registered || link_.is_closed()) return done;
  link_.silence().KeepTarget(BufferTarget(*buffer, kDropDrainMs));
  buffers_.Forget(buffer);
  // Its exports are released with those of the next one.
  MutexLock lock(buffer->mutex);
  buffer->gpu_pieces.clear();
  return done;
}

Status WorkloadMemory::Unregister(const BufferPointer& buffer, uint64_t drain_ms,
                                  std::string* report) {
  // With the lease gone the sidecar has dropped the buffer already, or is doing it.
  if (buffer->registered && link_.is_alive()) {
    const std::string target = BufferTarget(*buffer, drain_ms);
    auto answer = link_.Exchange({.method = "DELETE",
                                  .target = target,
                                  .repeatable = true,
                                  .timeout = link_.timeout() + SidecarLink::Bounded(drain_ms)},
                                 report);
    const bool gone = !answer && (answer.error().code == ErrorCode::kNotFound ||
                                  answer.error().code == ErrorCode::kUnregistered);
    if (!answer && !gone && link_.is_alive()) {
      return Fail(std::move(answer).error().WithContext("buffer '" + buffer->name + "'"));
    }
  }
  buffers_.Forget(buffer);
  if (!buffer->on_gpu) return {};
  {
    MutexLock lock(buffer->mutex);
    buffer->gpu_pieces.clear();
  }
  sleep_.ReleaseUnusedGpuMemory();
  return {};
}

}  // namespace gantry::client
