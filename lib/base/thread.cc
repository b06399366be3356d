#include "lib/base/thread.h"

#include <string>

namespace gantry {

Error NoThread(const char* name, std::string_view why) {
  return {ErrorCode::kResourceExhausted,
          std::string("no thread can be started (") + name + "): " + std::string(why),
          "raise the pod's limit of processes (pids.max, which its containers share) or the user's "
          "(ulimit -u), or let the pod's other containers use fewer threads"};
}

}  // namespace gantry
