#include "lib/wire/transfer_request.h"

#include <algorithm>
#include <array>

#include "lib/base/name.h"
#include "lib/base/random_id.h"

namespace gantry::wire {
namespace {

constexpr std::array<std::string_view, 3> kExecutorNames = {"any", "self", "peer"};
constexpr std::string_view kForm = "write it as [peer/]workload/buffer[@generation]";
constexpr std::string_view kLocalForm = "write it as buffer[@generation]";

tl::unexpected<Error> RefuseReference(std::string_view text, std::string_view field,
                                      int parts_max) {
  std::string shown(text.substr(0, kNameLengthMax));
  return Fail(ErrorCode::kInvalidArgument, "'" + shown + "' names no buffer",
              std::string(parts_max == 1 ? kLocalForm : kForm), std::string(field));
}

}  // namespace

std::string_view NameOf(Operation operation) {
  return operation == Operation::kRead ? "read" : "write";
}

std::optional<Operation> OperationByName(std::string_view name) {
  if (name == "read") return Operation::kRead;
  if (name == "write") return Operation::kWrite;
  return std::nullopt;
}

std::string_view NameOf(Executor executor) { return kExecutorNames[static_cast<size_t>(executor)]; }

std::optional<Executor> ExecutorByName(std::string_view name) {
  const auto found = std::find(kExecutorNames.begin(), kExecutorNames.end(), name);
  if (found == kExecutorNames.end()) return std::nullopt;
  return static_cast<Executor>(found - kExecutorNames.begin());
}

Result<BufferReference> ParseReference(std::string_view text, std::string_view field,
                                       int parts_max) {
  BufferReference reference;
  std::string_view names = text;
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    auto generation = ParseHex(text.substr(at + 1));
    if (!generation || *generation == 0) return RefuseReference(text, field, parts_max);
    reference.generation = *generation;
    names = text.substr(0, at);
  }
  std::string* const parts[] = {&reference.buffer, &reference.workload, &reference.peer};
  int part = 0;
  for (bool more = true; more; ++part) {
    if (part == parts_max || part == 3) return RefuseReference(text, field, parts_max);
    const size_t slash = names.rfind('/');
    more = slash != std::string_view::npos;
    const std::string_view name = more ? names.substr(slash + 1) : names;
    if (!CheckName(name, field)) return RefuseReference(text, field, parts_max);
    *parts[part] = name;
    if (more) names = names.substr(0, slash);
  }
  return reference;
}

Status TakeFencedWorkload(std::string&& text, std::string* workload, uint64_t* generation) {
  if (const size_t at = text.find('@'); at != std::string::npos) {
    const auto parsed = ParseHex(text.substr(at + 1));
    if (!parsed || *parsed == 0) {
      return Fail(ErrorCode::kInvalidArgument, "what follows '@' is no generation",
                  "write it as workload[@generation]");
    }
    *generation = *parsed;
    text.resize(at);
  }
  RETURN_IF_ERROR(CheckName(text, "this"));
  *workload = std::move(text);
  return {};
}

std::string FormatReference(const BufferReference& reference) {
  std::string text;
  if (!reference.peer.empty()) text += reference.peer + '/';
  if (!reference.workload.empty()) text += reference.workload + '/';
  text += reference.buffer;
  if (reference.generation != 0) text += '@' + HexOf(reference.generation);
  return text;
}

}  // namespace gantry::wire
