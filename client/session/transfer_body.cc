#include "client/session/transfer_body.h"

#include <algorithm>
#include <array>
#include <vector>

#include "client/include/gantry_messages.h"
#include "lib/base/base64.h"
#include "lib/codec/body_writer.h"
#include "lib/wire/transfer_request.h"

namespace gantry::client {
namespace {

using wire::BodyWriter;

static_assert(GANTRY_EXECUTOR_ANY == static_cast<int>(wire::Executor::kAny));
static_assert(GANTRY_EXECUTOR_SELF == static_cast<int>(wire::Executor::kSelf));
static_assert(GANTRY_EXECUTOR_PEER == static_cast<int>(wire::Executor::kPeer));

constexpr size_t kPackedBlocksMin = 16;  // shorter lists stay readable in a trace

std::vector<std::string_view> SplitAtCommas(const char* list) {
  std::vector<std::string_view> items;
  std::string_view rest = list == nullptr ? "" : list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    items.push_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return items;
}

void WriteBlocks(BodyWriter& out, std::string_view key, std::span<const uint64_t> blocks) {
  const bool narrow =
      std::all_of(blocks.begin(), blocks.end(), [](uint64_t block) { return block <= UINT32_MAX; });
  if (narrow && blocks.size() >= kPackedBlocksMin) {
    out.Key(key).Packed(blocks);
  } else {
    out.Field(key, blocks);
  }
}

void WriteRanges(BodyWriter& out, std::span<const gantry_range> ranges) {
  out.Key("ranges").BeginList();
  for (const gantry_range& range : ranges) {
    out.Write(std::array<uint64_t, 5>{range.local_index, range.local_offset, range.remote_index,
                                      range.remote_offset, range.bytes});
  }
  out.EndList();
}

void WriteGroups(BodyWriter& out, std::span<const gantry_block_group> groups) {
  out.Key("groups").BeginList();
  for (const gantry_block_group& group : groups) {
    out.BeginObject().Field("group", group.group);
    WriteBlocks(out, "local_blocks", std::span(group.local_blocks, group.local_count));
    WriteBlocks(out, "remote_blocks", std::span(group.remote_blocks, group.remote_count));
    if (group.layer_count != 0) {
      out.Key("layers").BeginList().Unsigned(group.first_layer);
      out.Unsigned(group.first_layer + group.layer_count - 1).EndList();
    }
    out.EndObject();
  }
  out.EndList();
}

void WriteBuffers(BodyWriter& out, const gantry_transfer_spec& spec,
                  const TransferObjects& objects) {
  if (!objects.view.empty()) {
    out.Field("view", objects.view);
  } else {
    out.Field("local", objects.local).Field("remote", std::span(spec.remote, spec.remote_count));
  }
}

void WriteSide(BodyWriter& out, std::string_view side, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;
  out.Key(side).BeginObject().Field("offset", offset).Field("length", bytes).EndObject();
}

void WritePairs(BodyWriter& out, std::span<const gantry_view_pair> pairs) {
  out.Key("pairs");
  if (pairs.empty()) {
    out.Text("by_name");
    return;
  }
  out.BeginList();
  for (const gantry_view_pair& pair : pairs) {
    if (pair.remote == nullptr) {
      out.Text(pair.local);
    } else {
      out.BeginList().Text(pair.local).Text(pair.remote).EndList();
    }
  }
  out.EndList();
}

void WriteViewGroup(BodyWriter& out, const gantry_view_group& group) {
  out.BeginObject().Field("group", group.group);
  WritePairs(out, std::span(group.pairs, group.pair_count));
  if (group.slice_count != 0) {
    out.Key("slice").BeginList();
    for (const gantry_block_slice& slice : std::span(group.slices, group.slice_count)) {
      out.BeginObject();
      WriteSide(out, "local", slice.local_offset, slice.local_bytes);
      WriteSide(out, "remote", slice.remote_offset, slice.remote_bytes);
      out.EndObject();
    }
    out.EndList();
  }
  if (group.local_ratio != 0 || group.remote_ratio != 0) {
    out.Key("block_ratio").BeginObject().Field("local", std::max(group.local_ratio, 1u));
    out.Field("remote", std::max(group.remote_ratio, 1u)).EndObject();
  }
  out.EndObject();
}

void WriteMessage(BodyWriter& out, const gantry_message& message) {
  out.Key("notify").BeginObject().Field("to", message.to);
  out.Field("message", Base64Of({static_cast<const char*>(message.data), message.bytes}));
  if (message.request_id != nullptr) out.Field("request_id", message.request_id);
  out.EndObject();
}

}  // namespace

std::string ViewBody(std::string_view workload, std::string_view id, const gantry_view_spec& spec) {
  static constexpr gantry_view_group kAllByName = {};
  const auto groups =
      spec.group_count == 0 ? std::span(&kAllByName, 1) : std::span(spec.groups, spec.group_count);
  BodyWriter out(wire::BodyFormat::kCbor);
  out.BeginObject().Field("id", id).Field("workload", workload);
  if (spec.peer != nullptr) out.Field("peer", spec.peer);
  out.Field("remote_workload", spec.remote_workload).Key("groups").BeginList();
  for (const gantry_view_group& group : groups) WriteViewGroup(out, group);
  return out.EndList().EndObject().Take();
}

std::string TransferBody(std::string_view workload, std::string_view id,
                         const gantry_transfer_spec& spec, const TransferObjects& objects) {
  BodyWriter out(wire::BodyFormat::kCbor, 8 * spec.block_count + 40 * spec.range_count);
  out.BeginObject().Field("id", id).Field("workload", workload);
  out.Field("op", spec.operation == GANTRY_WRITE ? "write" : "read");
  WriteBuffers(out, spec, objects);
  if (spec.group_count != 0) {
    WriteGroups(out, std::span(spec.groups, spec.group_count));
  } else if (spec.range_count == 0) {
    WriteBlocks(out, "local_blocks", std::span(spec.local_blocks, spec.block_count));
    WriteBlocks(out, "remote_blocks", std::span(spec.remote_blocks, spec.block_count));
  } else {
    WriteRanges(out, std::span(spec.ranges, spec.range_count));
  }
  if (spec.fence != nullptr) {
    out.Key("fence").BeginObject().Field("type", "timeline").Field("buffer", objects.fence);
    out.Field("offset", spec.fence->offset).Field("value", spec.fence->value).EndObject();
  }
  if (spec.deadline_ms != 0) out.Field("deadline_ms", spec.deadline_ms);
  if (spec.priority != 0) out.Field("priority", spec.priority);
  if (spec.require_path != nullptr) out.Field("require_path", SplitAtCommas(spec.require_path));
  if (spec.user_data != nullptr) out.Field("user_data", spec.user_data);
  if (spec.hold != nullptr) out.Field("hold", spec.hold);
  if (spec.hold_consumers != nullptr) out.Field("hold_consumers", *spec.hold_consumers);
  if (spec.notify != nullptr) WriteMessage(out, *spec.notify);
  if (spec.executor != GANTRY_EXECUTOR_ANY) {
    out.Field("executor", NameOf(static_cast<wire::Executor>(spec.executor)));
  }
  return out.EndObject().Take();
}

}  // namespace gantry::client
