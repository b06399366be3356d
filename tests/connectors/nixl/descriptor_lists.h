// Lists of descriptors over registrations of which no sidecar knows. For tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "connectors/nixl/transfer/descriptor_ranges.h"

namespace gantry::nixl {

class DescriptorLists {
 public:
  // Registrations of `bytes` at both agents, as many as there are names; each at an address of its
  // own.
  DescriptorLists(const std::vector<std::string>& names, uint64_t bytes) {
    uint64_t base = 1 << 20;
    for (const std::string& name : names) {
      mine_.push_back(std::make_unique<LocalMd>(
          std::make_shared<LocalMemory>(MemoryCard{name, base, bytes}, MemoryType::kDram)));
      theirs_.push_back(std::make_unique<RemoteMd>("other", MemoryCard{name, 2 * base, bytes}));
      base += 1 << 20;
    }
  }

  void Add(size_t here, uint64_t local_offset, size_t there, uint64_t remote_offset,
           uint64_t bytes) {
    local_.descs.push_back(
        {{mine_[here]->memory()->card().base + local_offset, bytes, 0}, mine_[here].get()});
    remote_.descs.push_back(
        {{theirs_[there]->card().base + remote_offset, bytes, 0}, theirs_[there].get()});
  }

  MetaList& local() { return local_; }
  MetaList& remote() { return remote_; }
  Result<TransferRanges> Ranges() const { return RangesOf(local_, remote_, "other"); }

 private:
  std::vector<std::unique_ptr<LocalMd>> mine_;
  std::vector<std::unique_ptr<RemoteMd>> theirs_;
  MetaList local_{nullptr, MemoryType::kDram, {}};
  MetaList remote_{nullptr, MemoryType::kDram, {}};
};

}  // namespace gantry::nixl
