// /v1/peers: other sidecars by name. Thread-safe.
#pragma once

#include "lib/codec/body_writer.h"
#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> PutPeer(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetPeer(const ApiDependencies& api, const http::Request& request);
Result<http::Response> ListPeers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DeletePeer(const ApiDependencies& api, const http::Request& request);

// Appends "peers": [...] to the open object.
void WritePeers(const ApiDependencies& api, wire::BodyWriter* writer);

}  // namespace gantry::api
