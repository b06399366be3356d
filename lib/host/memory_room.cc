#include "lib/host/memory_room.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "lib/host/control_group.h"

namespace gantry::host {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
// Page tables and the file's index take 8 and 9 bytes for each page of 4 KiB.
constexpr uint64_t kBytesPerRecordByte = 128;

// Nothing: no such file, or "max".
std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// The sum of the lines "key number" with these keys.
uint64_t SumIn(const fs::path& file, std::initializer_list<std::string_view> keys) {
  uint64_t sum = 0;
  for (const std::string& line : LinesOf(file)) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string_view key = std::string_view(line).substr(0, space);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) continue;
    sum += NumberOf(std::string_view(line).substr(space + 1)).value_or(0);
  }
  return sum;
}

void Narrow(MemoryRoom* room, uint64_t bytes, std::string bound) {
  if (bytes < room->bytes) *room = {bytes, std::move(bound)};
}

uint64_t Left(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

// One file that limits what another one counts.
struct LimitFiles {
  const char* limit;
  const char* used;
};
constexpr LimitFiles kUnifiedLimits[] = {{"memory.max", "memory.current"},
                                         {"memory.high", "memory.current"}};
// The second pair counts memory and swap together.
constexpr LimitFiles kSeparateLimits[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes"},
    {"memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"}};

void NarrowByGroup(const fs::path& folder, bool unified, MemoryRoom* room) {
  std::optional<uint64_t> droppable;
  for (const auto& [limit_file, used_file] : unified ? kUnifiedLimits : kSeparateLimits) {
    const auto limit = NumberOf(FirstLine(folder / limit_file));
    // "max" is no number, and version 1 says it with one that no machine has.
    if (!limit || *limit >= uint64_t{1} << 62) continue;
    if (!droppable) {
      droppable =
          SumIn(folder / "memory.stat",
                unified ? std::initializer_list<std::string_view>{"inactive_file", "active_file",
                                                                  "slab_reclaimable"}
                        : std::initializer_list<std::string_view>{"total_inactive_file",
                                                                  "total_active_file"});
    }
    const uint64_t used = NumberOf(FirstLine(folder / used_file)).value_or(0);
    Narrow(room, Left(*limit, Left(used, *droppable)),
           std::string(limit_file) + " of " + folder.string() + " (" + std::to_string(*limit) +
               ", " + std::to_string(used) + " used)");
  }
}

// Version 1 tells also of limits above what a container sees, without what is used of them.
void NarrowByHiddenLimit(const fs::path& folder, MemoryRoom* room) {
  const uint64_t limit = SumIn(folder / "memory.stat", {"hierarchical_memory_limit"});
  if (limit == 0 || limit >= uint64_t{1} << 62) return;
  const uint64_t droppable =
      SumIn(folder / "memory.stat", {"total_inactive_file", "total_active_file"});
  const uint64_t used = NumberOf(FirstLine(folder / "memory.usage_in_bytes")).value_or(0);
  Narrow(room, Left(limit, Left(used, droppable)),
         "the lowest limit above " + folder.string() + " (" + std::to_string(limit) + ")");
}

uint64_t AvailableOnMachine(const fs::path& root) {
  for (const std::string& line : LinesOf(root / "proc/meminfo")) {
    const std::vector<std::string> words = WordsOf(line);
    if (words.size() < 2 || words[0] != "MemAvailable:") continue;
    if (const auto kib = NumberOf(words[1])) return *kib << 10;
  }
  return kUnlimited;
}

}  // namespace

MemoryRoom MemoryRoomOf(const fs::path& root) {
  MemoryRoom room{AvailableOnMachine(root), "MemAvailable of the machine"};
  const ControlGroup group = ControlGroupOf("memory", root);
  for (const fs::path& folder : group.folders) NarrowByGroup(folder, group.unified, &room);
  if (!group.unified && !group.folders.empty()) NarrowByHiddenLimit(group.folders.front(), &room);
  return room;
}

Status CheckMemoryRoom(uint64_t bytes, const fs::path& root) {
  const MemoryRoom room = MemoryRoomOf(root);
  if (bytes <= room.bytes && bytes / kBytesPerRecordByte <= room.bytes - bytes) return {};
  return Fail(ErrorCode::kResourceExhausted,
              std::to_string(bytes) + " bytes of memory were asked for, " +
                  std::to_string(room.bytes) + " are left by " + room.bound,
              "ask for less, or raise the container's memory limit", "bytes");
}

}  // namespace gantry::host
