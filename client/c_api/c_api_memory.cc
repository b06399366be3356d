// The functions of gantry.h for errors, clients, arenas and buffers, and those of gantry_memory.h,
// over WorkloadSession.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "client/c_api/c_api_border.h"
#include "client/include/gantry_memory.h"
#include "client/memory/sealed_memfd.h"

namespace gantry::client {
namespace {

tl::unexpected<Error> Missing(const std::string& argument) {
  return Fail(ErrorCode::kInvalidArgument, argument + " is NULL", {}, argument);
}

char* CopyText(std::string_view text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

// Ends the handle's own hold. Returns true when the arena goes on for other handles.
bool HasOtherHolders(gantry_arena& handle) {
  if (handle.holds.exchange(false))
    return !handle.session->memory().private_memory().EndHold(*handle.arena);
  return handle.arena->holders > 0;
}

Result<PrivateMemory::Kind> KindOf(uint32_t flags) {
  switch (flags) {
    case 0:
      return PrivateMemory::Kind::kBlockOfMalloc;
    case GANTRY_OWN_MAPPING:
      return PrivateMemory::Kind::kOwnMapping;
    case GANTRY_PART_OF_BLOCK:
      return PrivateMemory::Kind::kPartOfBlock;
    default:
      break;
  }
  return Fail(ErrorCode::kInvalidArgument, "there are no flags " + std::to_string(flags),
              "GANTRY_OWN_MAPPING, GANTRY_PART_OF_BLOCK or 0", "flags");
}

// nullopt: all buffers of the workload.
Result<std::optional<std::vector<std::string>>> NamesOf(gantry_buffer* const* buffers,
                                                        size_t count) {
  if (buffers == nullptr) return std::nullopt;
  std::vector<std::string> names;
  for (gantry_buffer* const buffer : std::span(buffers, count)) {
    if (buffer == nullptr) return Missing("buffers");
    names.push_back(buffer->buffer->name);
  }
  return names;
}

}  // namespace

gantry_error* OutOfMemory() noexcept {
  // Short enough for the strings' own space, and never destroyed.
  alignas(gantry_error) static std::byte space[sizeof(gantry_error)];
  static auto* const error = new (space) gantry_error{"out_of_memory", "out of memory", "", ""};
  return error;
}

gantry_error* ToC(const Error& error) {
  return new gantry_error{std::string(InfoOf(error.code).name), error.message, error.hint,
                          error.field};
}

}  // namespace gantry::client

using namespace gantry;          // NOLINT: the functions below cannot be in a namespace
using namespace gantry::client;  // NOLINT

const char* gantry_version() { return GANTRY_VERSION; }

void gantry_free(char* text) { std::free(text); }

const char* gantry_error_code(const gantry_error* error) {
  return error != nullptr ? error->code.c_str() : "";
}
const char* gantry_error_message(const gantry_error* error) {
  return error != nullptr ? error->message.c_str() : "";
}
const char* gantry_error_hint(const gantry_error* error) {
  return error != nullptr ? error->hint.c_str() : "";
}
const char* gantry_error_field(const gantry_error* error) {
  return error != nullptr ? error->field.c_str() : "";
}
void gantry_error_destroy(gantry_error* error) {
  if (error != OutOfMemory()) delete error;
}

gantry_error* gantry_client_open(const char* path, const char* workload,
                                 const gantry_client_options* options, gantry_client** client) {
  return Enter([&]() -> Status {
    if (path == nullptr) return Missing("path");
    if (workload == nullptr) return Missing("workload");
    if (client == nullptr) return Missing("client");
    SessionOptions wanted;
    wanted.path = path;
    wanted.workload = workload;
    if (options != nullptr) {
      if (options->engine_id != nullptr) wanted.engine_id = options->engine_id;
      if (options->handoff_socket != nullptr) wanted.handoff_socket = options->handoff_socket;
      constexpr uint64_t kTimeoutMsMax = uint64_t{24} * 3600 * 1000;
      const uint64_t timeout_ms = std::min(options->timeout_ms, kTimeoutMsMax);
      if (timeout_ms != 0) wanted.timeout = milliseconds(static_cast<int64_t>(timeout_ms));
    }
    auto handle = std::make_unique<gantry_client>();
    ASSIGN_OR_RETURN(handle->session, WorkloadSession::Open(std::move(wanted)));
    *client = handle.release();
    return {};
  });
}

gantry_error* gantry_client_close(gantry_client* client) {
  return EnterObject(client, [&] { return client->session->Close(); });
}
void gantry_client_destroy(gantry_client* client) {
  Destroy(client, [&] { return client->session->Drop(); });
}
gantry_error* gantry_client_close_within(gantry_client* client, uint64_t timeout_ms) {
  return EnterObject(client,
                     [&] { return client->session->Close(SidecarLink::Bounded(timeout_ms)); });
}
gantry_error* gantry_client_check(gantry_client* client) {
  return EnterObject(client, [&] { return client->session->link().Ping(); });
}
const char* gantry_client_workload(const gantry_client* client) {
  return client->session->link().workload().c_str();
}
const char* gantry_client_generation(const gantry_client* client) {
  return client->session->link().generation().c_str();
}

gantry_error* gantry_client_request(gantry_client* client, const char* method, const char* target,
                                    const char* body, uint64_t wait_ms, char** answer) {
  return EnterObject(client, [&]() -> Status {
    if (method == nullptr) return Missing("method");
    if (target == nullptr) return Missing("target");
    if (answer == nullptr) return Missing("answer");
    ASSIGN_OR_RETURN(
        const std::string text,
        client->session->link().Request(method, target, body != nullptr ? body : "", wait_ms));
    *answer = CopyText(text);
    return {};
  });
}

gantry_error* gantry_memfd_create(const char* name, uint64_t bytes, int* fd) {
  return Enter([&]() -> Status {
    if (fd == nullptr) return Missing("fd");
    ASSIGN_OR_RETURN(UniqueFd made, CreateSealedMemfd(name != nullptr ? name : "gantry", bytes));
    *fd = made.release();
    return {};
  });
}

gantry_error* gantry_arena_create(gantry_client* client, uint64_t bytes, gantry_arena** arena) {
  return EnterObject(client, [&]() -> Status {
    if (arena == nullptr) return Missing("arena");
    ASSIGN_OR_RETURN(const UniqueFd fd, CreateSealedMemfd("gantry-arena", bytes));
    auto handle = std::make_unique<gantry_arena>();
    handle->session = client->session;
    ASSIGN_OR_RETURN(handle->arena,
                     client->session->memory().AddArena(fd.get(), RoundUpToPages(bytes), nullptr));
    *arena = handle.release();
    return {};
  });
}

gantry_error* gantry_arena_adopt(gantry_client* client, int fd, uint64_t bytes, void* address,
                                 gantry_arena** arena) {
  return EnterObject(client, [&]() -> Status {
    if (arena == nullptr) return Missing("arena");
    auto handle = std::make_unique<gantry_arena>();
    handle->session = client->session;
    ASSIGN_OR_RETURN(handle->arena, client->session->memory().AddArena(fd, bytes, address));
    *arena = handle.release();
    return {};
  });
}

gantry_error* gantry_arena_adopt_private(gantry_client* client, void* address, uint64_t bytes,
                                         uint32_t flags, gantry_arena** arena) {
  return EnterObject(client, [&]() -> Status {
    if (arena == nullptr) return Missing("arena");
    ASSIGN_OR_RETURN(const auto kind, KindOf(flags));
    if (client->session->link().is_closed()) return Fail(SidecarLink::Closed());
    auto handle = std::make_unique<gantry_arena>();
    handle->session = client->session;
    ASSIGN_OR_RETURN(handle->arena,
                     client->session->memory().private_memory().Adopt(address, bytes, kind));
    handle->holds = handle->arena != nullptr;
    *arena = handle->arena != nullptr ? handle.release() : nullptr;
    return {};
  });
}

void* gantry_arena_data(const gantry_arena* arena) { return arena->arena->data(); }
uint64_t gantry_arena_bytes(const gantry_arena* arena) { return arena->arena->bytes(); }
int gantry_arena_fd(const gantry_arena* arena) { return arena->arena->fd(); }

gantry_error* gantry_arena_close(gantry_arena* arena, uint64_t drain_ms) {
  return EnterObject(arena, [&]() -> Status {
    if (HasOtherHolders(*arena)) return {};
    return arena->session->memory().CloseArena(*arena->arena, drain_ms);
  });
}
gantry_error* gantry_arena_pin(gantry_arena* arena, int device, gantry_device_address* address) {
  return EnterObject(arena, [&]() -> Status {
    ASSIGN_OR_RETURN(const gpu::DeviceAddress at, arena->arena->Pin(device));
    if (address != nullptr) address->number = NumberOf(at);
    return {};
  });
}
gantry_error* gantry_arena_unpin(gantry_arena* arena) {
  return EnterObject(arena, [&] { return arena->arena->Unpin(); });
}
void gantry_arena_destroy(gantry_arena* arena) {
  Destroy(arena, [&]() -> Status {
    if (HasOtherHolders(*arena)) return {};
    return arena->session->memory().DropArena(*arena->arena);
  });
}

gantry_error* gantry_client_resolve(gantry_client* client, const void* address, uint64_t bytes,
                                    gantry_extent* extents, size_t capacity, size_t* count) {
  return EnterObject(client, [&]() -> Status {
    if (count == nullptr) return Missing("count");
    if (extents == nullptr && capacity != 0) return Missing("extents");
    ASSIGN_OR_RETURN(const auto found, client->session->memory().locator().Locate(address, bytes));
    std::copy_n(found.begin(), std::min(capacity, found.size()), extents);
    *count = found.size();
    return {};
  });
}

namespace {

gantry_error* Register(gantry_client* client, const gantry_buffer_spec* specs, size_t count,
                       WorkloadMemory::Trust trust, gantry_buffer** buffers) {
  return EnterObject(client, [&]() -> Status {
    if (specs == nullptr && count != 0) return Missing("specs");
    if (buffers == nullptr && count != 0) return Missing("buffers");
    // Handles first: once the sidecar has registered the buffers nothing may fail any more.
    std::vector<std::unique_ptr<gantry_buffer>> handles(count);
    for (auto& handle : handles) handle.reset(new gantry_buffer{client->session, nullptr});
    ASSIGN_OR_RETURN(auto registered,
                     client->session->memory().Register(std::span(specs, count), trust));
    for (size_t i = 0; i < count; ++i) {
      handles[i]->buffer = std::move(registered[i]);
      buffers[i] = handles[i].release();
    }
    return {};
  });
}

}  // namespace

gantry_error* gantry_buffers_register(gantry_client* client, const gantry_buffer_spec* specs,
                                      size_t count, gantry_buffer** buffers) {
  return Register(client, specs, count, WorkloadMemory::Trust::kBelieve, buffers);
}
gantry_error* gantry_buffers_register_verified(gantry_client* client,
                                               const gantry_buffer_spec* specs, size_t count,
                                               gantry_buffer** buffers) {
  return Register(client, specs, count, WorkloadMemory::Trust::kVerify, buffers);
}

const char* gantry_buffer_name(const gantry_buffer* buffer) { return buffer->buffer->name.c_str(); }
const char* gantry_buffer_id(const gantry_buffer* buffer) { return buffer->buffer->id.c_str(); }
const char* gantry_buffer_generation(const gantry_buffer* buffer) {
  return buffer->buffer->generation.c_str();
}
uint64_t gantry_buffer_bytes(const gantry_buffer* buffer) { return buffer->buffer->bytes; }
int gantry_buffer_is_registered(const gantry_buffer* buffer) {
  return buffer->buffer->registered ? 1 : 0;
}

gantry_error* gantry_buffer_unregister(gantry_buffer* buffer, uint64_t drain_ms) {
  return EnterObject(
      buffer, [&] { return buffer->session->memory().Unregister(buffer->buffer, drain_ms); });
}
gantry_error* gantry_buffer_unregister_report(gantry_buffer* buffer, uint64_t drain_ms,
                                              char** report) {
  return EnterObject(buffer, [&]() -> Status {
    if (report == nullptr) return Missing("report");
    *report = nullptr;
    std::string text;
    Status done = buffer->session->memory().Unregister(buffer->buffer, drain_ms, &text);
    *report = CopyText(text);
    return done;
  });
}
void gantry_buffer_destroy(gantry_buffer* buffer) {
  Destroy(buffer, [&] { return buffer->session->memory().Drop(buffer->buffer); });
}

gantry_error* gantry_buffers_suspend(gantry_client* client, gantry_buffer* const* buffers,
                                     size_t count, uint64_t drain_ms) {
  return EnterObject(client, [&]() -> Status {
    ASSIGN_OR_RETURN(const auto names, NamesOf(buffers, count));
    return client->session->memory().sleep().Suspend(names ? &*names : nullptr, drain_ms);
  });
}
gantry_error* gantry_buffers_resume(gantry_client* client, gantry_buffer* const* buffers,
                                    size_t count) {
  return EnterObject(client, [&]() -> Status {
    ASSIGN_OR_RETURN(const auto names, NamesOf(buffers, count));
    return client->session->memory().sleep().Resume(names ? &*names : nullptr);
  });
}
