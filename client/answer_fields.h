// The few members of an answer, in JSON or CBOR, that the client reads, by path ("error/code",
// "buffers/3/id"). Builds no tree: nlohmann's trees allocate while they are destroyed, and running
// out of memory there would end the host's process. A value; used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace gantry::client {

class AnswerFields {
 public:
  // Keeps the texts, unsigned numbers and truth values whose own key is one of `keys`; nullopt when
  // `body` is no JSON object and no map of CBOR.
  static std::optional<AnswerFields> Read(std::string_view body,
                                          std::span<const std::string_view> keys);

  // "", 0 and false for what is not there or has another type.
  std::string Text(std::string_view path) const;
  uint64_t Number(std::string_view path) const;
  bool Flag(std::string_view path) const;

 private:
  friend class FieldCollector;
  std::map<std::string, std::variant<std::string, uint64_t, bool>, std::less<>> values_;
};

}  // namespace gantry::client
