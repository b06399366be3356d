// What the sidecar's answers look like to people. Pure functions; thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gantry::gantryctl {

// Answers of GET /v1/status, /v1/buffers, /v1/peers, /v1/workloads and /v1/transfers.
std::string StatusText(const nlohmann::json& status, bool ready);
std::string BuffersText(const nlohmann::json& answer);
std::string PeersText(const nlohmann::json& answer);
std::string WorkloadsText(const nlohmann::json& answer);
std::string TransfersText(const nlohmann::json& answer);

// "host-a/kv.0 [#####.....]  52 %  1.2 GiB of 2.3 GiB  shm", no wider than `columns`.
std::string ProgressLine(const nlohmann::json& transfer, size_t columns);

// Ready, and every copy worker of the pool as well.
bool IsHealthy(const nlohmann::json& status, bool ready);

}  // namespace gantry::gantryctl
