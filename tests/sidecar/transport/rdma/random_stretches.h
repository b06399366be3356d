// Memory regions and chunks at random places under the allocations of a plan, for tests of what is
// cut at their seams. Every byte also on its own, as a reference. Used by one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "sidecar/transport/rdma/work_cutter.h"

namespace gantry::transport {

// Where one side has its bytes: runs of one region each, in the order of (allocation, offset).
class Regions {
 public:
  struct Run {
    uint32_t allocation = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    uint64_t address = 0;
    uint32_t region = 0;
  };

  void Add(const Run& run) { runs_.push_back(run); }
  // Allocations of `bytes` each, every one cut at up to `seams` random bytes. One region ends where
  // the next begins also in the address space, here and there one spans two allocations, and here
  // and there addresses jump.
  void AddRandom(std::mt19937_64* random, uint32_t allocations, uint64_t bytes, uint64_t seams) {
    uint64_t address = (uint64_t{1} << 40) + (*random)() % 100'000;
    for (uint32_t allocation = 0; allocation < allocations; ++allocation) {
      std::vector<uint64_t> cuts = {0, bytes};
      for (uint64_t i = (*random)() % (seams + 1); i > 0; --i) cuts.push_back((*random)() % bytes);
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      const bool spans = (*random)() % 3 == 0;
      const bool jumps = (*random)() % 3 == 0;
      if (jumps && !spans) address += 1 + (*random)() % 100'000;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        if (!(spans && i == 0)) ++region_;
        Add({allocation, cuts[i], cuts[i + 1] - cuts[i], address, region_});
        address += cuts[i + 1] - cuts[i];
      }
    }
  }

  // Of length 0: nothing is there.
  Run At(uint32_t allocation, uint64_t offset) const {
    for (const Run& run : runs_) {
      if (run.allocation != allocation || offset < run.offset) continue;
      const uint64_t within = offset - run.offset;
      if (within >= run.length) continue;
      return {allocation, offset, run.length - within, run.address + within, run.region};
    }
    return {};
  }

 private:
  std::vector<Run> runs_;
  uint32_t region_ = 100;
};

class TwoSides : public Stretches {
 public:
  Regions local;
  Regions remote;

  LocalStretch Local(uint32_t allocation, uint64_t offset) const override {
    const Regions::Run run = local.At(allocation, offset);
    return {run.address, run.region, run.length};
  }
  RemoteStretch Remote(uint32_t allocation, uint64_t offset) const override {
    const Regions::Run run = remote.At(allocation, offset);
    return {run.address, run.region, run.length};
  }
};

}  // namespace gantry::transport
