#include "lib/base/dynamic_library.h"

#include <gtest/gtest.h>

#include <utility>

namespace gantry {
namespace {

TEST(DynamicLibraryTest, BindsASymbolThatIsThere) {
  auto library = DynamicLibrary::Open("libm.so.6");
  ASSERT_TRUE(library) << library.error().message;
  DynamicLibrary moved = std::move(*library);
  double (*cube_root)(double) = nullptr;
  ASSERT_TRUE(moved.Bind("cbrt", &cube_root));
  EXPECT_DOUBLE_EQ(cube_root(27.0), 3.0);
}

TEST(DynamicLibraryTest, SaysWhatIsMissing) {
  const auto missing = DynamicLibrary::Open("libgantry-is-not-there.so.1");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("libgantry-is-not-there.so.1"), std::string::npos);
  const auto library = DynamicLibrary::Open("libm.so.6");
  void (*symbol)() = nullptr;
  const Status bound = library->Bind("gantry_is_not_there", &symbol);
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("gantry_is_not_there"), std::string::npos);
  EXPECT_EQ(symbol, nullptr);
}

}  // namespace
}  // namespace gantry
