// The GPUs of the fake: how many there are, which this process sees, and their memory, which is
// files in a folder that all processes of a test share. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/unique_fd.h"

namespace gantry::fake_gpu {

// Memory of a GPU has whole pages, of which an allocation may use a part.
constexpr uint64_t WholePages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Of a file of GPU memory, also one from elsewhere; -1 when that fails.
int Duplicate(int fd);

// The GPUs that the vendor's environment chooses of so many, in its order.
std::vector<int> ChosenGpus(int gpus);  // in each vendor's part
// Of a GPU, below /dev.
std::string DeviceFileOf(int gpu);  // likewise
// Of `all`, by number and in the order of the variable: what follows a number that is none of a GPU
// is ignored, as the vendors' drivers do. All when it is not set.
std::vector<int> ChosenBy(const char* variable, const std::vector<int>& all);

// Read from the environment when the library is loaded:
//   GANTRY_FAKE_GPU_DIR       the folder, made by the test that removes it
//   GANTRY_FAKE_GPUS          how many GPUs the machine has (2)
//   GANTRY_FAKE_GPU_MIB       memory of each (4096)
//   GANTRY_FAKE_CONTEXT_MIB   what a process that uses a GPU takes of it (64)
//   GANTRY_FAKE_GPU_FAIL      "cuMemAlloc=2,cuMemMap=999": calls that fail, and how; -1 ends the
//                             process, -2 hangs it. As the content of the folder's file
//                             "failures": as long as it is there, also in processes that run
//   GANTRY_FAKE_PEER_ACCESS   0: no GPU reaches another's memory (1)
//   GANTRY_FAKE_GPU_SPEEDS    "kernel=100,block=200,row=500,row_byte=0.03": copies take their time
//                             and move nothing, for what measures them. Bytes in a nanosecond of a
//                             kernel; nanoseconds of a block of a batch, of a row, of a row's byte
//   GANTRY_FAKE_GPU_DEV       a folder: only the GPUs whose device file is there
// and what the vendor's own driver reads.
class FakeGpus {
 public:
  static FakeGpus& Instance();

  // Of the GPUs that this process sees, by ordinal: the machine's number of it.
  const std::vector<int>& visible() const { return visible_; }
  // Whether this GPU reaches that one's memory.
  bool Reaches(int gpu, int other) const { return gpu == other || peer_access_; }
  // A speed that was set, or 0.
  double SpeedOf(std::string_view name) const;
  // What was set for a call, or 0.
  int SettingOf(std::string_view call) const;
  // The result that a call is to fail with, or 0; here it hangs or ends its process.
  int FailureOf(std::string_view call) const;  // takes no memory, as it runs in destructors

  // A file of GPU memory whose owner is this process, for as long as it keeps the descriptor; no
  // descriptor when the GPU has not as much left, or the folder is gone.
  UniqueFd Create(int gpu, uint64_t bytes, std::string* name);
  // A file that another process created and still owns; the memory stays taken as long as somebody
  // keeps the descriptor.
  UniqueFd Open(int gpu, const std::string& name);
  // Its owner gives it up, and closes its descriptor next.
  void Remove(int gpu, const std::string& name);
  // The memory that a context costs, for as long as the descriptor is kept; none when it is not
  // there.
  UniqueFd TakeContext(int gpu);
  uint64_t total_bytes() const { return memory_bytes_; }
  uint64_t context_bytes() const { return context_bytes_; }
  uint64_t FreeBytes(int gpu);
  // Of which GPU the file behind a descriptor is memory; -1 when it is none.
  int GpuOf(int fd) const;

 private:
  FakeGpus();
  std::string FolderOf(int gpu) const;
  // One process at a time, which has the turn. Whether the GPU has so much left, which is taken.
  bool Take(int turn, int gpu, uint64_t bytes);
  int LateFailureOf(std::string_view call) const;  // takes no memory either

  std::string folder_;
  std::string late_failures_;  // the file's path
  int gpus_ = 0;
  uint64_t memory_bytes_ = 0;
  uint64_t context_bytes_ = 0;
  bool peer_access_ = true;
  std::vector<int> visible_;
  std::map<std::string, int, std::less<>> failures_;
  std::map<std::string, double, std::less<>> speeds_;
};

}  // namespace gantry::fake_gpu
