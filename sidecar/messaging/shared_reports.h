// The path reports of a transfer's status, created once and shared by the status's copies. A value.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lib/codec/buffer_types.h"

namespace gantry::engine {

class SharedReports {
 public:
  using List = std::vector<wire::PathReport>;

  SharedReports() = default;
  SharedReports(List list)  // NOLINT: a list is one
      : list_(std::make_shared<const List>(std::move(list))) {}

  operator const List&() const { return list_ == nullptr ? kNone : *list_; }  // NOLINT: likewise
  const List& list() const { return *this; }
  List::const_iterator begin() const { return list().begin(); }
  List::const_iterator end() const { return list().end(); }
  size_t size() const { return list().size(); }
  const wire::PathReport& operator[](size_t index) const { return list()[index]; }
  const wire::PathReport& at(size_t index) const { return list().at(index); }

 private:
  inline static const List kNone;
  std::shared_ptr<const List> list_;  // null: empty
};

}  // namespace gantry::engine
