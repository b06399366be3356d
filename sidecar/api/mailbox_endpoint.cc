#include "sidecar/api/mailbox_endpoint.h"

#include <utility>

#include "lib/base/mailbox.h"
#include "sidecar/api/request_reading.h"

namespace gantry::api {
namespace {

constexpr uint64_t kVersion = 1;  // of what stands where in the memory

}  // namespace

Result<http::Response> PostMailbox(const ApiDependencies&, const http::Request& request) {
  RETURN_IF_ERROR(request.open_mailbox());
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject()
      .Field("version", kVersion)
      .Field("message_bytes_max", uint64_t{Mailbox::kMessageBytesMax})
      .EndObject();
  return Reply(request, 201, std::move(writer));
}

}  // namespace gantry::api
