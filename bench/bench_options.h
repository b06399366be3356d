// The options of gantry-bench. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gantry::bench {

struct BenchOptions {
  enum class Order { kRandom, kSequential };
  enum class Operation { kRead, kWrite };
  enum class Encoding { kCbor, kJson };

  std::string transport = "shm";
  // kDevice and kVirtual: of the first GPU and the last, one allocation a side or pieces of
  // piece_bytes.
  enum class Memory { kOfTransport, kHost, kDevice, kVirtual };
  Memory memory = Memory::kOfTransport;
  uint64_t piece_bytes = 20 << 20;
  bool is_virtual() const { return memory == Memory::kVirtual; }
  bool on_gpus() const {
    return memory == Memory::kOfTransport ? transport == "ipc" : memory != Memory::kHost;
  }
  uint64_t block_bytes = 64 << 10;
  uint64_t bytes = 1 << 30;             // of each side, all moved in each iteration
  uint64_t buffers = 1;                 // that a side's bytes are, of equal size
  uint64_t batch = 0;                   // block ids of one transfer; 0: all of a buffer
  int inflight = 1;                     // transfers at a time
  int rounds = 1;                       // how often an iteration moves the same
  Encoding encoding = Encoding::kCbor;  // of the requests
  Order order = Order::kRandom;
  Operation operation = Operation::kRead;
  bool peer_executes = false;
  int workers = 2;
  int streams = 4;                  // of tcp
  bool checksum = true;             // of tcp
  std::string gpu_copies = "auto";  // of ipc
  int spin_us = 0;
  int iterations = 5;
  bool latency = false;
  bool notify = false;
  int calls = 5000;        // of the closed loop
  int gap_ms = 20;         // between the calls of the second loop; 0: no second loop
  bool busy_gaps = false;  // the caller computes meanwhile
  bool table = false;
  std::vector<uint64_t> table_batches = {1, 16, 256};
  bool keep = false;    // leave the sidecars' folder with its logs
  std::string sidecar;  // the binary; empty: beside gantry-bench
  std::string temporary_folder = "/tmp";
  bool json = false;  // what it prints
};

}  // namespace gantry::bench
