#include "client/session/transfer_body.h"

#include <algorithm>
#include <vector>

#include "client/include/gantry_messages.h"
#include "client/session/cbor_writer.h"
#include "lib/base/base64.h"
#include "lib/wire/transfer_request.h"

namespace gantry::client {
namespace {

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

void AppendBlocks(CborWriter* out, std::string_view key, std::span<const uint64_t> blocks) {
  out->Text(key);
  const bool narrow =
      std::all_of(blocks.begin(), blocks.end(), [](uint64_t block) { return block <= UINT32_MAX; });
  if (narrow && blocks.size() >= kPackedBlocksMin) return out->PackedUnsigned(blocks);
  out->Array(blocks.size());
  for (const uint64_t block : blocks) out->Unsigned(block);
}

void AppendRanges(CborWriter* out, std::span<const gantry_range> ranges) {
  out->Text("ranges");
  out->Array(ranges.size());
  for (const gantry_range& range : ranges) {
    out->Array(5);
    out->Unsigned(range.local_index);
    out->Unsigned(range.local_offset);
    out->Unsigned(range.remote_index);
    out->Unsigned(range.remote_offset);
    out->Unsigned(range.bytes);
  }
}

void AppendGroups(CborWriter* out, std::span<const gantry_block_group> groups) {
  out->Text("groups");
  out->Array(groups.size());
  for (const gantry_block_group& group : groups) {
    out->Map(3u + (group.layer_count != 0));
    out->Text("group");
    out->Unsigned(group.group);
    AppendBlocks(out, "local_blocks", std::span(group.local_blocks, group.local_count));
    AppendBlocks(out, "remote_blocks", std::span(group.remote_blocks, group.remote_count));
    if (group.layer_count == 0) continue;
    out->Text("layers");
    out->Array(2);
    out->Unsigned(group.first_layer);
    out->Unsigned(group.first_layer + group.layer_count - 1);
  }
}

void AppendFence(CborWriter* out, const gantry_fence& fence, std::string_view buffer) {
  out->Text("fence");
  out->Map(4);
  out->Text("type");
  out->Text("timeline");
  out->Text("buffer");
  out->Text(buffer);
  out->Text("offset");
  out->Unsigned(fence.offset);
  out->Text("value");
  out->Unsigned(fence.value);
}

void AppendBuffers(CborWriter* out, const gantry_transfer_spec& spec,
                   const TransferObjects& objects) {
  if (!objects.view.empty()) {
    out->Text("view");
    return out->Text(objects.view);
  }
  out->Text("local");
  out->Array(objects.local.size());
  for (const std::string& reference : objects.local) out->Text(reference);
  out->Text("remote");
  out->Array(spec.remote_count);
  for (size_t i = 0; i < spec.remote_count; ++i) out->Text(spec.remote[i]);
}

void AppendSide(CborWriter* out, std::string_view side, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;
  out->Text(side);
  out->Map(2);
  out->Text("offset");
  out->Unsigned(offset);
  out->Text("length");
  out->Unsigned(bytes);
}

void AppendPairs(CborWriter* out, std::span<const gantry_view_pair> pairs) {
  out->Text("pairs");
  if (pairs.empty()) return out->Text("by_name");
  out->Array(pairs.size());
  for (const gantry_view_pair& pair : pairs) {
    if (pair.remote != nullptr) out->Array(2);
    out->Text(pair.local);
    if (pair.remote != nullptr) out->Text(pair.remote);
  }
}

void AppendViewGroup(CborWriter* out, const gantry_view_group& group) {
  const bool has_ratio = group.local_ratio != 0 || group.remote_ratio != 0;
  out->Map(2u + (group.slice_count != 0) + has_ratio);
  out->Text("group");
  out->Unsigned(group.group);
  AppendPairs(out, std::span(group.pairs, group.pair_count));
  if (group.slice_count != 0) {
    out->Text("slice");
    out->Array(group.slice_count);
    for (const gantry_block_slice& slice : std::span(group.slices, group.slice_count)) {
      out->Map(uint64_t{slice.local_bytes != 0} + (slice.remote_bytes != 0));
      AppendSide(out, "local", slice.local_offset, slice.local_bytes);
      AppendSide(out, "remote", slice.remote_offset, slice.remote_bytes);
    }
  }
  if (!has_ratio) return;
  out->Text("block_ratio");
  out->Map(2);
  out->Text("local");
  out->Unsigned(std::max(group.local_ratio, 1u));
  out->Text("remote");
  out->Unsigned(std::max(group.remote_ratio, 1u));
}

void AppendMessage(CborWriter* out, const gantry_message& message) {
  out->Text("notify");
  out->Map(2u + (message.request_id != nullptr));
  out->Text("to");
  out->Text(message.to);
  out->Text("message");
  out->Text(Base64Of({static_cast<const char*>(message.data), message.bytes}));
  if (message.request_id == nullptr) return;
  out->Text("request_id");
  out->Text(message.request_id);
}

}  // namespace

std::string ViewBody(std::string_view workload, std::string_view id, const gantry_view_spec& spec) {
  static constexpr gantry_view_group kAllByName = {};
  const auto groups =
      spec.group_count == 0 ? std::span(&kAllByName, 1) : std::span(spec.groups, spec.group_count);
  CborWriter out(1024);
  out.Map(4u + (spec.peer != nullptr));
  out.Text("id");
  out.Text(id);
  out.Text("workload");
  out.Text(workload);
  if (spec.peer != nullptr) {
    out.Text("peer");
    out.Text(spec.peer);
  }
  out.Text("remote_workload");
  out.Text(spec.remote_workload);
  out.Text("groups");
  out.Array(groups.size());
  for (const gantry_view_group& group : groups) AppendViewGroup(&out, group);
  return std::move(out).Take();
}

std::string TransferBody(std::string_view workload, std::string_view id,
                         const gantry_transfer_spec& spec, const TransferObjects& objects) {
  const bool by_groups = spec.group_count != 0;
  const bool by_blocks = spec.range_count == 0;
  const bool has_fence = spec.fence != nullptr;
  const std::vector<std::string_view> paths = SplitAtCommas(spec.require_path);
  const bool has_paths = spec.require_path != nullptr;
  CborWriter out(1024 + 10 * spec.block_count + 40 * spec.range_count);
  out.Map(3u + (objects.view.empty() ? 2 : 1) + (by_blocks && !by_groups ? 2 : 1) + has_fence +
          (spec.deadline_ms != 0) + (spec.priority != 0) + has_paths + (spec.user_data != nullptr) +
          (spec.hold != nullptr) + (spec.hold_consumers != nullptr) + (spec.notify != nullptr) +
          (spec.executor != GANTRY_EXECUTOR_ANY));
  out.Text("id");
  out.Text(id);
  out.Text("workload");
  out.Text(workload);
  out.Text("op");
  out.Text(spec.operation == GANTRY_WRITE ? "write" : "read");
  AppendBuffers(&out, spec, objects);
  if (by_groups) {
    AppendGroups(&out, std::span(spec.groups, spec.group_count));
  } else if (by_blocks) {
    AppendBlocks(&out, "local_blocks", std::span(spec.local_blocks, spec.block_count));
    AppendBlocks(&out, "remote_blocks", std::span(spec.remote_blocks, spec.block_count));
  } else {
    AppendRanges(&out, std::span(spec.ranges, spec.range_count));
  }
  if (has_fence) AppendFence(&out, *spec.fence, objects.fence);
  if (spec.deadline_ms != 0) {
    out.Text("deadline_ms");
    out.Unsigned(spec.deadline_ms);
  }
  if (spec.priority != 0) {
    out.Text("priority");
    out.Signed(spec.priority);
  }
  if (has_paths) {
    out.Text("require_path");
    out.Array(paths.size());
    for (const std::string_view path : paths) out.Text(path);
  }
  if (spec.user_data != nullptr) {
    out.Text("user_data");
    out.Text(spec.user_data);
  }
  if (spec.hold != nullptr) {
    out.Text("hold");
    out.Text(spec.hold);
  }
  if (spec.hold_consumers != nullptr) {
    out.Text("hold_consumers");
    out.Unsigned(*spec.hold_consumers);
  }
  if (spec.notify != nullptr) AppendMessage(&out, *spec.notify);
  if (spec.executor != GANTRY_EXECUTOR_ANY) {
    out.Text("executor");
    out.Text(NameOf(static_cast<wire::Executor>(spec.executor)));
  }
  return std::move(out).Take();
}

}  // namespace gantry::client
