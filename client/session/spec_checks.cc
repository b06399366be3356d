#include "client/session/spec_checks.h"

#include <cstdint>
#include <string>
#include <utility>

#include "client/session/message_bodies.h"
#include "lib/base/json_text.h"

namespace gantry::client {
namespace {

bool IsText(const char* text) { return text == nullptr || IsUtf8(text); }

// For a transfer that has groups.
Status CheckGroups(const gantry_transfer_spec& spec) {
  const auto wrong = [](std::string what, std::string field) {
    return Fail(ErrorCode::kInvalidArgument, std::move(what), {}, std::move(field));
  };
  if (spec.view == nullptr) return wrong("groups without a view", "view");
  if (spec.groups == nullptr) return wrong("groups is NULL", "groups");
  if (spec.block_count != 0 || spec.range_count != 0) {
    return wrong("groups beside blocks or ranges", "groups");
  }
  for (size_t i = 0; i < spec.group_count; ++i) {
    const gantry_block_group& group = spec.groups[i];
    const std::string field = "groups/" + std::to_string(i);
    if ((group.local_count != 0 && group.local_blocks == nullptr) ||
        (group.remote_count != 0 && group.remote_blocks == nullptr)) {
      return wrong("a list of blocks is NULL", field);
    }
    if (group.layer_count == 0 && group.first_layer != 0) {
      return wrong("there is a first layer, and layer_count is 0", field);
    }
    if (group.layer_count != 0 && group.first_layer > UINT64_MAX - group.layer_count) {
      return wrong("there are no such layers", field);
    }
  }
  return {};
}

}  // namespace

Status CheckSpec(const gantry_transfer_spec& spec) {
  const auto wrong = [](std::string what, std::string field) {
    return Fail(ErrorCode::kInvalidArgument, std::move(what), {}, std::move(field));
  };
  if (spec.operation != GANTRY_READ && spec.operation != GANTRY_WRITE) {
    return wrong(std::to_string(spec.operation) + " is neither GANTRY_READ nor GANTRY_WRITE",
                 "operation");
  }
  if (spec.executor < GANTRY_EXECUTOR_ANY || spec.executor > GANTRY_EXECUTOR_PEER) {
    return wrong(std::to_string(spec.executor) + " is none of GANTRY_EXECUTOR_ANY, _SELF and _PEER",
                 "executor");
  }
  if (spec.view != nullptr && (spec.local_count != 0 || spec.remote_count != 0)) {
    return wrong("both a view and buffers", "view");
  }
  if (spec.view == nullptr && (spec.remote == nullptr || spec.remote_count == 0)) {
    return wrong("no remote buffer", "remote");
  }
  for (size_t i = 0; i < spec.remote_count; ++i) {
    if (spec.remote[i] == nullptr) return wrong("a remote buffer is NULL", "remote");
  }
  if (spec.block_count != 0 && spec.range_count != 0) {
    return wrong("both blocks and ranges", "ranges");
  }
  if (spec.require_path != nullptr && *spec.require_path == '\0') {
    return wrong("no path is named; NULL stands for any", "require_path");
  }
  if (spec.notify != nullptr) RETURN_IF_ERROR(CheckMessage(*spec.notify));
  // The sidecar would get another text.
  const char* const request_id = spec.notify != nullptr ? spec.notify->request_id : nullptr;
  if (!IsText(spec.hold)) return wrong("it is not UTF-8", "hold");
  if (!IsText(spec.user_data)) return wrong("it is not UTF-8", "user_data");
  if (!IsText(request_id)) return wrong("it is not UTF-8", "notify/request_id");
  if (spec.group_count != 0) return CheckGroups(spec);
  if (spec.range_count == 0 && spec.block_count == 0 && spec.local_blocks == nullptr) {
    return wrong("neither blocks nor ranges", "ranges");
  }
  if (spec.range_count == 0 && (spec.local_blocks == nullptr || spec.remote_blocks == nullptr)) {
    return wrong("block_count without both lists of blocks", "local_blocks");
  }
  if (spec.range_count != 0 && spec.ranges == nullptr) return wrong("ranges is NULL", "ranges");
  return {};
}

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

}  // namespace gantry::client
