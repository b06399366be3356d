#include "connectors/nixl/agent/lease.h"

#include <array>
#include <utility>

#include "lib/codec/body_fields.h"

namespace gantry::nixl {
namespace {

Result<std::string> Ask(gantry_client* client, const char* method, const std::string& target,
                        const std::string& body, uint64_t wait_ms) {
  char* answer = nullptr;
  RETURN_IF_ERROR(Take(gantry_client_request(
      client, method, target.c_str(), body.empty() ? nullptr : body.c_str(), wait_ms, &answer)));
  const Owned<char> owned(answer);
  return std::string(answer);
}

Result<SidecarInfo> InfoOf(gantry_client* client) {
  static constexpr std::array<std::string_view, 5> kKeys = {"name", "version", "node_id",
                                                            "peer_address", "tcp_address"};
  ASSIGN_OR_RETURN(const std::string answer, Ask(client, "GET", "/v1/info", "", 0));
  const auto fields = wire::BodyFields::Read(answer, kKeys);
  if (!fields || fields->Text("name").empty()) {
    return Fail(ErrorCode::kVersionMismatch, "the sidecar does not say its name",
                "use a plugin of the sidecar's version");
  }
  return SidecarInfo{fields->Text("name"), fields->Text("version"), fields->Text("node_id"),
                     fields->Text("peer_address"), fields->Text("tcp_address")};
}

}  // namespace

Result<std::shared_ptr<Lease>> Lease::Open(const PluginConfig& config,
                                           const std::string& workload) {
  gantry_client_options options = {};
  options.engine_id = "nixl";
  options.timeout_ms = config.timeout_ms;
  gantry_client* opened = nullptr;
  RETURN_IF_ERROR(
      Take(gantry_client_open(config.run_dir.c_str(), workload.c_str(), &options, &opened)));
  Owned<gantry_client> client(opened);
  ASSIGN_OR_RETURN(SidecarInfo sidecar, InfoOf(opened));
  return std::shared_ptr<Lease>(new Lease(std::move(client), std::move(sidecar)));
}

Result<std::string> Lease::Request(const char* method, const std::string& target,
                                   const std::string& body, uint64_t wait_ms) const {
  auto answer = Ask(client_.get(), method, target, body, wait_ms);
  if (!answer && answer.error().code == ErrorCode::kDeadlineExceeded) NoteSilence();
  return answer;
}

Status Lease::Noted(Status outcome) const {
  if (!outcome && outcome.error().code == ErrorCode::kDeadlineExceeded) NoteSilence();
  return outcome;
}

void Lease::Close(uint64_t wait_ms) {
  static_cast<void>(Take(gantry_client_close_within(client_.get(), wait_ms)));
}

}  // namespace gantry::nixl
