#include "lib/codec/schema_reader.h"

#include <array>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/json_text.h"
#include "lib/codec/body_cursor.h"
#include "lib/codec/cbor_nesting.h"
#include "lib/codec/number_list.h"

namespace gantry::wire {
namespace {

// Deeper than any schema nests: the root, then a list and an object for each level.
constexpr size_t kFramesMax = 16;

constexpr size_t kUnknownLength = ~size_t{0};  // of a list: nlohmann's word for it
constexpr char kNoBytes = 0x40;                // the CBOR item of a byte string without bytes

// What the reader is inside of.
struct Frame {
  enum class Mode { kObject, kTuple, kList };
  Mode mode = Mode::kObject;
  const Schema* schema = nullptr;  // of kObject and kTuple
  const Field* field = nullptr;    // the current one; of kList the list
  void* object = nullptr;          // that the values go into
  uint32_t seen = 0;               // bit i: fields[i] was there
  size_t index = 0;                // elements begun, of kTuple and kList
};

std::string EscapePointer(std::string_view name) {
  std::string escaped;
  for (const char c : name.substr(0, 64)) {
    if (c == '~') {
      escaped += "~0";
    } else if (c == '/') {
      escaped += "~1";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string_view Expected(const Field& field, bool in_list) {
  switch (field.kind) {
    case FieldKind::kText:
      return "a string";
    case FieldKind::kNumber:
      return "an integer";
    case FieldKind::kObject:
      return "an object";
    case FieldKind::kTexts:
      return in_list ? "a string" : "a list of strings";
    case FieldKind::kNumbers:
      return in_list ? "an integer" : "a list of integers";
    case FieldKind::kObjects:
      return in_list ? "an object" : "a list";
    case FieldKind::kTextsOrObjects:
      return in_list ? "a string, a list or an object" : "a string or a list";
    case FieldKind::kObjectOrObjects:
      break;
  }
  return in_list ? "an object" : "an object or a list of objects";
}

// The events of nlohmann's parsers; false stops them, error() then says why.
class SchemaHandler {
 public:
  SchemaHandler(const Field& root, void* object, bool cbor, BodyCursor& cursor)
      : cbor_(cbor), cursor_(cursor) {
    frames_[0].field = &root;
    frames_[0].object = object;
  }

  Error TakeError() { return std::move(error_); }
  bool root_is_list() const { return root_is_list_; }

  bool null() { return WrongType("null"); }
  bool boolean(bool) { return WrongType("a boolean"); }
  // In place of a list of integers: 32 bits each, the lowest byte first.
  bool binary(nlohmann::json::binary_t& bytes) {
    if (std::exchange(packed_is_taken_, false)) return true;
    const Field* field = Next();
    if (field == nullptr) return false;
    if (InList() || field->kind != FieldKind::kNumbers) return Mismatch(*field, "binary data");
    const size_t count = bytes.size() / kPackedBytes;
    if (bytes.size() % kPackedBytes != 0) {
      return Fail(ErrorCode::kMalformedBody, "the binary list has " + std::to_string(bytes.size()) +
                                                 " bytes, and 4 for each integer");
    }
    if (elements_ + count > kBodyElementsMax) return TooManyElements();
    elements_ += count;
    if (count < field->elements_least) return EmptyList();
    std::vector<uint64_t>& numbers = *field->numbers(Top().object);
    numbers.reserve(numbers.size() + count);
    for (size_t i = 0; i < bytes.size(); i += kPackedBytes) {
      const uint32_t value = bytes[i] | bytes[i + 1] << 8 | bytes[i + 2] << 16 |
                             static_cast<uint32_t>(bytes[i + 3]) << 24;
      numbers.push_back(value);
    }
    return true;
  }
  bool number_float(double, const std::string&) {
    return WrongType("a number that is no integer of 64 bits");
  }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(kNumberMax)) return TooLargeNumber();
    return number_integer(static_cast<int64_t>(value));
  }
  bool number_integer(int64_t value) {
    if (last_of_list_) {
      last_of_list_ = false;
      Top().field->numbers(Top().object)->push_back(static_cast<uint64_t>(value));
      return true;
    }
    const Field* field = Next();
    if (field == nullptr) return false;
    if (field->kind != (InList() ? FieldKind::kNumbers : FieldKind::kNumber)) {
      return Mismatch(*field, "a number");
    }
    if (value < field->least || value > field->most) return OutOfBounds(*field, value);
    if (InList()) {
      field->numbers(Top().object)->push_back(static_cast<uint64_t>(value));
    } else {
      field->number(Top().object, value);
    }
    return true;
  }
  bool string(std::string& value) {
    const Field* field = Next();
    if (field == nullptr) return false;
    const bool mixed = field->kind == FieldKind::kTextsOrObjects;
    if (!mixed && field->kind != (InList() ? FieldKind::kTexts : FieldKind::kText)) {
      return Mismatch(*field, "a string");
    }
    const auto bytes = static_cast<int64_t>(value.size());
    if (bytes < field->least || bytes > field->most) {
      return Fail(ErrorCode::kInvalidArgument,
                  "the string has " + std::to_string(bytes) + " bytes instead of " +
                      std::to_string(field->least) + " to " + std::to_string(field->most));
    }
    if (cbor_ && !IsUtf8(value)) {
      return Fail(ErrorCode::kMalformedBody, "the string is not UTF-8");
    }
    const auto take = mixed && !InList() ? field->word : field->text;
    Status taken = take(Top().object, std::move(value));
    if (taken) return true;
    error_ = std::move(taken.error()).WithField(Pointer());
    return false;
  }

  bool start_object(size_t) {
    const Field* field = Next();
    if (field == nullptr) return false;
    const bool one =
        field->kind == FieldKind::kObject || field->kind == FieldKind::kObjectOrObjects;
    const bool element = field->kind == FieldKind::kObjects ||
                         field->kind == FieldKind::kObjectOrObjects ||
                         field->kind == FieldKind::kTextsOrObjects;
    if (InList() ? !element : !one) return Mismatch(*field, "an object");
    return Push({Frame::Mode::kObject, field->schema, nullptr, field->enter(Top().object)});
  }
  bool key(std::string& name) {
    Frame& top = Top();
    for (size_t i = 0; i < top.schema->fields.size(); ++i) {
      const Field& field = top.schema->fields[i];
      if (field.name != name) continue;
      top.field = &field;
      if ((top.seen >> i & 1) != 0) {
        return Fail(ErrorCode::kMalformedBody, "the field is there twice");
      }
      top.seen |= uint32_t{1} << i;
      if (cbor_ && field.kind == FieldKind::kNumbers) TakeList(field);
      return true;
    }
    top.field = nullptr;
    error_ = Error(ErrorCode::kMalformedBody, "there is no such field", "see /openapi.yaml",
                   Pointer() + "/" + EscapePointer(name));
    return false;
  }
  bool end_object() {
    Frame& top = Top();
    for (size_t i = 0; i < top.schema->fields.size(); ++i) {
      const Field& field = top.schema->fields[i];
      if (field.need == Need::kRequired && (top.seen >> i & 1) == 0) {
        top.field = &field;
        return Fail(ErrorCode::kMalformedBody, "the field is missing");
      }
    }
    --depth_;
    return true;
  }
  bool start_array(size_t length) {
    const Field* field = Next();
    if (field == nullptr) return false;
    const bool in_list = InList();
    const bool is_list = field->kind != FieldKind::kText && field->kind != FieldKind::kNumber &&
                         field->kind != FieldKind::kObject;
    if (!in_list && is_list) {
      root_is_list_ |= depth_ == 0;
      if (field->kind == FieldKind::kTexts && field->enter != nullptr) field->enter(Top().object);
      if (!Push({Frame::Mode::kList, nullptr, field, Top().object})) return false;
      if (field->kind == FieldKind::kNumbers && length == kUnknownLength) TakeElements(*field);
      return true;
    }
    if (field->schema != nullptr && field->schema->tuple) {
      return Push({Frame::Mode::kTuple, field->schema, nullptr, field->enter(Top().object)});
    }
    return Mismatch(*field, "a list");
  }
  bool end_array() {
    const Frame top = Top();
    --depth_;
    if (top.mode == Frame::Mode::kTuple && top.index != top.schema->fields.size()) {
      return Fail(ErrorCode::kMalformedBody, "the list has " + std::to_string(top.index) +
                                                 " elements instead of " +
                                                 std::to_string(top.schema->fields.size()));
    }
    if (top.mode == Frame::Mode::kList && top.index < top.field->elements_least) {
      return EmptyList();
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    error_ = Error(ErrorCode::kMalformedBody, "the body cannot be read from byte " +
                                                  std::to_string(position + cursor_.taken) + " on");
    return false;
  }

 private:
  Frame& Top() { return frames_[depth_]; }
  bool InList() { return Top().mode == Frame::Mode::kList; }

  // The field that the value which begins now belongs to.
  const Field* Next() {
    Frame& top = Top();
    if (top.mode == Frame::Mode::kObject) return top.field;
    ++top.index;
    if (top.mode == Frame::Mode::kTuple) {
      if (top.index <= top.schema->fields.size()) return &top.schema->fields[top.index - 1];
      Fail(ErrorCode::kMalformedBody, "the list has too many elements");
      return nullptr;
    }
    if (++elements_ <= kBodyElementsMax) return top.field;
    TooManyElements();
    return nullptr;
  }
  bool Push(Frame frame) {
    if (depth_ + 1 == kFramesMax) return Fail(ErrorCode::kBodyTooLarge, "nested too deep");
    frames_[++depth_] = frame;
    return true;
  }

  // The list has just begun: the parser reads on at its first element that is not taken.
  void TakeElements(const Field& list) {
    std::vector<uint64_t>& numbers = *list.numbers(Top().object);
    const size_t before = numbers.size();
    const auto take = cbor_ ? TakeCborNumbers : TakeJsonNumbers;
    cursor_.Take(take(cursor_.rest(), kBodyElementsMax - elements_, &numbers));
    Top().index = numbers.size() - before;
    elements_ += Top().index;
  }
  // Of CBOR, where the parser would insist on all elements of a known length, and reads a byte
  // string byte by byte. The value has not begun: in the place of the list it sees the last
  // element, and in the place of a byte string one without bytes.
  void TakeList(const Field& list) {
    if (list.elements_least > 2) return;  // fewer are not taken, but 2 may be
    std::vector<uint64_t>& numbers = *list.numbers(Top().object);
    const size_t before = numbers.size();
    const size_t most = kBodyElementsMax - elements_;
    if (const size_t bytes = TakeCborPacked(cursor_.rest(), most, &numbers); bytes > 0) {
      cursor_.Take(bytes);
      cursor_.Insert(&kNoBytes);
      packed_is_taken_ = true;
    } else if (const size_t up_to_last = TakeCborList(cursor_.rest(), most, &numbers);
               up_to_last > 0) {
      cursor_.Take(up_to_last);
      last_of_list_ = true;
    }
    elements_ += numbers.size() - before + (last_of_list_ ? 1 : 0);
  }
  bool WrongType(std::string_view found) {
    const Field* field = Next();
    return field != nullptr && Mismatch(*field, found);
  }
  bool TooManyElements() {
    return Fail(ErrorCode::kBodyTooLarge, "the lists of the body have more than " +
                                              std::to_string(kBodyElementsMax) + " elements");
  }
  bool EmptyList() {
    return Fail(ErrorCode::kInvalidArgument, "the list is empty, or has too few elements");
  }
  bool OutOfBounds(const Field& field, int64_t value) {
    return Fail(ErrorCode::kInvalidArgument, std::to_string(value) + " is not between " +
                                                 std::to_string(field.least) + " and " +
                                                 std::to_string(field.most));
  }
  bool TooLargeNumber() {
    const Field* field = Next();
    if (field == nullptr) return false;
    if (field->kind != (InList() ? FieldKind::kNumbers : FieldKind::kNumber)) {
      return Mismatch(*field, "a number");
    }
    return Fail(ErrorCode::kInvalidArgument, "the number is larger than 2^63 - 1");
  }
  bool Mismatch(const Field& field, std::string_view found) {
    return Fail(ErrorCode::kMalformedBody, "expected " + std::string(Expected(field, InList())) +
                                               ", found " + std::string(found));
  }
  bool Fail(ErrorCode code, std::string message) {
    error_ = Error(code, std::move(message), {}, Pointer());
    return false;
  }
  // To the value that is being read.
  std::string Pointer() {
    std::string pointer;
    for (size_t i = 0; i <= depth_; ++i) {
      const Frame& frame = frames_[i];
      if (frame.mode != Frame::Mode::kObject) {
        if (frame.index > 0) pointer += "/" + std::to_string(frame.index - 1);
      } else if (i > 0 && frame.field != nullptr) {
        pointer += "/" + std::string(frame.field->name);
      }
    }
    return pointer;
  }

  const bool cbor_;  // whose texts nlohmann does not check
  BodyCursor& cursor_;
  bool last_of_list_ = false;     // the next integer is, of a list that was taken up to it
  bool packed_is_taken_ = false;  // the next byte string stands for one that was taken
  std::array<Frame, kFramesMax> frames_;
  size_t depth_ = 0;
  size_t elements_ = 0;
  bool root_is_list_ = false;
  Error error_;
};

}  // namespace

Status ReadBodies(BodyFormat format, std::string_view body, const Field& root, void* object,
                  bool* is_list) try {
  using nlohmann::json;
  const bool cbor = format == BodyFormat::kCbor;
  if (cbor && HasDeepTextChunks(body)) {
    return Fail(ErrorCode::kMalformedBody, "texts of unknown length are nested in the body");
  }
  BodyCursor cursor = {body.data(), body.data() + body.size()};
  SchemaHandler handler(root, object, cbor, cursor);
  const bool read = json::sax_parse(CursorIterator(&cursor), CursorIterator(&cursor), &handler,
                                    cbor ? json::input_format_t::cbor : json::input_format_t::json);
  if (!read) return Fail(handler.TakeError());
  if (is_list != nullptr) *is_list = handler.root_is_list();
  return {};
} catch (const std::bad_alloc&) {
  return Fail(ErrorCode::kResourceExhausted, "there is no memory for what the body says");
} catch (const std::exception& failure) {
  return Fail(ErrorCode::kMalformedBody, std::string("the body cannot be read: ") + failure.what());
}

Status ReadBody(BodyFormat format, std::string_view body, const Schema& schema, void* object) {
  Field root{"", FieldKind::kObject, Need::kRequired};
  root.enter = [](void* same) { return same; };
  root.schema = &schema;
  return ReadBodies(format, body, root, object, nullptr);
}

}  // namespace gantry::wire
