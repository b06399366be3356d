#include "sidecar/view/view_table.h"

namespace gantry::engine {
namespace {

tl::unexpected<Error> NoView(std::string_view workload, std::string_view id) {
  return Fail(ErrorCode::kNotFound,
              "workload '" + std::string(workload) + "' has no view '" + std::string(id) + "'",
              "make it with POST /v1/views; it goes with its workload");
}

}  // namespace

ViewPointer ViewTable::Find(const Key& key) const {
  const auto found = views_.find(key);
  return found == views_.end() ? nullptr : found->second;
}

void ViewTable::Erase(std::map<Key, ViewPointer>::iterator entry) {
  pairs_ -= entry->second->pairs.size();
  views_.erase(entry);
}

Result<ViewPointer> ViewTable::Make(const wire::ViewRequest& request, TimePoint deadline,
                                    bool* is_new) {
  *is_new = false;
  if (!request.id.empty()) {
    // It is found also when its buffers are gone by now.
    const MutexLock lock(mutex_);
    const ViewPointer known = Find({request.workload, request.id});
    if (known != nullptr && known->request == request) return known;
  }
  ASSIGN_OR_RETURN(View view, resolver_.Make(request, deadline));
  return Insert(std::move(view), is_new);
}

Result<ViewPointer> ViewTable::Insert(View view, bool* is_new) {
  auto made = std::make_shared<const View>(std::move(view));
  const Key key = KeyOf(*made);
  {
    const MutexLock lock(mutex_);
    auto known = views_.find(key);
    if (known != views_.end() && known->second->workload_generation != made->workload_generation) {
      Erase(known);  // its workload has ended
      known = views_.end();
    }
    if (known != views_.end() && known->second->request == made->request) return known->second;
    if (known != views_.end()) {
      return Fail(ErrorCode::kConflict, "view '" + made->id + "' exists with another content",
                  "use a new id, or delete it first", "/id");
    }
    if (views_.size() >= limits_.views_max || pairs_ + made->pairs.size() > limits_.pairs_max) {
      return Fail(ErrorCode::kResourceExhausted,
                  "there are " + std::to_string(views_.size()) + " views of " +
                      std::to_string(pairs_) + " pairs, as many as are kept",
                  "delete views that are not needed any more");
    }
    views_.emplace(key, made);
    pairs_ += made->pairs.size();
  }
  // If the workload ended meanwhile, nobody else removes it.
  const auto buffer = registry_.ByName(key.first, made->pairs.front().local.buffer);
  if (!buffer || (*buffer)->description().workload_generation != made->workload_generation) {
    const MutexLock lock(mutex_);
    const auto found = views_.find(key);
    if (found != views_.end() && found->second == made) Erase(found);
    return Fail(ErrorCode::kStaleGeneration,
                "buffer '" + made->pairs.front().local.buffer + "' went away meanwhile",
                "register it, then make the view again");
  }
  *is_new = true;
  return made;
}

Result<ViewPointer> ViewTable::Get(std::string_view workload, std::string_view id) const {
  const MutexLock lock(mutex_);
  ViewPointer view = Find({std::string(workload), std::string(id)});
  if (view == nullptr) return NoView(workload, id);
  return view;
}

Result<ViewPointer> ViewTable::Renew(const ViewPointer& stale, TimePoint deadline) {
  const Key key = KeyOf(*stale);
  {
    const MutexLock lock(mutex_);
    const ViewPointer known = Find(key);
    if (known == nullptr) return NoView(key.first, key.second);
    if (known != stale) return known;
  }
  auto renewed = resolver_.Renew(*stale, deadline);
  if (!renewed) {
    return Fail(std::move(renewed).error().WithContext("view '" + stale->id + "'"));
  }
  auto view = std::make_shared<const View>(*std::move(renewed));
  const MutexLock lock(mutex_);
  if (const auto found = views_.find(key); found != views_.end() && found->second == stale) {
    found->second = view;
  }
  return view;
}

std::string ViewTable::CursorOf(const View& view) { return view.request.workload + "/" + view.id; }

std::vector<ViewPointer> ViewTable::List(std::string_view workload, std::string_view cursor,
                                         size_t limit) const {
  const size_t slash = cursor.find('/');
  Key after(workload, "");
  if (slash != std::string_view::npos) {
    after = {std::string(cursor.substr(0, slash)), std::string(cursor.substr(slash + 1))};
  }
  std::vector<ViewPointer> list;
  const MutexLock lock(mutex_);
  for (auto entry = views_.upper_bound(after); entry != views_.end() && list.size() < limit;
       ++entry) {
    if (!workload.empty() && entry->first.first != workload) {
      if (entry->first.first > workload) break;
      continue;
    }
    list.push_back(entry->second);
  }
  return list;
}

Status ViewTable::Remove(std::string_view workload, std::string_view id) {
  const MutexLock lock(mutex_);
  const auto found = views_.find({std::string(workload), std::string(id)});
  if (found == views_.end()) return NoView(workload, id);
  Erase(found);
  return {};
}

void ViewTable::EndWorkload(std::string_view workload, uint64_t workload_generation) {
  const MutexLock lock(mutex_);
  auto entry = views_.lower_bound({std::string(workload), ""});
  while (entry != views_.end() && entry->first.first == workload) {
    const auto next = std::next(entry);
    if (workload_generation == 0 || entry->second->workload_generation == workload_generation) {
      Erase(entry);
    }
    entry = next;
  }
}

}  // namespace gantry::engine
