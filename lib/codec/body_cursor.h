// The bytes of a body while a parser of nlohmann reads them: the handler of its events may take
// some in its place. Lives as long as the reading; one thread.
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

namespace gantry::wire {

// Where the parser reads on.
struct BodyCursor {
  const char* next = nullptr;
  const char* end = nullptr;
  size_t taken = 0;            // bytes that the parser has not seen
  const char* back = nullptr;  // where it reads on after an inserted byte

  std::string_view rest() const { return {next, static_cast<size_t>(end - next)}; }
  void Take(size_t bytes) {
    next += bytes;
    taken += bytes;
  }
  // The parser sees this byte before it reads on, and the body does not have it.
  void Insert(const char* byte) {
    back = std::exchange(next, byte);
    --taken;
  }
};

// The cursor as nlohmann wants to have it. All copies are at the cursor's place.
class CursorIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit CursorIterator(BodyCursor* cursor) : cursor_(cursor) {}
  reference operator*() const { return *cursor_->next; }
  CursorIterator& operator++() {
    ++cursor_->next;
    if (cursor_->back != nullptr) cursor_->next = std::exchange(cursor_->back, nullptr);
    return *this;
  }
  // Compared with the end alone.
  bool operator!=(const CursorIterator&) const { return cursor_->next != cursor_->end; }
  bool operator==(const CursorIterator&) const { return cursor_->next == cursor_->end; }

 private:
  BodyCursor* cursor_;
};

}  // namespace gantry::wire
