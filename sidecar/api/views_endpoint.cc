#include "sidecar/api/views_endpoint.h"

#include "lib/base/random_id.h"
#include "lib/wire/view_body.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/request_reading.h"
#include "sidecar/view/view_table.h"

namespace gantry::api {
namespace {

using engine::View;
using engine::ViewGroupInfo;
using engine::ViewTable;

constexpr uint64_t kResolveMs = 10'000;
enum class Pairs { kShown, kCounted };

void WritePairs(const View& view, wire::BodyWriter* writer) {
  writer->Key("pairs").BeginList();
  for (const ViewGroupInfo& group : view.groups) {
    for (size_t i = group.first_pair; i < group.first_pair + group.pairs; ++i) {
      writer->BeginObject()
          .Field("group", group.group)
          .Field("local", FormatReference(view.local[i]))
          .Field("remote", FormatReference(view.remote[i]))
          .EndObject();
    }
  }
  writer->EndList();
}

void WriteView(const View& view, Pairs pairs, wire::BodyWriter* writer) {
  writer->BeginObject()
      .Field("id", view.id)
      .Field("workload", view.request.workload)
      .Field("peer", view.request.peer)
      .Field("remote_workload", view.request.remote_workload)
      .OptionalField("remote_generation", view.request.remote_generation == 0
                                              ? std::string()
                                              : HexOf(view.request.remote_generation))
      .Field("pair_count", view.pairs.size())
      .Field("bytes_per_block", view.bytes_per_block)
      .Key("groups")
      .BeginList();
  for (const ViewGroupInfo& group : view.groups) {
    writer->BeginObject()
        .Field("group", group.group)
        .Field("pair_count", group.pairs)
        .Field("bytes_per_block", group.bytes_per_block)
        .EndObject();
  }
  writer->EndList();
  if (pairs == Pairs::kShown) WritePairs(view, writer);
  writer->Field("warnings", view.warnings).EndObject();
}

}  // namespace

Result<http::Response> PostViews(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::ViewRequest asked, wire::ReadViewBody(format, request.body));
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, asked.workload));
  ASSIGN_OR_RETURN(const TimePoint deadline,
                   WaitUntil(request, asked.peer.empty() ? 0 : kResolveMs));
  bool is_new = false;
  ASSIGN_OR_RETURN(const auto view, api.transfers.views().Make(asked, deadline, &is_new));
  wire::BodyWriter writer = WriterFor(request);
  WriteView(*view, Pairs::kShown, &writer);
  return Reply(request, is_new ? 201 : 200, std::move(writer));
}

Result<http::Response> ListViews(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadToList(api.workloads, request));
  ASSIGN_OR_RETURN(const size_t limit, QueryLimit(request, kPageDefault, kPageMax));
  const auto views = api.transfers.views().List(workload, QueryText(request, "cursor"), limit);
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("views").BeginList();
  for (const auto& view : views) WriteView(*view, Pairs::kCounted, &writer);
  writer.EndList();
  if (views.size() == limit) writer.Field("next_cursor", ViewTable::CursorOf(*views.back()));
  writer.EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> GetView(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadOfQuery(api.workloads, request));
  ASSIGN_OR_RETURN(const auto view, api.transfers.views().Get(workload, request.name));
  wire::BodyWriter writer = WriterFor(request);
  WriteView(*view, Pairs::kShown, &writer);
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DeleteView(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadOfQuery(api.workloads, request));
  RETURN_IF_ERROR(api.transfers.views().Remove(workload, request.name));
  return NoContent();
}

}  // namespace gantry::api
