#include "gantryctl/plugin_copy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace gantry::gantryctl {
namespace {

namespace fs = std::filesystem;

class NixlPlugin : public ::testing::Test {
 protected:
  NixlPlugin() {
    fs::create_directories(from_ / "gantry_nixl");
    Write(from_ / "libplugin_GANTRY.so", "backend");
    Write(from_ / "gantry_nixl/__init__.py", "package");
  }
  ~NixlPlugin() override { fs::remove_all(folder_); }

  static fs::path NewFolder() {
    char path[] = "/tmp/gantry-nixl-plugin-XXXXXX";
    return ::mkdtemp(path);
  }
  static void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Read(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const fs::path folder_ = NewFolder();
  const fs::path from_ = folder_ / "from";
  const fs::path to_ = folder_ / "volume/nixl";
};

TEST_F(NixlPlugin, IsCopiedWithItsPackage) {
  const auto copied = CopyNixlPlugin(from_, to_);
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_EQ(*copied,
            (std::vector<fs::path>{to_ / "gantry_nixl/__init__.py", to_ / "libplugin_GANTRY.so"}));
  EXPECT_EQ(Read(to_ / "libplugin_GANTRY.so"), "backend");
  EXPECT_EQ(Read(to_ / "gantry_nixl/__init__.py"), "package");
}

TEST_F(NixlPlugin, ReplacesAnEarlierOneByAnotherFileThatAllCanRead) {
  fs::permissions(from_ / "libplugin_GANTRY.so", fs::perms::owner_read);
  fs::create_directories(to_);
  Write(to_ / "libplugin_GANTRY.so", "older");
  std::ifstream mapped(to_ / "libplugin_GANTRY.so");
  ASSERT_TRUE(CopyNixlPlugin(from_, to_));
  EXPECT_EQ(Read(to_ / "libplugin_GANTRY.so"), "backend");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(mapped), {}), "older");
  struct stat info = {};
  ASSERT_EQ(::stat((to_ / "libplugin_GANTRY.so").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0444, 0444U);
}

TEST_F(NixlPlugin, IsAnErrorWhereThereIsNone) {
  fs::remove(from_ / "libplugin_GANTRY.so");
  const auto copied = CopyNixlPlugin(from_, to_);
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(fs::exists(to_));
}

TEST_F(NixlPlugin, IsAnErrorWhereItCannotBeWritten) {
  Write(folder_ / "volume", "a file");
  const auto copied = CopyNixlPlugin(from_, to_);
  ASSERT_FALSE(copied);
  EXPECT_NE(copied.error().hint.find("can write"), std::string::npos);
}

}  // namespace
}  // namespace gantry::gantryctl
