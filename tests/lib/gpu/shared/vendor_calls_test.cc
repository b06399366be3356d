#include "lib/gpu/shared/vendor_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "lib/gpu/shared/vendor_abi.h"

namespace gantry::gpu {
namespace {

using ::testing::ElementsAre;

struct Functions {
  int (*start)(int flags);
  int (*copy)(void* to, const void* from, size_t bytes);
  const char* (*name_of)(int result);
  int (*copy_rows)(void* to, size_t pitch);
};
enum class Feature { kCore, kRows };
constexpr const char* kFeatures[] = {"core", "row copy"};
constexpr Symbol kSymbols[] = {{"apiStart", 0, offsetof(Functions, start)},
                               {"apiCopyAsync", 0, offsetof(Functions, copy)},
                               {"apiNameOf", 0, offsetof(Functions, name_of)},
                               {"apiCopy2D", 1, offsetof(Functions, copy_rows), 7}};

int Start(int flags) { return flags + 1; }
int CopyRows(void* /*to*/, size_t pitch) { return static_cast<int>(pitch); }

class Calls : public BoundCalls<Functions, Feature> {
 public:
  explicit Calls(const std::string& lacks)
      : BoundCalls(DynamicLibrary::OpenLoaded("libc.so.6").value(), kSymbols,
                   {"the driver", "update it", kFeatures}) {
    BindAll([&](const Symbol& symbol) -> void* {
      const std::string name = symbol.name;
      if (name == lacks) return nullptr;
      return name == "apiCopy2D" ? reinterpret_cast<void*>(CopyRows)
                                 : reinterpret_cast<void*>(Start);
    });
  }
  Status RequireCore() const { return missing_.RequireAll(0, "install it"); }
};

TEST(VendorCalls, BindsEachSymbolAtItsPlace) {
  const Calls calls("");
  EXPECT_EQ(calls->start(1), 2);
  EXPECT_EQ(calls->copy_rows(nullptr, 5), 5);
  EXPECT_THAT(calls.missing(), ElementsAre());
  EXPECT_TRUE(calls.Require(Feature::kRows));
  EXPECT_TRUE(calls.RequireCore());
}

TEST(VendorCalls, NamesAFunctionAsItsLibraryDoes) {
  const Calls calls("");
  EXPECT_STREQ(calls.NameOf(&Functions::start), "apiStart");
  EXPECT_STREQ(calls.NameOf(&Functions::copy), "apiCopyAsync");
  EXPECT_STREQ(calls.NameOf(&Functions::name_of), "apiNameOf");
  EXPECT_STREQ(calls.NameOf(&Functions::copy_rows), "apiCopy2D");
  const Calls moved = Calls("");
  EXPECT_STREQ(moved.NameOf(&Functions::copy), "apiCopyAsync");
}

TEST(VendorCalls, SaysWhatAFeatureLacks) {
  const Calls calls("apiCopy2D");
  EXPECT_EQ(calls->copy_rows, nullptr);
  EXPECT_STREQ(calls.NameOf(&Functions::copy_rows), "apiCopy2D");
  EXPECT_THAT(calls.missing(), ElementsAre("row copy: apiCopy2D"));
  const Status required = calls.Require(Feature::kRows);
  ASSERT_FALSE(required);
  EXPECT_EQ(required.error().code, ErrorCode::kPathUnavailable);
  EXPECT_EQ(required.error().message, "the driver has no apiCopy2D, which row copy needs");
  EXPECT_EQ(required.error().hint, "update it");
  EXPECT_TRUE(calls.RequireCore());
}

TEST(VendorCalls, ADriverWithoutItsCoreIsNone) {
  const Status required = Calls("apiCopyAsync").RequireCore();
  ASSERT_FALSE(required);
  EXPECT_EQ(required.error().code, ErrorCode::kDeviceError);
  EXPECT_EQ(required.error().message, "the driver has no apiCopyAsync");
  EXPECT_EQ(required.error().hint, "install it");
}

TEST(VendorCalls, TheFirstMissingSymbolOfAFeatureStays) {
  MissingSymbols missing("the driver", "update it", kFeatures);
  missing.Add(1, "apiFirst");
  missing.Add(1, "apiSecond");
  EXPECT_THAT(missing.Describe(), ElementsAre("row copy: apiFirst"));
}

TEST(VendorCalls, AnErrorHasTheVendorsWordsWhereThereAreSome) {
  const Error full = ErrorOfResult(abi::kOutOfMemory, "apiCopyAsync", "API_NO_MEMORY", "no memory");
  EXPECT_EQ(full.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(full.message, "apiCopyAsync: API_NO_MEMORY (no memory)");
  const Error bare = ErrorOfResult(999, "apiCopyAsync", nullptr, nullptr);
  EXPECT_EQ(bare.code, ErrorCode::kDeviceError);
  EXPECT_EQ(bare.message, "apiCopyAsync: error 999");
}

}  // namespace
}  // namespace gantry::gpu
