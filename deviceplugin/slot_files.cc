#include "deviceplugin/slot_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "deviceplugin/cdi/cdi_specs.h"
#include "deviceplugin/slot_list.h"
#include "lib/base/random_id.h"
#include "lib/base/unique_fd.h"
#include "lib/wire/slot_variables.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr mode_t kMode = 0644;
constexpr std::string_view kExtension = ".json";
constexpr uintmax_t kBytesMax = 8 << 20;           // as of all specs
constexpr std::chrono::minutes kUnfinishedFor{1};  // then nobody writes it any more

// Nothing of what is longer than any spec.
std::string TextOf(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) > kBytesMax) return {};
  std::ifstream input(file);
  return {std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
}

// "<spec>.0123456789abcdef"; `prefix` is the beginning of each spec's name.
bool IsTemporary(std::string_view name, std::string_view prefix) {
  const size_t hex = HexOf(0).size();
  if (name.size() <= prefix.size() + hex || !name.starts_with(prefix)) return false;
  const std::string_view spec = name.substr(0, name.size() - hex);
  return spec.ends_with(std::string(kExtension) + ".") &&
         name.find_first_not_of("0123456789abcdef", spec.size()) == std::string_view::npos;
}

Error CannotWrite(const std::string& path, int error) {
  Error failure = SystemError(ErrorCode::kInternal, "writing the CDI spec " + path, error);
  failure.hint = "the folder of --cdi-dir must be the host's, and writable";
  return failure;
}

Status WriteWhole(const std::string& path, std::string_view text) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!file.valid()) return Fail(CannotWrite(path, errno));
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Fail(CannotWrite(path, errno));
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (::fchmod(file.get(), kMode) != 0 || ::fsync(file.get()) != 0) {
    return Fail(CannotWrite(path, errno));
  }
  return {};
}

std::string SpecOf(const std::string& resource, std::string_view slot, const SlotPlan& plan) {
  const json spec = {
      {"cdiVersion", plan.cdi_version},
      {"kind", resource},
      {"devices", {{{"name", slot}, {"containerEdits", plan.edits.json()}}}},
  };
  return spec.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

SlotFiles::SlotFiles(std::string folder, std::string resource)
    : folder_(std::move(folder)), resource_(std::move(resource)) {}

std::string SlotFiles::CdiNameOf(std::string_view slot) const {
  return resource_ + "=" + std::string(slot);
}

std::string SlotFiles::NameOf(std::string_view slot) const {
  std::string name = resource_ + "-" + std::string(slot) + std::string(kExtension);
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

TimePoint SlotFiles::WrittenAt(std::string_view slot) const {
  const MutexLock lock(mutex_);
  const auto written = written_at_.find(slot);
  return written == written_at_.end() ? TimePoint() : written->second;
}

uint64_t SlotFiles::EpochOf(std::string_view slot) const {
  const MutexLock lock(mutex_);
  return EpochNow(slot);
}

uint64_t SlotFiles::EpochNow(std::string_view slot) const {
  const auto epoch = epochs_.find(slot);
  return epoch == epochs_.end() ? 0 : epoch->second;
}

Status SlotFiles::CheckEpoch(std::string_view slot, uint64_t epoch) const {
  if (EpochNow(slot) == epoch) return {};
  return Fail(ErrorCode::kConflict, "the file of " + std::string(slot) + " was changed meanwhile");
}

Result<bool> SlotFiles::Write(std::string_view slot, const SlotPlan& plan, uint64_t epoch) {
  const std::string path = PathOf(slot);
  const std::string text = SpecOf(resource_, slot, plan);
  // In the same folder: runtimes hear of a rename within it, and not of a file that comes from
  // elsewhere. Its name does not end as a spec's.
  const std::string temporary = path + "." + HexOf(RandomGeneration());  // see IsTemporary
  auto written = WriteWhole(temporary, text);
  if (written) {
    const MutexLock lock(mutex_);
    written = CheckEpoch(slot, epoch);
    if (written && TextOf(path) == text) {
      ::unlink(temporary.c_str());
      return false;
    }
    if (written && ::rename(temporary.c_str(), path.c_str()) != 0) {
      written = Fail(CannotWrite(path, errno));
    }
    if (written) {
      ++epochs_[std::string(slot)];
      written_at_[std::string(slot)] = Clock::now();
    }
  }
  if (written) return true;
  ::unlink(temporary.c_str());
  return Fail(std::move(written).error());
}

Status SlotFiles::Remove(std::string_view slot, uint64_t epoch) {
  const MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckEpoch(slot, epoch));
  return RemoveNow(slot);
}

Status SlotFiles::Clear(std::string_view slot) {
  const MutexLock lock(mutex_);
  return RemoveNow(slot);
}

Status SlotFiles::RemoveNow(std::string_view slot) {
  ++epochs_[std::string(slot)];
  const std::string path = PathOf(slot);
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return Fail(SystemError(ErrorCode::kInternal, "removing the CDI spec " + path, errno));
}

std::vector<SlotFiles::Entry> SlotFiles::List() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator file(folder_, error), end; !error && file != end;
       file.increment(error)) {
    if (file->path().extension() != ".json") continue;
    const auto spec = ParseCdiSpec(TextOf(file->path()), /*yaml=*/false);
    if (!spec || (*spec)["kind"] != resource_) continue;
    const json device = spec->value(json::json_pointer("/devices/0"), json::object());
    const auto edits = device.find("containerEdits");
    if (!device.contains("name") || !device["name"].is_string()) continue;
    const ContainerEdits container(edits != device.end() && edits->is_object() ? *edits
                                                                               : json::object());
    const std::string slot = device["name"];
    entries.push_back({slot, container.Variable(wire::kSlotNamespaceVariable),
                       container.Variable(wire::kSlotPodVariable),
                       container.Variable(wire::kSlotContainerVariable), EpochOf(slot)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.slot < b.slot; });
  return entries;
}

void SlotFiles::RemoveUnfinished() const {
  std::string prefix = NameOf(SlotList::kPrefix);
  prefix.resize(prefix.size() - kExtension.size());
  const auto long_ago = fs::file_time_type::clock::now() - kUnfinishedFor;
  std::error_code error;
  for (fs::directory_iterator file(folder_, error), end; !error && file != end;
       file.increment(error)) {
    if (!IsTemporary(file->path().filename().string(), prefix)) continue;
    std::error_code gone;
    if (fs::last_write_time(file->path(), gone) < long_ago && !gone) {
      ::unlink(file->path().c_str());
    }
  }
}

// Writes nothing: runtimes look at the whole folder again after each event in it.
Status SlotFiles::Probe() const {
  if (::access(folder_.c_str(), W_OK | X_OK) == 0) return {};
  return Fail(CannotWrite("in " + folder_, errno));
}

}  // namespace gantry::deviceplugin
