// /v1/peers: other sidecars by name. Thread-safe.
#pragma once

#include "lib/wire/body_writer.h"
#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

Result<Response> PutPeer(const ApiDependencies& api, const Request& request);
Result<Response> GetPeer(const ApiDependencies& api, const Request& request);
Result<Response> ListPeers(const ApiDependencies& api, const Request& request);
Result<Response> DeletePeer(const ApiDependencies& api, const Request& request);

// Appends "peers": [...] to the object that is open.
void WritePeers(const ApiDependencies& api, wire::BodyWriter* writer);

}  // namespace gantry::api
