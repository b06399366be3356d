// The host's folders in which the sidecars of one namespace find each other's sockets: one folder a
// namespace below `parent`, which nobody but root can list. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
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
  Status Make(const std::string& folder) const EXCLUDES(mutex_);
  // How often that was done. Who is to remove folders asks before it learns which pods there are.
  uint64_t TimesMade() const EXCLUDES(mutex_);
  // Of sidecars in `folder` that are gone without an orderly end, so that one of another user can
  // have their name. Who lives holds the lock of its name. Of very many files some, the rest the
  // next time.
  void RemoveAbandoned(const std::string& folder) const;
  // Sidecars in `folder` that live, likewise of some files.
  size_t Living(const std::string& folder) const;
  std::vector<std::string> Namespaces() const;
  // Of a namespace without pods: sockets that nobody listens at go, and then the folder. False:
  // something else is there, or somebody listens, or it was made anew since TimesMade said so: for
  // a container that is about to start, and would be given a folder that is gone.
  bool Remove(const std::string& name, uint64_t times_made) const EXCLUDES(mutex_);

 private:
  const std::string parent_;
  mutable Mutex mutex_;
  mutable uint64_t times_made_ GUARDED_BY(mutex_) = 0;
  mutable std::map<std::string, uint64_t> made_ GUARDED_BY(mutex_);  // by name: the last time
};

}  // namespace gantry::deviceplugin
