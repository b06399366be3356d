#include "sidecar/view/view_resolver.h"

#include <algorithm>
#include <utility>

#include "lib/base/random_id.h"

namespace gantry::engine {
namespace {

using registry::Buffer;
using registry::BufferState;
using wire::BufferReference;

constexpr size_t kPage = 1'000;

// `*` stands for any characters.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t star = std::string_view::npos;  // the last one that was passed
  size_t resume = 0;                     // what it stands for ends here
  size_t p = 0;
  size_t n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Buffers of the workload that are there, in the order in which they were registered.
std::vector<std::shared_ptr<Buffer>> BuffersOf(const registry::BufferRegistry& registry,
                                               const std::string& workload) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::string cursor;
  for (;;) {
    const auto page = registry.List(workload, cursor, kPage);
    for (const auto& buffer : page) {
      const BufferState state = buffer->state();
      if (state == BufferState::kActive || state == BufferState::kSuspended) {
        buffers.push_back(buffer);
      }
    }
    if (page.size() < kPage) return buffers;
    cursor = page.back()->description().id;
  }
}

std::string NameOfPair(const View& view, size_t pair) {
  return "pair " + std::to_string(pair) + ", '" + view.pairs[pair].local.buffer + "' with '" +
         FormatReference(view.remote[pair]) + "'";
}

tl::unexpected<Error> OfViewPair(Error error, const View& view, size_t pair) {
  return Fail(std::move(error).WithContext(NameOfPair(view, pair)).WithField(view.fields[pair]));
}

Status CheckGeneration(const BufferReference& reference, uint64_t generation) {
  if (reference.generation == 0 || reference.generation == generation) return {};
  return Fail(ErrorCode::kStaleGeneration,
              "buffer '" + reference.buffer + "' was replaced: its generation is " +
                  HexOf(generation) + ", not " + HexOf(reference.generation),
              "make the view anew");
}

}  // namespace

Result<View> ViewResolver::Make(const wire::ViewRequest& request, TimePoint deadline) const {
  View view;
  view.request = request;
  view.id = request.id.empty() ? "v-" + HexOf(RandomGeneration()) : request.id;
  for (size_t i = 0; i < request.groups.size(); ++i) {
    const std::string at = request.has_groups ? "/groups/" + std::to_string(i) : "";
    RETURN_IF_ERROR(AddGroup(request.groups[i], at, &view));
  }
  RETURN_IF_ERROR(Resolve(&view, deadline));
  return view;
}

Result<View> ViewResolver::Renew(const View& view, TimePoint deadline) const {
  View renewed = view;
  renewed.warnings.clear();
  RETURN_IF_ERROR(Resolve(&renewed, deadline));
  return renewed;
}

Status ViewResolver::AddGroup(const wire::ViewGroup& group, const std::string& at,
                              View* view) const {
  ViewGroupInfo info;
  info.group = group.group;
  info.first_pair = view->pairs.size();
  if (!group.slices.empty()) info.shape.slices = group.slices;
  if (group.block_ratio) {
    info.shape.local_parts = group.block_ratio->remote;
    info.shape.remote_parts = group.block_ratio->local;
  }
  for (size_t i = 0; i < group.pairs.size(); ++i) {
    const std::string field = at + "/pairs/" + std::to_string(i);
    if (group.pairs[i].remote.buffer.empty()) {
      RETURN_IF_ERROR(AddByName(group, i, field, view));
    } else {
      view->pairs.push_back(group.pairs[i]);
      view->fields.push_back(field);
    }
    if (view->pairs.size() > pairs_max_) {
      return Fail(ErrorCode::kResourceExhausted,
                  "the view has more than " + std::to_string(pairs_max_) + " pairs",
                  "make several views of it", field);
    }
  }
  info.pairs = view->pairs.size() - info.first_pair;
  view->groups.push_back(std::move(info));
  return {};
}

// A buffer that an earlier name or pattern of the group found is not paired twice.
Status ViewResolver::AddByName(const wire::ViewGroup& group, size_t index, const std::string& field,
                               View* view) const {
  const std::string& pattern = group.pairs[index].local.buffer;
  const bool is_pattern = pattern.find('*') != std::string::npos;
  const auto add = [&](const std::string& name) {
    wire::ViewPair pair;
    pair.local.buffer = pair.remote.buffer = name;
    const auto earlier = [&](const wire::ViewPair& other) {
      return other.remote.buffer.empty() && Matches(other.local.buffer, name);
    };
    const auto end = group.pairs.begin() + static_cast<ptrdiff_t>(index);
    if (std::any_of(group.pairs.begin(), end, earlier)) return;
    view->pairs.push_back(std::move(pair));
    view->fields.push_back(field);
  };
  if (!is_pattern) {
    add(pattern);
    return {};
  }
  bool found = false;
  for (const auto& buffer : BuffersOf(registry_, view->request.workload)) {
    const Buffer::Description& description = buffer->description();
    if (!description.layout || !Matches(pattern, description.name)) continue;
    found = true;
    add(description.name);
  }
  if (found) return {};
  return Fail(ErrorCode::kUnregistered,
              "workload '" + view->request.workload + "' has no buffer with a block layout that '" +
                  pattern + "' matches",
              "register buffers with `layout` first", field);
}

Status ViewResolver::Resolve(View* view, TimePoint deadline) const {
  const wire::ViewRequest& request = view->request;
  view->local.clear();
  view->remote.clear();
  for (const wire::ViewPair& pair : view->pairs) {
    view->local.push_back(pair.local);
    view->remote.push_back({request.peer, request.remote_workload, pair.remote.buffer,
                            pair.remote.generation, request.remote_generation});
  }
  std::vector<Side> local;
  for (size_t i = 0; i < view->pairs.size(); ++i) {
    ASSIGN_OR_RETURN(Side side, LocalSide(*view, i));
    local.push_back(side);
  }
  const auto first = registry_.ByName(request.workload, view->pairs.front().local.buffer);
  if (first) view->workload_generation = (*first)->description().workload_generation;
  ASSIGN_OR_RETURN(const std::vector<Side> remote, RemoteSides(*view, deadline));
  RETURN_IF_ERROR(CheckPairs(local, remote, view));
  AddWarnings(remote, view);
  return {};
}

Result<ViewResolver::Side> ViewResolver::LocalSide(const View& view, size_t pair) const {
  const BufferReference& reference = view.pairs[pair].local;
  auto buffer = registry_.ByName(view.request.workload, reference.buffer);
  if (!buffer) return OfViewPair(std::move(buffer).error(), view, pair);
  const Buffer::Description& description = (*buffer)->description();
  if (auto status = CheckGeneration(reference, description.generation); !status) {
    return OfViewPair(std::move(status).error(), view, pair);
  }
  return Side{description.generation, description.layout, {true, true}};
}

Result<std::vector<ViewResolver::Side>> ViewResolver::RemoteSides(const View& view,
                                                                  TimePoint deadline) const {
  if (view.request.peer.empty()) return OwnRemoteSides(view);
  auto sides = PeerSides(view, view.remote, deadline);
  if (sides) return sides;
  // One of them is the reason: those before it are cached by now.
  for (size_t i = 0; i < view.remote.size() && Clock::now() < deadline; ++i) {
    auto one = PeerSides(view, {view.remote[i]}, deadline);
    if (!one) return OfViewPair(std::move(one).error(), view, i);
  }
  return Fail(std::move(sides).error().WithField("/peer"));
}

Result<std::vector<ViewResolver::Side>> ViewResolver::OwnRemoteSides(const View& view) const {
  std::vector<Side> sides;
  const auto fresh =
      registry_.CheckLife(view.request.remote_workload, view.request.remote_generation);
  if (!fresh) return Fail(Error(fresh.error()).WithField("/remote_workload"));
  for (size_t i = 0; i < view.remote.size(); ++i) {
    auto buffer = registry_.ByName(view.request.remote_workload, view.remote[i].buffer);
    if (!buffer) return OfViewPair(std::move(buffer).error(), view, i);
    const Buffer::Description& description = (*buffer)->description();
    if (auto status = CheckGeneration(view.remote[i], description.generation); !status) {
      return OfViewPair(std::move(status).error(), view, i);
    }
    const bool own = view.request.remote_workload == view.request.workload;
    sides.push_back({description.generation, description.layout,
                     own ? wire::Access{true, true} : description.access});
  }
  return sides;
}

Result<std::vector<ViewResolver::Side>> ViewResolver::PeerSides(
    const View& view, const std::vector<BufferReference>& references, TimePoint deadline) const {
  // They are mapped now, and not in the first transfer. Where there is no room for that, the peer
  // may still move them.
  auto buffers = peers_.Acquire(view.request.peer, references, RemoteUse::kMove, deadline);
  if (!buffers && buffers.error().code == ErrorCode::kResourceExhausted) {
    auto named = peers_.Acquire(view.request.peer, references, RemoteUse::kName, deadline);
    if (named) buffers = std::move(named);
  }
  if (!buffers) return Fail(std::move(buffers).error());
  std::vector<Side> sides;
  for (const auto& buffer : *buffers) {
    sides.push_back({buffer->reference.generation, buffer->layout, buffer->access, buffer->mapped});
  }
  return sides;
}

Status ViewResolver::CheckPairs(const std::vector<Side>& local, const std::vector<Side>& remote,
                                View* view) {
  view->bytes_per_block = 0;
  for (ViewGroupInfo& group : view->groups) {
    group.bytes_per_block = 0;
    for (size_t i = group.first_pair; i < group.first_pair + group.pairs; ++i) {
      if (!local[i].layout || !remote[i].layout) {
        return OfViewPair(Error(ErrorCode::kInvalidArgument,
                                std::string("the ") + (local[i].layout ? "remote" : "local") +
                                    " buffer has no block layout",
                                "register it with `layout`"),
                          *view, i);
      }
      for (const wire::BlockSlice& slice : group.shape.slices) {
        auto unit = UnitOf(group.shape, slice, *local[i].layout, *remote[i].layout);
        if (!unit) return OfViewPair(std::move(unit).error(), *view, i);
        group.bytes_per_block += unit->bytes;
      }
      view->local[i].generation = local[i].generation;
      view->remote[i].generation = remote[i].generation;
    }
    view->bytes_per_block += group.bytes_per_block;
  }
  return {};
}

void ViewResolver::AddWarnings(const std::vector<Side>& remote, View* view) {
  for (const bool read : {true, false}) {
    const auto denies = [&](const Side& side) {
      return !(read ? side.access.remote_read : side.access.remote_write);
    };
    const auto count = std::count_if(remote.begin(), remote.end(), denies);
    if (count == 0) continue;
    const auto first = std::find_if(remote.begin(), remote.end(), denies) - remote.begin();
    view->warnings.push_back(std::to_string(count) + " of the remote buffers, the first of them '" +
                             view->remote[static_cast<size_t>(first)].buffer + "', do not grant " +
                             (read ? "remote_read: reads" : "remote_write: writes") +
                             " through this view are refused");
  }
  const auto unmapped =
      std::count_if(remote.begin(), remote.end(), [](const Side& side) { return !side.mapped; });
  if (unmapped > 0) {
    view->warnings.push_back(std::to_string(unmapped) +
                             " of the remote buffers could not be mapped here (a transfer that "
                             "needs it says why): `executor: peer` does not need it");
  }
  for (const ViewGroupInfo& group : view->groups) {
    if (SlicesAreApart(group.shape, true) && SlicesAreApart(group.shape, false)) continue;
    view->warnings.push_back("slices of group " + std::to_string(group.group) +
                             " overlap: transfers to the side where they do are refused");
  }
}

}  // namespace gantry::engine
