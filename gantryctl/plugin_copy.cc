#include "gantryctl/plugin_copy.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "gantryctl/exit_code.h"
#include "gantryctl/printing.h"

namespace gantry::gantryctl {
namespace {

namespace fs = std::filesystem;

constexpr char kBackend[] = "libplugin_GANTRY.so";
constexpr char kInTheImage[] = "/usr/local/bin/gantryctl";
constexpr char kBesideTheProgram[] = "../share/gantry/nixl";

Error CannotCopy(const fs::filesystem_error& error) {
  return {ErrorCode::kInternal, error.what(),
          "name a folder that this user can write to, such as a volume of the pod"};
}

}  // namespace

Result<std::vector<fs::path>> CopyNixlPlugin(const fs::path& from, const fs::path& to) {
  if (!fs::exists(from / kBackend)) {
    return Fail(ErrorCode::kNotFound, "there is no " + (from / kBackend).string(),
                "run this in Gantry's image, or install the target plugin_GANTRY");
  }
  std::vector<fs::path> copied;
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(from)) {
      const fs::path target = to / fs::relative(entry.path(), from);
      if (!entry.is_regular_file()) continue;
      fs::create_directories(target.parent_path());
      // A new file: an engine may have the old one mapped.
      fs::remove(target);
      fs::copy_file(entry.path(), target);
      fs::permissions(target, fs::perms::group_read | fs::perms::others_read,
                      fs::perm_options::add);
      copied.push_back(target);
    }
  } catch (const fs::filesystem_error& error) {
    return Fail(CannotCopy(error));
  }
  std::sort(copied.begin(), copied.end());
  return copied;
}

int RunNixlPlugin(const CommandLine& line) {
  std::error_code failed;
  fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (failed) program = kInTheImage;  // without /proc
  const auto copied =
      CopyNixlPlugin((program.parent_path() / kBesideTheProgram).lexically_normal(), line.folder);
  if (!copied) return PrintError(copied.error());
  for (const fs::path& path : *copied) Print(path.string() + "\n");
  return kExitOk;
}

}  // namespace gantry::gantryctl
