#include "sidecar/api/peers_endpoint.h"

#include "lib/base/name.h"
#include "lib/base/random_id.h"
#include "lib/wire/request_bodies.h"
#include "sidecar/api/buffer_view.h"
#include "sidecar/api/request_reading.h"

namespace gantry::api {
namespace {

constexpr uint64_t kConnectMs = 5'000;
constexpr uint64_t kRemoveMs = 10'000;

Result<engine::PeerControl*> PeersOf(const ApiDependencies& api) {
  if (api.peers != nullptr) return api.peers;
  return Fail(ErrorCode::kPathUnavailable, "this sidecar was started without a peer API",
              "start it with a node directory");
}

void WritePeer(const engine::PeerInfo& peer, wire::BodyWriter* writer) {
  writer->BeginObject()
      .Field("name", peer.name)
      .Field("address", peer.address)
      .Field("state", NameOf(peer.state))
      .OptionalField("generation", peer.generation == 0 ? std::string() : HexOf(peer.generation))
      .OptionalField("node_id", peer.node_id);
  if (peer.path) writer->Field("path", NameOf(*peer.path));
  WritePaths(peer.paths, writer);
  writer->Field("rtt_us", peer.rtt_us)
      .OptionalField("version", peer.version)
      .Field("since_unix_ms", peer.since_unix_ms);
  if (peer.error) {
    writer->Key("error")
        .BeginObject()
        .Field("code", InfoOf(peer.error->code).name)
        .Field("detail", peer.error->message)
        .OptionalField("hint", peer.error->hint)
        .EndObject();
  }
  writer->EndObject();
}

}  // namespace

void WritePeers(const ApiDependencies& api, wire::BodyWriter* writer) {
  writer->Key("peers").BeginList();
  if (api.peers != nullptr) {
    for (const engine::PeerInfo& peer : api.peers->List()) WritePeer(peer, writer);
  }
  writer->EndList();
}

Result<http::Response> PutPeer(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::PeerBody body, wire::ReadPeerBody(format, request.body));
  RETURN_IF_ERROR(CheckName(request.name, "/name"));
  ASSIGN_OR_RETURN(engine::PeerControl * peers, PeersOf(api));
  ASSIGN_OR_RETURN(const auto wait_ms, QueryNumber(request, "wait_ms"));
  ASSIGN_OR_RETURN(const TimePoint deadline, WaitUntil(request, wait_ms.value_or(kConnectMs)));
  // On one node memory is shared, and over TCP it is not: the node's socket comes first.
  const std::string nearby =
      body.node_id.empty() ? "" : api.node_address(request.name, body.node_id);
  const std::string& address = nearby.empty() ? body.address : nearby;
  const auto known = peers->Get(request.name);
  const bool existed = known.has_value();
  // Another address takes the time that unmapping the old peer needs, however short the wait is.
  if (existed && known->address != address) {
    RETURN_IF_ERROR(WaitUntil(request, kConnectMs));
  }
  ASSIGN_OR_RETURN(const engine::PeerInfo peer, peers->Put(request.name, address, deadline));
  wire::BodyWriter writer = WriterFor(request);
  WritePeer(peer, &writer);
  return Reply(request, existed ? 200 : 201, std::move(writer));
}

Result<http::Response> GetPeer(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(engine::PeerControl * peers, PeersOf(api));
  ASSIGN_OR_RETURN(const engine::PeerInfo peer, peers->Get(request.name));
  wire::BodyWriter writer = WriterFor(request);
  WritePeer(peer, &writer);
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> ListPeers(const ApiDependencies& api, const http::Request& request) {
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject();
  WritePeers(api, &writer);
  writer.EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DeletePeer(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(engine::PeerControl * peers, PeersOf(api));
  ASSIGN_OR_RETURN(const TimePoint deadline, WaitUntil(request, kRemoveMs));
  RETURN_IF_ERROR(peers->Remove(request.name, deadline));
  return NoContent();
}

}  // namespace gantry::api
