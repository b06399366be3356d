#include "sidecar/worker/process/probe_list.h"

#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "lib/base/byte_range.h"
#include "sidecar/worker/process/fault_guard.h"

namespace gantry::worker {
namespace {

using memory::MemoryProbe;
using Bytes = std::array<char, wire::kNonceBytesMax>;
static_assert(std::is_trivially_copyable_v<MemoryProbe>);

std::string HexOfBytes(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

Status ReadProbe(const MappingTable& mappings, const MemoryProbe& probe, Bytes* there) {
  const auto mapped = mappings.Find(probe.mapping);
  if (!mapped) {
    return Fail(ErrorCode::kStaleGeneration, "mapping slot " + std::to_string(probe.mapping.slot) +
                                                 " does not hold generation " +
                                                 std::to_string(probe.mapping.generation));
  }
  if (probe.length == 0 || probe.length > there->size() ||
      !Fits(probe.offset, probe.length, mapped->size)) {
    return Fail(ErrorCode::kOutOfRange, "a probe lies outside of its allocation");
  }
  if (mapped->gpu == nullptr) {
    const bool copied = RunGuarded({mapped->unsealed(), {}}, [&] {
      std::memcpy(there->data(), mapped->data + probe.offset, probe.length);
    });
    if (copied) return {};
    return Fail(ErrorCode::kFdTooShort, "its file has lost the pages that a probe lies in",
                "do not truncate the file of a buffer that is registered");
  }
  return mapped->gpu->context()->CopyToHost(there->data(), mapped->gpu->base() + probe.offset,
                                            probe.length);
}

}  // namespace

Result<SharedBlock> MakeProbeList(std::span<const MemoryProbe> probes) {
  ASSIGN_OR_RETURN(SharedBlock list, SharedBlock::Create("gantry-probes", probes.size_bytes()));
  std::memcpy(list.data(), probes.data(), probes.size_bytes());
  return list;
}

Result<std::string> CompareProbes(const MappingTable& mappings, UniqueFd list, uint64_t count) {
  if (count == 0 || count > kProbesPerListMax) {
    return Fail(ErrorCode::kInvalidArgument, "no list of " + std::to_string(count) + " probes");
  }
  ASSIGN_OR_RETURN(const SharedBlock block,
                   SharedBlock::Attach(std::move(list), count * sizeof(MemoryProbe)));
  const auto* const bytes = static_cast<const char*>(block.data());
  for (size_t i = 0; i < count; ++i) {
    MemoryProbe probe;
    std::memcpy(&probe, bytes + i * sizeof(probe), sizeof(probe));
    Bytes there{};
    RETURN_IF_ERROR(ReadProbe(mappings, probe, &there));
    if (std::memcmp(there.data(), probe.bytes.data(), probe.length) == 0) continue;
    return std::to_string(i) + " " + HexOfBytes({there.data(), probe.length});
  }
  return std::string();
}

Result<memory::ProbeMismatch> ParseMismatch(std::string_view said, size_t count) {
  memory::ProbeMismatch mismatch;
  const char* const end = said.data() + said.size();
  const auto [rest, error] = std::from_chars(said.data(), end, mismatch.probe);
  if (error != std::errc() || rest == end || *rest != ' ' || mismatch.probe >= count) {
    return Fail(ErrorCode::kInternal, "a copy worker's answer about probes cannot be read");
  }
  mismatch.found.assign(rest + 1, end);
  return mismatch;
}

}  // namespace gantry::worker
