// The file that Kubernetes shows as the reason of a container's end. Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry::pod {

inline constexpr size_t kTerminationMessageBytesMax = 4096;  // Kubernetes shows no more

// Replaces the file's content by `text`, cut to what is shown. Does nothing unless `path` is an
// existing, writable regular file.
void WriteTerminationMessage(const std::string& path, std::string_view text);

}  // namespace gantry::pod
