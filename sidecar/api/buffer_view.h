// Serialises a buffer for the API. Thread-safe.
#pragma once

#include <vector>

#include "lib/codec/body_writer.h"
#include "sidecar/registry/buffer.h"

namespace gantry::api {

void WritePaths(const std::vector<wire::PathReport>& paths, wire::BodyWriter* writer);
void WriteBuffer(const registry::Buffer& buffer, const std::vector<wire::PathReport>& paths,
                 wire::BodyWriter* writer);

}  // namespace gantry::api
