// The views of all workloads. A view is refreshed when one of its buffers was registered anew, and
// ends with its workload. Thread-safe; Make and Renew may block on a peer until their deadline.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/view/view.h"
#include "sidecar/view/view_resolver.h"

namespace gantry::engine {

struct ViewLimits {
  size_t views_max;
  size_t pairs_max;       // total over all views
  size_t pairs_each_max;  // limit for one view
};

class ViewTable {
 public:
  // The references outlive the table.
  ViewTable(const ViewLimits& limits, const registry::BufferRegistry& registry, PeerBuffers& peers)
      : limits_(limits), registry_(registry), resolver_(limits.pairs_each_max, registry, peers) {}

  // A known id returns the existing view if the content is equal (*is_new false), else kConflict.
  Result<ViewPointer> Make(const wire::ViewRequest& request, TimePoint deadline, bool* is_new)
      EXCLUDES(mutex_);
  Result<ViewPointer> Get(std::string_view workload, std::string_view id) const EXCLUDES(mutex_);
  // Returns the view that replaces `stale`. A thread whose `stale` is already replaced gets the
  // current view without resolving.
  Result<ViewPointer> Renew(const ViewPointer& stale, TimePoint deadline) EXCLUDES(mutex_);
  // Ordered by workload and id, at most `limit` after `cursor`; an empty workload means all.
  std::vector<ViewPointer> List(std::string_view workload, std::string_view cursor,
                                size_t limit) const EXCLUDES(mutex_);
  // Running transfers continue.
  Status Remove(std::string_view workload, std::string_view id) EXCLUDES(mutex_);
  // Ends the views of one registration of a workload; generation 0: any.
  void EndWorkload(std::string_view workload, uint64_t workload_generation) EXCLUDES(mutex_);
  // The cursor for the next page of List.
  static std::string CursorOf(const View& view);

 private:
  using Key = std::pair<std::string, std::string>;  // workload, id

  static Key KeyOf(const View& view) { return {view.request.workload, view.id}; }
  Result<ViewPointer> Insert(View view, bool* is_new) EXCLUDES(mutex_);
  ViewPointer Find(const Key& key) const REQUIRES(mutex_);
  void Erase(std::map<Key, ViewPointer>::iterator entry) REQUIRES(mutex_);

  const ViewLimits limits_;
  const registry::BufferRegistry& registry_;
  const ViewResolver resolver_;

  mutable Mutex mutex_;
  std::map<Key, ViewPointer> views_ GUARDED_BY(mutex_);
  size_t pairs_ GUARDED_BY(mutex_) = 0;  // total over all views
};

}  // namespace gantry::engine
