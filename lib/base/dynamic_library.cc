#include "lib/base/dynamic_library.h"

#include <dlfcn.h>

#include <utility>

namespace gantry {
namespace {

std::string LastLoaderError() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown loader error" : text;
}

}  // namespace

DynamicLibrary::DynamicLibrary(void* handle, std::string name)
    : handle_(handle), name_(std::move(name)) {}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  return *this;
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

Result<DynamicLibrary> DynamicLibrary::Open(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Fail(ErrorCode::kNotFound, "cannot load " + name + ": " + LastLoaderError());
  }
  return DynamicLibrary(handle, name);
}

Result<DynamicLibrary> DynamicLibrary::OpenLoaded(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) {
    return Fail(ErrorCode::kNotFound, name + " is not loaded in this process");
  }
  return DynamicLibrary(handle, name);
}

Result<void*> DynamicLibrary::Find(const char* symbol) const {
  ::dlerror();  // a symbol may be null by right: only a new error message means "missing"
  void* address = ::dlsym(handle_, symbol);
  if (address == nullptr) {
    return Fail(ErrorCode::kNotFound,
                name_ + " has no symbol " + symbol + ": " + LastLoaderError());
  }
  return address;
}

}  // namespace gantry
