// Tables that say which fields a request body has, of what type and within which limits, and where
// each value goes. schema_reader.h fills objects by them. Plain constants; thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lib/base/name.h"
#include "lib/base/result.h"

namespace gantry::wire {

enum class Need { kRequired, kOptional };
using enum Need;
// The plurals are lists; kTextsOrObjects is a list of both, or one text in its place.
enum class FieldKind {
  kText,
  kNumber,
  kObject,
  kTexts,
  kNumbers,
  kObjects,
  kObjectOrObjects,
  kTextsOrObjects
};

inline constexpr int64_t kNumberMax = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kTextBytesMax = 64 << 10;

struct Schema;

struct Field {
  std::string_view name;
  FieldKind kind = FieldKind::kText;
  Need need = Need::kOptional;
  int64_t least = 0;  // of a number its value, of a text its bytes
  int64_t most = 0;
  size_t elements_least = 0;  // of a list
  // What takes the value, by kind. For a list of texts it is called once for each element.
  Status (*text)(void* object, std::string&& value) = nullptr;
  Status (*word)(void* object, std::string&& value) = nullptr;  // the text in place of a list
  void (*number)(void* object, int64_t value) = nullptr;
  std::vector<uint64_t>* (*numbers)(void* object) = nullptr;  // of kNumbers: where they are added
  // Answers where a child object is to be filled in. For kTexts, if set: called as the list begins.
  void* (*enter)(void* object) = nullptr;
  const Schema* schema = nullptr;  // of the child object
};

struct Schema {
  std::span<const Field> fields;  // at most 32
  bool tuple = false;             // may also be written as a list of all fields in this order
};

// What a pointer to a member points to: the class, and the value with optional and vector removed.
template <typename Pointer>
struct MemberTraits;
template <typename Class, typename Member>
struct MemberTraits<Member Class::*> {
  using Object = Class;
  using Value = Member;
};
template <typename Class, typename Member>
struct MemberTraits<std::optional<Member> Class::*> {
  using Object = Class;
  using Value = Member;
};
template <typename Class, typename Member>
struct MemberTraits<std::vector<Member> Class::*> {
  using Object = Class;
  using Value = Member;
};
template <auto Pointer>
auto& MemberOf(void* object) {
  using Object = typename MemberTraits<decltype(Pointer)>::Object;
  return static_cast<Object*>(object)->*Pointer;
}
template <auto Pointer>
using ValueOf = typename MemberTraits<decltype(Pointer)>::Value;

// The list with at least one element, or with more.
constexpr Field NotEmpty(Field field, size_t elements_least = 1) {
  field.elements_least = elements_least;
  return field;
}

// A text that is kept as it is.
template <auto Pointer>
constexpr Field TextField(std::string_view name, Need need, int64_t bytes_max = kTextBytesMax,
                          int64_t bytes_min = 0) {
  Field field{name, FieldKind::kText, need, bytes_min, bytes_max};
  field.text = [](void* object, std::string&& value) -> Status {
    MemberOf<Pointer>(object) = std::move(value);
    return {};
  };
  return field;
}

// A text that is a name (lib/base/name.h).
template <auto Pointer>
constexpr Field NameField(std::string_view name, Need need) {
  Field field{name, FieldKind::kText, need, 0, kTextBytesMax};
  field.text = [](void* object, std::string&& value) -> Status {
    RETURN_IF_ERROR(CheckName(value, "this"));
    MemberOf<Pointer>(object) = std::move(value);
    return {};
  };
  return field;
}

// A text, or with kTexts each text of a list, that `take` makes something of.
constexpr Field ReadTextField(std::string_view name, FieldKind kind, Need need,
                              Status (*take)(void* object, std::string&& value)) {
  Field field{name, kind, need, 0, kTextBytesMax};
  field.text = take;
  return field;
}

template <auto Pointer>
constexpr Field NumberField(std::string_view name, Need need, int64_t least = 0,
                            int64_t most = kNumberMax) {
  using Value = ValueOf<Pointer>;
  constexpr bool kNarrow = sizeof(Value) < sizeof(int64_t);
  const int64_t fits =
      kNarrow ? static_cast<int64_t>(std::numeric_limits<Value>::max()) : kNumberMax;
  Field field{name, FieldKind::kNumber, need, least, most < fits ? most : fits};
  field.number = [](void* object, int64_t value) {
    MemberOf<Pointer>(object) = static_cast<Value>(value);
  };
  return field;
}

template <auto Pointer>
constexpr Field NumbersField(std::string_view name, Need need) {
  Field field{name, FieldKind::kNumbers, need, 0, kNumberMax};
  field.numbers = [](void* object) { return &MemberOf<Pointer>(object); };
  return field;
}

// A child object in an optional member.
template <auto Pointer>
constexpr Field ObjectField(std::string_view name, Need need, const Schema& schema) {
  Field field{name, FieldKind::kObject, need};
  field.enter = [](void* object) -> void* { return &MemberOf<Pointer>(object).emplace(); };
  field.schema = &schema;
  return field;
}

// One child object or a list of them.
template <auto Pointer>
constexpr Field ObjectOrObjectsField(std::string_view name, Need need, const Schema& schema) {
  Field field{name, FieldKind::kObjectOrObjects, need};
  field.enter = [](void* object) -> void* { return &MemberOf<Pointer>(object).emplace_back(); };
  field.schema = &schema;
  return field;
}

template <auto Pointer>
constexpr Field ObjectsField(std::string_view name, Need need, const Schema& schema) {
  Field field{name, FieldKind::kObjects, need};
  field.enter = [](void* object) -> void* { return &MemberOf<Pointer>(object).emplace_back(); };
  field.schema = &schema;
  return field;
}

}  // namespace gantry::wire
