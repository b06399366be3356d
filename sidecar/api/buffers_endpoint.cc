#include "sidecar/api/buffers_endpoint.h"

#include <algorithm>

#include "lib/base/byte_range.h"
#include "lib/base/random_id.h"
#include "lib/http/error_response.h"
#include "lib/wire/registration_body.h"
#include "lib/wire/request_bodies.h"
#include "sidecar/api/buffer_view.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/request_reading.h"

namespace gantry::api {
namespace {

using registry::Buffer;
using registry::BufferState;
using Buffers = std::vector<std::shared_ptr<Buffer>>;

constexpr uint64_t kDrainDefaultMs = 5'000;
// True when each name is registered already, so that registering makes nothing new.
bool AllExist(const ApiDependencies& api, const wire::RegistrationRequest& request) {
  return std::all_of(request.buffers.begin(), request.buffers.end(), [&](const auto& buffer) {
    return api.buffers.ByName(request.workload, buffer.name).has_value();
  });
}

// The buffers that a request names, or all of the workload's that are not going away.
Result<Buffers> NamedBuffers(const ApiDependencies& api, const wire::BufferNamesBody& body) {
  Buffers buffers;
  if (body.buffers) {
    for (size_t i = 0; i < body.buffers->size(); ++i) {
      auto buffer = api.buffers.ByName(body.workload, (*body.buffers)[i]);
      if (!buffer) {
        return Fail(std::move(buffer.error()).WithField("/buffers/" + std::to_string(i)));
      }
      buffers.push_back(std::move(*buffer));
    }
    return buffers;
  }
  std::string cursor;
  for (;;) {
    const Buffers page = api.buffers.List(body.workload, cursor, kPageMax);
    for (const auto& buffer : page) {
      const BufferState state = buffer->state();
      if (state == BufferState::kActive || state == BufferState::kSuspended) {
        buffers.push_back(buffer);
      }
    }
    if (page.size() < kPageMax) return buffers;
    cursor = page.back()->description().id;
  }
}

void WriteNames(std::string_view key, const Buffers& buffers, wire::BodyWriter* writer) {
  writer->Key(key).BeginList();
  for (const auto& buffer : buffers) writer->Text(buffer->description().name);
  writer->EndList();
}

void WriteReleases(const std::vector<registry::PeerRelease>& peers, wire::BodyWriter* writer) {
  writer->Key("peers").BeginList();
  for (const registry::PeerRelease& release : peers) {
    writer->BeginObject()
        .Field("name", release.peer)
        .Field("generation", HexOf(release.generation))
        .Field("path", wire::NameOf(release.path))
        .Field("outcome", registry::NameOf(release.outcome))
        .EndObject();
  }
  writer->EndList();
}

// Whoever takes a buffer back learns also from a failure which peers let go of it.
http::Response NotTakenBackReply(const Error& error,
                                 const std::vector<registry::PeerRelease>& peers) {
  if (error.code != ErrorCode::kDeadlineExceeded && error.code != ErrorCode::kDeviceError) {
    return http::ErrorResponse(error);
  }
  return http::ErrorResponse(error,
                             [&](wire::BodyWriter* writer) { WriteReleases(peers, writer); });
}

// The buffer, if the caller may act for its workload.
Result<std::shared_ptr<Buffer>> OwnBuffer(const ApiDependencies& api,
                                          const http::Request& request) {
  auto buffer = api.buffers.ById(request.name);
  // Whoever has no token at all learns nothing about which ids exist.
  if (!buffer) RETURN_IF_ERROR(AuthorizeAny(api.workloads, request));
  if (!buffer) return Fail(std::move(buffer.error()));
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, (*buffer)->description().workload));
  return buffer;
}

}  // namespace

Result<http::Response> PostBuffers(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::RegistrationRequest registration,
                   wire::ReadRegistrationBody(format, request.body));
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, registration.workload));
  const bool all_exist = AllExist(api, registration);
  auto buffers = api.buffers.Register(registration);
  api.metrics.RegistrationEnded(buffers.has_value(), registration.buffers.size());
  if (!buffers) return Fail(std::move(buffers.error()));
  const std::vector<wire::PathReport> paths = api.transfers.Paths();
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("buffers").BeginList();
  for (const auto& buffer : *buffers) WriteBuffer(*buffer, paths, &writer);
  writer.EndList().EndObject();
  return Reply(request, all_exist ? 200 : 201, std::move(writer));
}

Result<http::Response> GetBuffer(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const auto buffer, OwnBuffer(api, request));
  wire::BodyWriter writer = WriterFor(request);
  WriteBuffer(*buffer, api.transfers.Paths(), &writer);
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> ListBuffers(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadToList(api.workloads, request));
  ASSIGN_OR_RETURN(const size_t limit, QueryLimit(request, kPageDefault, kPageMax));
  const Buffers buffers = api.buffers.List(workload, QueryText(request, "cursor"), limit);
  const std::vector<wire::PathReport> paths = api.transfers.Paths();
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("buffers").BeginList();
  for (const auto& buffer : buffers) WriteBuffer(*buffer, paths, &writer);
  writer.EndList();
  if (buffers.size() == limit) writer.Field("next_cursor", buffers.back()->description().id);
  writer.EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DeleteBuffer(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const auto buffer, OwnBuffer(api, request));
  ASSIGN_OR_RETURN(const auto drain_ms, QueryNumber(request, "drain_ms"));
  const TimePoint deadline = WaitIfItMay(request, drain_ms.value_or(kDrainDefaultMs));
  std::vector<registry::PeerRelease> peers;
  if (Status removed = api.buffers.Remove(request.name, deadline, &peers); !removed) {
    return NotTakenBackReply(removed.error(), peers);
  }
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Field("id", request.name);
  WriteReleases(peers, &writer);
  writer.EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> ResolveBuffer(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::ResolveBody body, wire::ReadResolveBody(format, request.body));
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, body.workload));
  ASSIGN_OR_RETURN(const auto buffer, api.buffers.ByName(body.workload, body.buffer));
  if (!Fits(body.offset, body.length, buffer->length())) {
    return Fail(ErrorCode::kOutOfRange,
                std::to_string(body.length) + " bytes at " + std::to_string(body.offset) +
                    " are not within a buffer of " + std::to_string(buffer->length()) + " bytes",
                {}, "/offset");
  }
  const Buffer::Description& description = buffer->description();
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject()
      .Field("id", description.id)
      .Field("generation", HexOf(description.generation))
      .Key("extents")
      .BeginList();
  for (uint64_t done = 0; done < body.length;) {
    const memory::Extent extent = description.pieces.Locate(body.offset + done, body.length - done);
    writer.BeginObject()
        .Field("allocation_id", description.allocation_ids[extent.allocation])
        .Field("offset", extent.offset)
        .Field("length", extent.length)
        .EndObject();
    done += extent.length;
  }
  writer.EndList().EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> SuspendBuffers(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::BufferNamesBody body, wire::ReadSuspendBody(format, request.body));
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, body.workload));
  ASSIGN_OR_RETURN(const Buffers buffers, NamedBuffers(api, body));
  const TimePoint deadline = WaitIfItMay(request, body.drain_ms.value_or(kDrainDefaultMs));
  std::vector<registry::PeerRelease> peers;
  if (Status suspended = api.buffers.SuspendAll(buffers, deadline, &peers); !suspended) {
    return NotTakenBackReply(suspended.error(), peers);
  }
  if (body.releases_memory) api.buffers.ReleaseMemory(buffers);
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject();
  WriteNames("suspended", buffers, &writer);
  WriteReleases(peers, &writer);
  writer.EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> ResumeBuffers(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::BufferNamesBody body, wire::ReadResumeBody(format, request.body));
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, body.workload));
  ASSIGN_OR_RETURN(const Buffers buffers, NamedBuffers(api, body));
  for (const auto& buffer : buffers) {
    RETURN_IF_ERROR(api.buffers.Resume(buffer->description().id));
  }
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject();
  WriteNames("resumed", buffers, &writer);
  writer.EndObject();
  return Reply(request, 200, std::move(writer));
}

}  // namespace gantry::api
