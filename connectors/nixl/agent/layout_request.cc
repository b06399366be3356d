#include "connectors/nixl/agent/layout_request.h"

#include <algorithm>
#include <array>

#include "lib/base/name.h"
#include "lib/codec/body_fields.h"
#include "lib/codec/body_writer.h"

namespace gantry::nixl {
namespace {

constexpr std::string_view kLayoutMagic = "GNL1";

}  // namespace

std::string TextOf(uint64_t block_bytes, std::span<const std::string> buffers) {
  std::string names;
  for (const std::string& buffer : buffers) names += (names.empty() ? "" : ",") + buffer;
  wire::BodyWriter out(wire::BodyFormat::kJson);
  out.BeginObject().Field("block_bytes", block_bytes).Field("names", names).EndObject();
  return std::string(kLayoutMagic) + out.Take();
}

bool IsLayoutRequest(std::string_view message) { return message.starts_with(kLayoutMagic); }

Result<LayoutRequest> ReadLayoutRequest(std::string_view message) {
  static constexpr std::array<std::string_view, 2> kKeys = {"block_bytes", "names"};
  message.remove_prefix(std::min(kLayoutMagic.size(), message.size()));
  const auto fields = wire::BodyFields::Read(message, kKeys);
  LayoutRequest request;
  if (fields) request.block_bytes = fields->Number("block_bytes");
  const std::string text = fields ? fields->Text("names") : "";
  for (std::string_view names = text; !names.empty();) {
    const size_t comma = std::min(names.find(','), names.size());
    request.buffers.emplace_back(names.substr(0, comma));
    names.remove_prefix(std::min(comma + 1, names.size()));
    RETURN_IF_ERROR(CheckName(request.buffers.back(), "buffers"));
  }
  if (request.block_bytes < kBlockBytesMin || request.buffers.empty() ||
      request.buffers.size() > kLayoutBuffersMax)
    return Fail(ErrorCode::kMalformedBody, "a message is no request for blocks");
  return request;
}

std::string LayoutName(const std::string& buffer, uint64_t block_bytes) {
  return buffer + ".b" + std::to_string(block_bytes);
}

}  // namespace gantry::nixl
