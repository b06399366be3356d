// Lists of descriptors as ranges between buffers. Every descriptor is checked against what was
// registered. Plain values; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "client/include/gantry.h"
#include "connectors/nixl/abi/nixl_interface.h"
#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/local_memory.h"

namespace gantry::nixl {

// The metadata of a local registration.
class LocalMd : public BackendMd {
 public:
  explicit LocalMd(LocalMemoryPointer memory) : BackendMd(true), memory_(std::move(memory)) {}
  const LocalMemoryPointer& memory() const { return memory_; }

 private:
  const LocalMemoryPointer memory_;
};

// The metadata of a registration as the target of transfers.
class RemoteMd : public BackendMd {
 public:
  RemoteMd(std::string agent, MemoryCard card)
      : BackendMd(false), agent_(std::move(agent)), card_(std::move(card)) {}
  const std::string& agent() const { return agent_; }
  const MemoryCard& card() const { return card_; }

 private:
  const std::string agent_;
  const MemoryCard card_;
};

struct TransferRanges {
  std::vector<LocalMemoryPointer> local;
  std::vector<std::string> remote;  // buffers
  std::vector<gantry_range> ranges;
  uint64_t bytes = 0;
};

// One range for each descriptor that has bytes.
Result<TransferRanges> RangesOf(const MetaList& local, const MetaList& remote,
                                const std::string& agent);

// Ranges that continue each other on both sides as one.
std::vector<gantry_range> Merged(const std::vector<gantry_range>& ranges);

}  // namespace gantry::nixl
