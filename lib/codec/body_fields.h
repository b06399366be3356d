// The few members of a body, in JSON or CBOR, that its reader wants, by path ("error/code",
// "buffers/3/id"). Members that it does not know are passed over. Builds no tree: nlohmann's trees
// allocate while they are destroyed, and running out of memory there would end a workload. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::wire {

class BodyFields {
 public:
  // Keeps the texts, unsigned numbers and truth values whose own key is one of `keys`, of several
  // at one path the last; nullopt when `body` is no JSON object and no map of CBOR.
  static std::optional<BodyFields> Read(std::string_view body,
                                        std::span<const std::string_view> keys);

  // "", 0 and false for what is not there or has another type.
  std::string Text(std::string_view path) const;
  uint64_t Number(std::string_view path) const;
  bool Flag(std::string_view path) const;

 private:
  friend class FieldCollector;
  enum class Kind : uint8_t { kText, kNumber, kFlag };
  // Its path lies in `characters_`; a text follows it there, of which `number` is the length.
  struct Field {
    size_t start = 0;
    uint32_t path_size = 0;
    Kind kind = Kind::kText;
    uint64_t number = 0;
  };
  std::string_view PathOf(const Field& field) const {
    return std::string_view(characters_).substr(field.start, field.path_size);
  }
  // Null when there is none of that path and kind.
  const Field* Find(std::string_view path, Kind kind) const;

  std::string characters_;
  std::vector<Field> fields_;  // by path when they are many, equal ones as they came
};

}  // namespace gantry::wire
