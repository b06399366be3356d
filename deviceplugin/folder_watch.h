// Waits until something comes into a folder or leaves it. A hint to look, and no more: what is lost
// (the folder itself, events beyond the kernel's queue) ends the wait too, or is seen at the next
// look. Used by one thread; Wake by any.
#pragma once

#include <string>

#include "lib/base/clock.h"
#include "lib/base/unique_fd.h"

namespace gantry::deviceplugin {

class FolderWatch {
 public:
  explicit FolderWatch(std::string folder);

  // Until then at the latest. Watches the folder again if it had gone.
  void Wait(TimePoint deadline);
  // Ends a wait, or the next one.
  void Wake() const;

 private:
  void Watch();
  void TakeEvents();

  const std::string folder_;
  UniqueFd events_;  // inotify
  UniqueFd wake_;
  bool watched_ = false;
};

}  // namespace gantry::deviceplugin
