// The file whose text Kubernetes shows as the reason of a container's end. Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry::pod {

inline constexpr size_t kTerminationMessageBytesMax = 4096;  // Kubernetes shows no more

// Replaces what the file says by `text`, or as much of it as is shown. Only where there is a
// regular file that may be written to: elsewhere nobody asks, and nothing happens.
void WriteTerminationMessage(const std::string& path, std::string_view text);

}  // namespace gantry::pod
