#include "sidecar/plan/overlap_check.h"

#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <set>
#include <string>

#include "sidecar/plan/block_planner.h"

namespace gantry::engine {
namespace {

using File = memory::MemoryIdentity;
constexpr uint64_t kNoDevice = ~uint64_t{0};

// Bytes [begin, end) of one file; `item` is an item of the plan.
struct Span {
  File file;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t item = 0;

  bool operator<(const Span& other) const {
    return file != other.file ? file < other.file : begin < other.begin;
  }
};

void SortSpans(std::vector<Span>* spans) {
  if (!std::is_sorted(spans->begin(), spans->end())) std::sort(spans->begin(), spans->end());
}

// The first two of sorted spans that share a byte.
std::optional<std::pair<Span, Span>> FirstCollision(const std::vector<Span>& spans) {
  for (size_t i = 1; i < spans.size(); ++i) {
    const Span& before = spans[i - 1];
    if (before.file == spans[i].file && spans[i].begin < before.end) {
      return std::make_pair(before, spans[i]);
    }
  }
  return std::nullopt;
}

// The first pair that shares a byte; `a` is sorted and free of collisions, `b` is sorted.
std::optional<std::pair<Span, Span>> FirstCollision(const std::vector<Span>& a,
                                                    const std::vector<Span>& b) {
  size_t i = 0;
  for (const Span& span : b) {
    const auto before = [&](const Span& other) {
      return other.file != span.file ? other.file < span.file : other.end <= span.begin;
    };
    while (i < a.size() && before(a[i])) ++i;
    if (i < a.size() && a[i].file == span.file && a[i].begin < span.end) {
      return std::make_pair(a[i], span);
    }
  }
  return std::nullopt;
}

File FileOf(const memory::MappedAllocation* allocation) {
  return allocation == nullptr ? File{} : allocation->identity();
}

// Of memory that this side does not map only the buffer is known, and nothing local overlaps it.
File FileOf(const transport::RemoteAllocation& remote) {
  if (remote.target == nullptr || remote.mapped != nullptr) return FileOf(remote.mapped.get());
  return {kNoDevice, reinterpret_cast<uintptr_t>(remote.target.get())};
}

// `once`: a buffer that is named several times counts once, as a source may be.
std::vector<Span> SpansOf(const PlanInput& input, bool local, bool once) {
  std::vector<Span> spans;
  absl::flat_hash_set<const memory::PieceMap*> seen;
  if (once) seen.reserve((local ? input.local : input.remote).size());
  for (const PlanBuffer& buffer : local ? input.local : input.remote) {
    if (once && !seen.insert(buffer.pieces).second) continue;
    for (const wire::Piece& piece : buffer.pieces->pieces()) {
      const uint32_t index = buffer.allocations[piece.allocation];
      const File file = local ? FileOf(input.local_allocations[index].get())
                              : FileOf(input.remote_allocations[index]);
      spans.push_back({file, piece.offset, piece.offset + piece.length, 0});
    }
  }
  SortSpans(&spans);
  return spans;
}

std::vector<Span> SpansOf(const transport::MovePlan& plan, bool local) {
  std::vector<Span> spans;
  spans.reserve(plan.segments.size());
  for (const transport::MoveSegment& segment : plan.segments) {
    const File file = local ? FileOf(plan.local[segment.local_allocation].get())
                            : FileOf(plan.remote[segment.remote_allocation]);
    uint64_t begin = local ? segment.local_offset : segment.remote_offset;
    const uint64_t stride = local ? segment.local_stride : segment.remote_stride;
    for (uint32_t i = 0; i < segment.count; ++i, begin += stride) {
      // A strided segment holds one item a block; any other names its first.
      const uint32_t item = segment.first_item + (segment.by_rows ? 0 : i);
      spans.push_back({file, begin, begin + segment.length, item});
    }
  }
  SortSpans(&spans);
  return spans;
}

bool MayShareAllocation(const transport::MovePlan& plan) {
  std::set<File> files;
  for (const auto& local : plan.local) files.insert(local->identity());
  return std::any_of(plan.remote.begin(), plan.remote.end(),
                     [&](const auto& remote) { return files.contains(FileOf(remote)); });
}

}  // namespace

bool BuffersMayCollide(const PlanInput& input) {
  const bool read = input.request->operation == wire::Operation::kRead;
  const std::vector<Span> destination = SpansOf(input, read, false);
  return FirstCollision(destination).has_value() ||
         FirstCollision(destination, SpansOf(input, !read, true)).has_value();
}

Status CheckOverlap(const transport::MovePlan& plan, const PlanInput& input) {
  const bool read = plan.operation == wire::Operation::kRead;
  const std::vector<Span> destination = SpansOf(plan, read);
  auto collision = FirstCollision(destination);
  const bool with_source = !collision && MayShareAllocation(plan);
  if (with_source) collision = FirstCollision(destination, SpansOf(plan, !read));
  if (!collision) return {};
  const auto request_item = [&](const Span& span) {
    return plan.item_order.empty() ? span.item : plan.item_order[span.item];
  };
  const uint32_t a = request_item(collision->first);
  const uint32_t b = request_item(collision->second);
  return Fail(ErrorCode::kOverlap,
              "the destination of item " + std::to_string(a) + " shares bytes with the " +
                  (with_source ? "source" : "destination") + " of item " + std::to_string(b),
              "name each destination byte once, and none that is also a source",
              DestinationField(input, std::max(a, b)));
}

}  // namespace gantry::engine
