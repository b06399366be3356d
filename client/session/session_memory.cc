// The part of WorkloadSession that is about memory: arenas and buffers.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "client/memory/sealed_memfd.h"
#include "client/session/placed_nonces.h"
#include "client/session/workload_session.h"
#include "lib/base/name.h"

namespace gantry::client {
namespace {

// Whether memory that is not wholly in arenas is worth asking the GPU driver about.
bool MayBeOnGpu(const ArenaTable& arenas, const Error& in_arenas, const void* address) {
  return in_arenas.code == ErrorCode::kNotExportable && !arenas.Holds(address);
}

// What to say of memory that neither arenas nor the GPU driver have.
Error WhichOfBoth(Error in_arenas, const Error& on_gpu) {
  if (on_gpu.code == ErrorCode::kNotFound) return in_arenas;  // no address of a GPU is possible
  return on_gpu;
}

}  // namespace

Result<std::shared_ptr<Arena>> WorkloadSession::AddArena(int fd, uint64_t bytes, void* address) {
  if (closed_) return Fail(Closed());
  bool writable = false;
  RETURN_IF_ERROR(CheckSealedMemfd(fd, bytes, &writable));
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "dup", errno));
  ASSIGN_OR_RETURN(auto arena, Arena::Map(std::move(copy), bytes, address, writable));
  const int handed_over = arena->fd();
  ASSIGN_OR_RETURN(auto tokens, lease_->HandOver(std::span(&handed_over, 1)));
  arena->fd_token = std::move(tokens.front());
  arena->handed_over = true;
  if (Status added = arenas_.Add(arena); !added) {
    static_cast<void>(ReleaseFd(*arena));  // the conflict is what to report
    return Fail(std::move(added).error());
  }
  return arena;
}

Status WorkloadSession::ReleaseFd(Arena& arena) {
  bool due = arena.handed_over.exchange(false);
  if (!due || closed_ || !lease_->alive()) return {};
  // Without memory for it: whoever closes the arena again tries again.
  const struct AtTheEnd {
    ~AtTheEnd() { arena.handed_over = due; }
    Arena& arena;
    const bool& due;
  } at_the_end{arena, due};
  Status released = lease_->Release({arena.fd_token});
  due = false;
  if (!released && released.error().code == ErrorCode::kDeadlineExceeded) silence_.Begin();
  return released;
}

std::vector<BufferPointer> WorkloadSession::BuffersIn(const Arena& arena) const {
  std::vector<BufferPointer> inside;
  MutexLock lock(mutex_);
  std::copy_if(buffers_.begin(), buffers_.end(), std::back_inserter(inside),
               [&](const BufferPointer& buffer) {
                 const auto is_it = [&](const auto& held) { return held.get() == &arena; };
                 return std::any_of(buffer->arenas.begin(), buffer->arenas.end(), is_it);
               });
  return inside;
}

Status WorkloadSession::DropArena(Arena& arena) {
  const auto drop = [&] {
    if (!silence_.IsOn() || closed_) return;
    for (const BufferPointer& buffer : BuffersIn(arena)) static_cast<void>(Drop(buffer));
    if (arena.handed_over.exchange(false)) silence_.KeepToken(arena.fd_token);
  };
  drop();
  Status closed = CloseArena(arena, kDropDrainMs);
  drop();
  return closed;
}

Status WorkloadSession::CloseArena(Arena& arena, uint64_t drain_ms) {
  // Without memory for what is between, too: the caller may unmap what is his from there on.
  const struct AtTheEnd {
    ~AtTheEnd() { arena.UnpinQuietly(); }
    Arena& arena;
  } at_the_end{arena};
  arena.closed = true;
  arenas_.Remove(arena);
  Status first_failure;
  // A sidecar that stands still is waited for once. Whoever closes the arena again asks again.
  const auto asks = [&] { return first_failure || !silence_.IsOn(); };
  for (const BufferPointer& buffer : BuffersIn(arena)) {
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

Result<std::vector<gantry_extent>> WorkloadSession::Locate(const void* address,
                                                           uint64_t bytes) const {
  std::vector<gantry_extent> found;
  auto extents = arenas_.Resolve(address, bytes);
  if (extents) {
    for (const Extent& extent : *extents) {
      found.push_back({extent.arena->data(), extent.offset, extent.bytes});
    }
    return found;
  }
  if (!MayBeOnGpu(arenas_, extents.error(), address)) return Fail(std::move(extents).error());
  const auto on_gpu = GpuResolver::Locate(reinterpret_cast<uintptr_t>(address), bytes);
  if (!on_gpu) return Fail(WhichOfBoth(std::move(extents).error(), on_gpu.error()));
  for (const GpuExtent& extent : *on_gpu) {
    const uint64_t base = NumberOf(extent.info.allocation.base);
    found.push_back({reinterpret_cast<void*>(base), extent.offset, extent.bytes});
  }
  return found;
}

Result<std::vector<ResolvedPiece>> WorkloadSession::Resolve(const void* address, uint64_t bytes) {
  std::vector<ResolvedPiece> pieces;
  auto extents = arenas_.Resolve(address, bytes);
  if (extents) {
    for (Extent& extent : *extents) pieces.emplace_back(std::move(extent));
    return pieces;
  }
  if (!MayBeOnGpu(arenas_, extents.error(), address)) return Fail(std::move(extents).error());
  auto on_gpu = gpu_.Resolve(reinterpret_cast<uintptr_t>(address), bytes);
  if (!on_gpu) return Fail(WhichOfBoth(std::move(extents).error(), on_gpu.error()));
  for (GpuPiece& piece : *on_gpu) pieces.emplace_back(std::move(piece));
  return pieces;
}

Result<BufferRequest> WorkloadSession::ResolveSpec(const gantry_buffer_spec& spec, size_t index) {
  const std::string field = "specs/" + std::to_string(index);
  BufferRequest request;
  request.name = spec.name != nullptr ? spec.name : "";
  RETURN_IF_ERROR(CheckName(request.name, field + "/name"));
  request.access.remote_read = (spec.access & GANTRY_REMOTE_READ) != 0;
  request.access.remote_write = (spec.access & GANTRY_REMOTE_WRITE) != 0;
  if ((spec.access & ~(GANTRY_REMOTE_READ | GANTRY_REMOTE_WRITE)) != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "buffer '" + request.name + "' has an access of " + std::to_string(spec.access),
                "GANTRY_REMOTE_READ, GANTRY_REMOTE_WRITE, both, or 0", field + "/access");
  }
  if (spec.pieces == nullptr || spec.piece_count == 0) {
    return Fail(ErrorCode::kInvalidArgument, "buffer '" + request.name + "' has no pieces", {},
                field + "/pieces");
  }
  request.asked.assign(spec.pieces, spec.pieces + spec.piece_count);
  RETURN_IF_ERROR(ResolvePieces(&request, field + "/pieces"));
  if (spec.block_bytes == 0 && (spec.block_stride != 0 || spec.blocks != 0)) {
    return Fail(ErrorCode::kInvalidArgument,
                "buffer '" + request.name + "' has blocks or a stride, and block_bytes is 0",
                "0 for all three: it has no blocks", field + "/block_bytes");
  }
  if (spec.block_bytes != 0) {
    if (spec.blocks == 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  "buffer '" + request.name + "' has a block size and no blocks",
                  "say how many blocks it has", field + "/blocks");
    }
    const uint64_t stride = spec.block_stride != 0 ? spec.block_stride : spec.block_bytes;
    request.layout = wire::BlockLayout{spec.block_bytes, stride, spec.blocks};
  }
  return request;
}

Status WorkloadSession::ResolvePieces(BufferRequest* request, const std::string& field) {
  for (size_t i = 0; i < request->asked.size(); ++i) {
    auto pieces = Resolve(request->asked[i].address, request->asked[i].bytes);
    if (!pieces) {
      return Fail(std::move(pieces)
                      .error()
                      .WithContext("buffer '" + request->name + "'")
                      .WithField(field + "/" + std::to_string(i)));
    }
    std::move(pieces->begin(), pieces->end(), std::back_inserter(request->pieces));
  }
  return {};
}

Result<std::vector<BufferPointer>> WorkloadSession::Register(
    std::span<const gantry_buffer_spec> specs, Trust trust) {
  auto buffers = RegisterAll(specs, trust);
  if (!buffers) ReleaseUnusedGpuMemory();  // what was exported for them
  return buffers;
}

Result<std::vector<BufferPointer>> WorkloadSession::RegisterAll(
    std::span<const gantry_buffer_spec> specs, Trust trust) {
  if (closed_) return Fail(Closed());
  RETURN_IF_ERROR(TellUnheard());  // they may have the same names
  std::vector<BufferRequest> requests;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSIGN_OR_RETURN(BufferRequest request, ResolveSpec(specs[i], i));
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return std::vector<BufferPointer>();
  if (trust == Trust::kVerify) return RegisterVerified(std::move(requests));
  return PostBuffers(std::move(requests));
}

Result<std::vector<BufferPointer>> WorkloadSession::RegisterVerified(
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
    usable = Resume(&names);
  }
  if (usable) return buffers;
  for (const BufferPointer& buffer : *buffers) static_cast<void>(Unregister(buffer, 0));
  return Fail(std::move(usable).error());
}

Result<std::vector<BufferPointer>> WorkloadSession::PostBuffers(
    std::vector<BufferRequest> requests) {
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
  bool arena_closed = false;
  {
    MutexLock lock(mutex_);
    for (const BufferPointer& buffer : buffers) {
      buffers_.insert(buffer);
      if (buffer->on_gpu) {
        gpu_buffers_.insert_or_assign(buffer->name, buffer);
        ++gpu_buffers_epoch_;
      }
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

std::string WorkloadSession::BufferTarget(const RegisteredBuffer& buffer, uint64_t drain_ms) const {
  return "/v1/buffers/" + UrlEscape(buffer.id) +
         "?drain_ms=" + std::to_string(Bounded(drain_ms).count());
}

Status WorkloadSession::Drop(const BufferPointer& buffer) {
  // By this request's own end: meanwhile another thread's may begin or end the silence.
  Status done;
  bool unheard = silence_.IsOn();
  if (!unheard) {
    done = Unregister(buffer, kDropDrainMs);
    unheard = !done && done.error().code == ErrorCode::kDeadlineExceeded;
  }
  if (!unheard) return TellUnheard();
  if (!buffer->registered || closed_) return done;
  silence_.KeepTarget(BufferTarget(*buffer, kDropDrainMs));
  Forget(buffer);
  // Its exports are released with those of the next one.
  MutexLock lock(buffer->mutex);
  buffer->gpu_pieces.clear();
  return done;
}

Status WorkloadSession::Unregister(const BufferPointer& buffer, uint64_t drain_ms,
                                   std::string* report) {
  // With the lease gone the sidecar has dropped the buffer already, or is doing it.
  if (buffer->registered && !closed_ && lease_->alive()) {
    const std::string target = BufferTarget(*buffer, drain_ms);
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
  Forget(buffer);
  if (!buffer->on_gpu) return {};
  {
    MutexLock lock(buffer->mutex);
    buffer->gpu_pieces.clear();
  }
  ReleaseUnusedGpuMemory();
  return {};
}

void WorkloadSession::Forget(const BufferPointer& buffer) {
  buffer->registered = false;
  MutexLock lock(mutex_);
  buffers_.erase(buffer);
  const auto found = gpu_buffers_.find(buffer->name);
  if (found == gpu_buffers_.end() || found->second != buffer) return;
  gpu_buffers_.erase(found);
  ++gpu_buffers_epoch_;
}

void WorkloadSession::ReleaseUnusedGpuMemory() {
  if (!silence_.IsOn()) ReleaseFds(gpu_.TakeUnused());  // else with those of the next one
}

void WorkloadSession::ReleaseFds(const std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size() && !closed_ && lease_->alive();) {
    const size_t end = std::min(tokens.size(), i + wire::kHandoffTokensMax);
    // Without an answer the lease is lost, and with it the descriptors.
    static_cast<void>(lease_->Release({tokens.begin() + static_cast<std::ptrdiff_t>(i),
                                       tokens.begin() + static_cast<std::ptrdiff_t>(end)}));
    i = end;
  }
}

}  // namespace gantry::client
