#include "lib/gpu/shared/vendor_calls.h"

#include "lib/gpu/shared/vendor_abi.h"

namespace gantry::gpu {

void MissingSymbols::Add(size_t feature, const std::string& symbol) {
  if (symbols_[feature].empty()) symbols_[feature] = symbol;
}

Status MissingSymbols::RequireAll(size_t feature, const char* update) const {
  if (symbols_[feature].empty()) return {};
  return Fail(ErrorCode::kDeviceError, std::string(library_) + " has no " + symbols_[feature],
              update);
}

Status MissingSymbols::Require(size_t feature) const {
  if (symbols_[feature].empty()) return {};
  return Fail(ErrorCode::kPathUnavailable,
              std::string(library_) + " has no " + symbols_[feature] + ", which " +
                  features_[feature] + " needs",
              update_);
}

std::vector<std::string> MissingSymbols::Describe() const {
  std::vector<std::string> said;
  for (size_t feature = 0; feature < symbols_.size(); ++feature) {
    if (!symbols_[feature].empty()) {
      said.push_back(std::string(features_[feature]) + ": " + symbols_[feature]);
    }
  }
  return said;
}

Error ErrorOfResult(int result, std::string_view what, const char* name, const char* text) {
  return Error(
      result == abi::kOutOfMemory ? ErrorCode::kResourceExhausted : ErrorCode::kDeviceError,
      std::string(what) + ": " +
          (name == nullptr ? "error " + std::to_string(result) : std::string(name)) +
          (text == nullptr ? "" : " (" + std::string(text) + ")"));
}

const char* NameOf(std::span<const Symbol> symbols, size_t offset) {
  for (const Symbol& symbol : symbols) {
    if (symbol.offset == offset) return symbol.name;
  }
  return "a function";
}

}  // namespace gantry::gpu
