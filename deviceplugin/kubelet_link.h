// Keeps the plugin registered: serves it on a socket of its own in the kubelet's folder, registers
// that, and does both again when the kubelet was restarted, in whatever way that shows: its socket
// is another one, ours is gone, or it stopped following. Start and the destructor: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "deviceplugin/plugin_service.h"
#include "lib/base/result.h"

namespace gantry::deviceplugin {

struct KubeletLinkOptions {
  std::string folder;    // of kubelet.sock
  std::string resource;  // "gantry.dev/transfer"
  std::string instance;  // distinguishes plugins of one resource on a node
  milliseconds poll{10'000};
  milliseconds register_max{15'000};  // the kubelet calls back meanwhile, for up to 10 s
  // After it registered, until it follows the list: what ends before the plugin hears of it cannot
  // be told from what is late. Doubled each time that it does not come.
  milliseconds follow_min{2'000};
  milliseconds follow_max{10'000};
  // How long another plugin of this resource has to be gone: see OtherHasGone.
  milliseconds goodbye_wait{2'000};
  milliseconds retry_min{500};  // doubled after each failure, with jitter
  milliseconds retry_max{30'000};
};

class KubeletLink {
 public:
  // Goes on in a thread of its own; whether the kubelet is there shows in registered() and in the
  // metrics. `parts` outlive it. kInvalidArgument: the names are too long for a socket's address.
  static Result<std::unique_ptr<KubeletLink>> Start(KubeletLinkOptions options,
                                                    const PluginService::Parts& parts);
  virtual ~KubeletLink() = default;

  // The kubelet follows the list of slots.
  virtual bool registered() const = 0;
};

}  // namespace gantry::deviceplugin
