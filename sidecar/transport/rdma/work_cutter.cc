#include "sidecar/transport/rdma/work_cutter.h"

#include <algorithm>
#include <string>

namespace gantry::transport {
namespace {

// Of one block of a segment.
struct ItemRange {
  uint32_t first = 0;
  uint32_t count = 0;

  uint32_t end() const { return first + count; }
};

ItemRange ItemsOf(const MoveSegment& segment, uint32_t block) {
  const bool one_each = !segment.by_rows && segment.count > 1 && segment.items == segment.count;
  if (one_each) return {segment.first_item + block, 1};
  return {segment.first_item, segment.items};
}

}  // namespace

template <typename Stretch>
template <typename Lookup>
Stretch WorkCutter::Known<Stretch>::At(uint32_t of, uint64_t at, const Lookup& lookup) {
  if (of != allocation || at - offset >= stretch.length) {
    *this = {of, at, lookup()};
    return stretch;
  }
  Stretch rest = stretch;
  rest.address += at - offset;
  rest.length -= at - offset;
  return rest;
}

WorkCutter::WorkCutter(const MovePlan& plan, const Stretches& stretches, uint64_t bytes_max)
    : stretches_(stretches),
      bytes_max_(bytes_max == 0 ? kWorkRequestBytesMax : std::min(bytes_max, kWorkRequestBytesMax)),
      next_(plan.segments.begin()),
      end_(plan.segments.end()) {
  segment_.count = 0;
}

bool WorkCutter::FindBlock() {
  while (block_ >= segment_.count || segment_.length == 0) {
    if (!(next_ != end_)) return false;
    segment_ = *next_;
    ++next_;
    block_ = 0;
  }
  return true;
}

void WorkCutter::Advance(uint64_t bytes) {
  piece_.length = 0;
  within_ += bytes;
  if (within_ < segment_.length) return;
  within_ = 0;
  ++block_;
}

bool WorkCutter::FillPiece() {
  if (piece_.length != 0) return true;
  const uint32_t here = segment_.local_allocation;
  const uint32_t there = segment_.remote_allocation;
  const uint64_t local_at = segment_.local_offset + block_ * segment_.local_stride + within_;
  const uint64_t remote_at = segment_.remote_offset + block_ * segment_.remote_stride + within_;
  piece_.local = local_.At(here, local_at, [&] { return stretches_.Local(here, local_at); });
  piece_.remote = remote_.At(there, remote_at, [&] { return stretches_.Remote(there, remote_at); });
  piece_.length = std::min({segment_.length - within_, piece_.local.length, piece_.remote.length});
  const ItemRange items = ItemsOf(segment_, block_);
  piece_.first_item = items.first;
  piece_.items = items.count;
  return piece_.length != 0;
}

Result<bool> WorkCutter::Next(WorkRequest* request) {
  if (!FindBlock()) return false;
  if (!FillPiece()) return Fail(Unregistered());
  request->local_address = piece_.local.address;
  request->remote_address = piece_.remote.address;
  request->local_region = piece_.local.region;
  request->remote_chunk = piece_.remote.chunk;
  uint64_t length = std::min(piece_.length, bytes_max_);
  ItemRange items = {piece_.first_item, piece_.items};
  Advance(length);
  while (length < bytes_max_ && FindBlock()) {
    // What cannot be looked up is reported when it is the beginning of a work request.
    if (!FillPiece()) break;
    const bool continues = piece_.local.address == request->local_address + length &&
                           piece_.remote.address == request->remote_address + length &&
                           piece_.local.region == request->local_region &&
                           piece_.remote.chunk == request->remote_chunk;
    // Items with others between them would be blamed together with these.
    const uint32_t items_end = piece_.first_item + piece_.items;
    if (!continues || piece_.first_item > items.end() || items_end < items.first) break;
    const uint32_t first = std::min(items.first, piece_.first_item);
    items = {first, std::max(items.end(), items_end) - first};
    const uint64_t more = std::min(piece_.length, bytes_max_ - length);
    length += more;
    Advance(more);
  }
  request->length = static_cast<uint32_t>(length);
  request->first_item = items.first;
  request->items = items.count;
  return true;
}

Error WorkCutter::Unregistered() const {
  const bool local = local_.stretch.length == 0;
  const uint64_t offset = local ? local_.offset : remote_.offset;
  const uint32_t allocation = local ? local_.allocation : remote_.allocation;
  return Error(ErrorCode::kUnregistered,
               "byte " + std::to_string(offset) + (local ? " of local" : " of the peer's") +
                   " allocation " + std::to_string(allocation) +
                   " of the plan is in no memory region of the chosen NIC",
               local ? "register the buffer again, or use another path"
                     : "the peer may have registered the buffer anew: fetch its descriptor again");
}

std::vector<uint32_t> WorkCutter::ItemsLeft() const {
  std::vector<bool> left;
  const auto add = [&left](const ItemRange& items) {
    if (left.size() < items.end()) left.resize(items.end());
    std::fill_n(left.begin() + items.first, items.count, true);
  };
  if (segment_.length != 0) {
    for (uint32_t block = block_; block < segment_.count; ++block) add(ItemsOf(segment_, block));
  }
  for (SegmentList::Iterator segment = next_; segment != end_; ++segment) {
    const MoveSegment rest = *segment;
    add({rest.first_item, rest.items});
  }
  std::vector<uint32_t> items;
  for (uint32_t item = 0; item < left.size(); ++item) {
    if (left[item]) items.push_back(item);
  }
  return items;
}

}  // namespace gantry::transport
