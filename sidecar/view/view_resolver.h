// Resolves the buffers that a view names, on both sides, and checks that their blocks pair up.
// Thread-safe; may block on a peer until its deadline.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sidecar/registry/buffer_registry.h"
#include "sidecar/remote/peer_buffers.h"
#include "sidecar/view/view.h"

namespace gantry::engine {

class ViewResolver {
 public:
  // The references outlive the resolver. `pairs_max` limits one view.
  ViewResolver(size_t pairs_max, const registry::BufferRegistry& registry, PeerBuffers& peers)
      : pairs_max_(pairs_max), registry_(registry), peers_(peers) {}

  // Expands names and patterns to pairs and resolves them. Errors name the pair.
  Result<View> Make(const wire::ViewRequest& request, TimePoint deadline) const;
  // Resolves the same pairs again.
  Result<View> Renew(const View& view, TimePoint deadline) const;

 private:
  // The properties of a buffer that its pair needs.
  struct Side {
    uint64_t generation = 0;
    std::optional<wire::BlockLayout> layout;
    wire::Access access;
    bool mapped = true;  // mapped, or needs no mapping
  };

  Status AddGroup(const wire::ViewGroup& group, const std::string& at, View* view) const;
  Status AddByName(const wire::ViewGroup& group, size_t index, const std::string& field,
                   View* view) const;
  Status Resolve(View* view, TimePoint deadline) const;
  Result<Side> LocalSide(const View& view, size_t pair) const;
  Result<std::vector<Side>> RemoteSides(const View& view, TimePoint deadline) const;
  Result<std::vector<Side>> OwnRemoteSides(const View& view) const;
  Result<std::vector<Side>> PeerSides(const View& view,
                                      const std::vector<wire::BufferReference>& references,
                                      TimePoint deadline) const;
  static Status CheckPairs(const std::vector<Side>& local, const std::vector<Side>& remote,
                           View* view);
  static void AddWarnings(const std::vector<Side>& remote, View* view);

  const size_t pairs_max_;
  const registry::BufferRegistry& registry_;
  PeerBuffers& peers_;
};

}  // namespace gantry::engine
