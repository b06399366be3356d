#include "client/transfer_body.h"

#include <algorithm>
#include <vector>

#include "client/cbor_writer.h"

namespace gantry::client {
namespace {

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

}  // namespace

std::string TransferBody(std::string_view workload, std::string_view id,
                         const gantry_transfer_spec& spec, std::span<const std::string> local) {
  const bool by_blocks = spec.range_count == 0;
  const std::vector<std::string_view> paths = SplitAtCommas(spec.require_path);
  const bool has_paths = spec.require_path != nullptr;
  CborWriter out(1024 + 10 * spec.block_count + 40 * spec.range_count);
  out.Map(5u + (by_blocks ? 2 : 1) + (spec.deadline_ms != 0) + (spec.priority != 0) + has_paths +
          (spec.user_data != nullptr));
  out.Text("id");
  out.Text(id);
  out.Text("workload");
  out.Text(workload);
  out.Text("op");
  out.Text(spec.operation == GANTRY_WRITE ? "write" : "read");
  out.Text("local");
  out.Array(local.size());
  for (const std::string& reference : local) out.Text(reference);
  out.Text("remote");
  out.Array(spec.remote_count);
  for (size_t i = 0; i < spec.remote_count; ++i) out.Text(spec.remote[i]);
  if (by_blocks) {
    AppendBlocks(&out, "local_blocks", std::span(spec.local_blocks, spec.block_count));
    AppendBlocks(&out, "remote_blocks", std::span(spec.remote_blocks, spec.block_count));
  } else {
    AppendRanges(&out, std::span(spec.ranges, spec.range_count));
  }
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
  return std::move(out).Take();
}

}  // namespace gantry::client
