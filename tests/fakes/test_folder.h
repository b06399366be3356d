// A folder of a test's own, which goes with everything in it. It lies in one of the program's,
// which goes at the program's end: the process of a death test ends without destructors.
// Thread-safe.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace gantry::testing {

class TestFolder {
 public:
  // A short one: the path of a socket in it has 107 bytes.
  TestFolder() : TestFolder(OfProgram() + "/") {}
  explicit TestFolder(const std::string& prefix) : path_(Make(prefix)) {}
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  // Death tests find it in their environment, and leave it to the process that made it. A tier
  // names the folder in which nothing may be left.
  struct ProgramFolder {
    ProgramFolder() {
      const char* const given = ::getenv(kVariable);
      const char* const root = ::getenv("GANTRY_TEST_ROOT");
      if (given != nullptr) {
        path = given;
        return;
      }
      const bool has_root = root != nullptr && ::access(root, W_OK | X_OK) == 0;
      path = Make(has_root ? std::string(root) + "/" : "/tmp/gantry-");
      ::chmod(path.c_str(), 0711);  // some tests let another user into a folder below it
      owner = ::getpid();
      ::setenv(kVariable, path.c_str(), 1);
    }
    ~ProgramFolder() {
      std::error_code ignored;
      if (owner == ::getpid()) std::filesystem::remove_all(path, ignored);
    }

    static constexpr const char* kVariable = "GANTRY_TEST_PROGRAM_FOLDER";
    std::string path;
    pid_t owner = 0;
  };

  static const std::string& OfProgram() {
    static const ProgramFolder folder;
    return folder.path;
  }

  // Before main, so that it is in the environment of the first death test, too.
  inline static const std::string& made = OfProgram();

  static std::string Make(const std::string& prefix) {
    std::string path = prefix + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      std::perror(path.c_str());
      std::abort();
    }
    return path;
  }

  const std::string path_;
};

}  // namespace gantry::testing
