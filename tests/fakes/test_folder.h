// A folder of a test's own, which goes with everything in it. Thread-safe: it does not change.
#pragma once

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
  explicit TestFolder(const std::string& prefix = "/tmp/gantry-") : path_(Make(prefix)) {}
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
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
