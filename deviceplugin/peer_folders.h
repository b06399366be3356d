// The host's folders in which the sidecars of one namespace find each other's sockets: one folder a
// namespace below `parent`, which nobody but root can list. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "lib/base/result.h"

namespace gantry::deviceplugin {

class PeerFolders {
 public:
  explicit PeerFolders(std::string parent) : parent_(std::move(parent)) {}

  const std::string& parent() const { return parent_; }
  // Makes the parent.
  Status Prepare() const;
  // Makes `folder` (the parent or one below it) so that sidecars of any user can put sockets there
  // and take away none but their own.
  Status Make(const std::string& folder) const;
  // Of sidecars in `folder` that are gone without an orderly end, so that one of another user can
  // have their name. Who lives holds the lock of its name.
  void RemoveAbandoned(const std::string& folder) const;
  std::vector<std::string> Namespaces() const;
  // Of a namespace without pods: sockets that nobody listens at go, and then the folder. False:
  // something else is there, or somebody listens.
  bool Remove(const std::string& name) const;

 private:
  const std::string parent_;
};

}  // namespace gantry::deviceplugin
