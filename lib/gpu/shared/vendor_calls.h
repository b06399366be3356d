// Functions of a vendor's library, bound at run time by name. A function that is missing is null:
// its feature says so. Immutable once they are bound; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/dynamic_library.h"
#include "lib/base/result.h"

namespace gantry::gpu {

struct Symbol {
  const char* name;
  size_t feature;
  size_t offset;    // of its pointer in the table of functions
  int version = 0;  // that brought the ABI declared there, for libraries that ask for one
};

// The first symbol that is missing of each feature.
class MissingSymbols {
 public:
  // `library` and `update` for errors: "the HIP runtime", and how to get a newer one.
  MissingSymbols(const char* library, const char* update, std::span<const char* const> features)
      : library_(library), update_(update), features_(features), symbols_(features.size()) {}

  void Add(size_t feature, const std::string& symbol);
  // An error when there is no such driver at all.
  Status RequireAll(size_t feature, const char* update) const;
  // An error that names the missing symbol when the feature cannot be used.
  Status Require(size_t feature) const;
  std::vector<std::string> Describe() const;

 private:
  const char* library_;
  const char* update_;
  std::span<const char* const> features_;  // their names
  std::vector<std::string> symbols_;
};

// An error of `what`, whose result was not success; `name` and `text` are the vendor's, or null.
Error ErrorOfResult(int result, std::string_view what, const char* name, const char* text);
const char* NameOf(std::span<const Symbol> symbols, size_t offset);

// The functions of one library. `Functions` is a structure of pointers to them.
template <typename Functions, typename Feature>
class BoundCalls {
 public:
  const Functions* operator->() const { return &functions_; }
  const Functions& functions() const { return functions_; }
  Status Require(Feature feature) const { return missing_.Require(static_cast<size_t>(feature)); }
  std::vector<std::string> missing() const { return missing_.Describe(); }
  int version() const { return version_; }  // of the driver, as the vendor counts

  // The vendor's name of a function, for errors: NameOf(&Functions::mem_map).
  template <typename Function>
  const char* NameOf(Function Functions::*function) const {
    const auto* const at = reinterpret_cast<const char*>(&(functions_.*function));
    return gpu::NameOf(symbols_,
                       static_cast<size_t>(at - reinterpret_cast<const char*>(&functions_)));
  }

 protected:
  BoundCalls(DynamicLibrary library, std::span<const Symbol> symbols, MissingSymbols missing)
      : library_(std::move(library)), symbols_(symbols), missing_(std::move(missing)) {}

  // `find` returns the function of a symbol, or null.
  template <typename Find>
  void BindAll(Find find) {
    for (const Symbol& symbol : symbols_) {
      void* const found = find(symbol);
      *reinterpret_cast<void**>(reinterpret_cast<char*>(&functions_) + symbol.offset) = found;
      if (found == nullptr) missing_.Add(symbol.feature, symbol.name);
    }
  }
  void Miss(Feature feature, const std::string& what) {
    missing_.Add(static_cast<size_t>(feature), what);
  }

  DynamicLibrary library_;
  Functions functions_ = {};
  std::span<const Symbol> symbols_;
  MissingSymbols missing_;
  int version_ = 0;
};

}  // namespace gantry::gpu
