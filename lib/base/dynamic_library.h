// Opens a shared library at run time and binds its symbols by name; closes it when destroyed.
// Used by one thread at a time.
#pragma once

#include <string>

#include "lib/base/result.h"

namespace gantry {

class DynamicLibrary {
 public:
  // `name` as dlopen takes it, with its version ("libibverbs.so.1"): an unversioned name is often a
  // toolkit's stub. Symbols stay local (RTLD_LOCAL).
  static Result<DynamicLibrary> Open(const std::string& name);
  // Opens a library that this process has loaded already; kNotFound otherwise. Loads nothing.
  static Result<DynamicLibrary> OpenLoaded(const std::string& name);

  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;
  ~DynamicLibrary();

  // Sets *function to the symbol. The error names the missing symbol and its library.
  template <typename Function>
  Status Bind(const char* symbol, Function** function) const {
    auto address = Find(symbol);
    if (!address) return Fail(std::move(address).error());
    *function = reinterpret_cast<Function*>(*address);
    return {};
  }

 private:
  DynamicLibrary(void* handle, std::string name);
  Result<void*> Find(const char* symbol) const;

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace gantry
