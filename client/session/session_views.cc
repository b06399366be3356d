// The part of WorkloadSession that is about views.
#include <utility>

#include "client/session/transfer_body.h"
#include "client/session/workload_session.h"
#include "lib/base/name.h"

namespace gantry::client {
namespace {

Status CheckSpec(const gantry_view_spec& spec) {
  const auto wrong = [](std::string what, std::string field) {
    return Fail(ErrorCode::kInvalidArgument, std::move(what), {}, std::move(field));
  };
  if (spec.remote_workload == nullptr) return wrong("no remote workload", "remote_workload");
  if (spec.group_count != 0 && spec.groups == nullptr) return wrong("groups is NULL", "groups");
  for (size_t i = 0; i < spec.group_count; ++i) {
    const gantry_view_group& group = spec.groups[i];
    const std::string field = "groups/" + std::to_string(i);
    if (group.pair_count != 0 && group.pairs == nullptr) return wrong("pairs is NULL", field);
    if (group.slice_count != 0 && group.slices == nullptr) return wrong("slices is NULL", field);
    for (size_t k = 0; k < group.pair_count; ++k) {
      if (group.pairs[k].local == nullptr) return wrong("a pair has no local buffer", field);
    }
    for (size_t k = 0; k < group.slice_count; ++k) {
      const gantry_block_slice& slice = group.slices[k];
      if ((slice.local_bytes == 0 && slice.local_offset != 0) ||
          (slice.remote_bytes == 0 && slice.remote_offset != 0)) {
        return wrong("a slice has an offset and no bytes", field + "/slices/" + std::to_string(k));
      }
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<ViewRecord>> WorkloadSession::MakeView(const gantry_view_spec& spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  const std::string id = spec.id != nullptr
                             ? spec.id
                             : "v-" + generation() + "-" + std::to_string(views_made_.fetch_add(1));
  RETURN_IF_ERROR(CheckName(id, "id"));
  const std::string request = ViewBody(workload(), id, spec);
  ASSIGN_OR_RETURN(std::string body, Ask({.method = "POST",
                                          .target = "/v1/views",
                                          .body = request,
                                          .body_type = kCborBodyType,
                                          .repeatable = true,  // it names what it makes
                                          .timeout = 2 * options_.timeout}));
  ASSIGN_OR_RETURN(ViewAnswer answer, ReadView(std::move(body)));
  return std::make_shared<ViewRecord>(std::move(answer));
}

std::string WorkloadSession::ViewTarget(const ViewRecord& view) const {
  return "/v1/views/" + UrlEscape(view.id()) + "?workload=" + UrlEscape(workload());
}

Status WorkloadSession::Drop(ViewRecord& view) {
  Status done;
  bool unheard = silence_.IsOn();
  if (!unheard) {
    done = DeleteView(view);
    unheard = !done && done.error().code == ErrorCode::kDeadlineExceeded;
  }
  if (unheard && !closed_ && !view.deleted()) silence_.KeepTarget(ViewTarget(view));
  return done;
}

Status WorkloadSession::DeleteView(ViewRecord& view) {
  if (closed_ || view.deleted().exchange(true)) return {};
  const std::string target = ViewTarget(view);
  auto answer =
      Ask({.method = "DELETE", .target = target, .repeatable = true, .timeout = options_.timeout});
  if (answer || answer.error().code == ErrorCode::kNotFound) return {};
  view.deleted() = false;
  return Fail(std::move(answer).error());
}

}  // namespace gantry::client
