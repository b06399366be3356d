// Aligned columns for a terminal. Used by one thread at a time.
#pragma once

#include <string>
#include <vector>

namespace gantry::gantryctl {

class TextTable {
 public:
  // A heading that begins with '>' makes a column of numbers, aligned to the right.
  explicit TextTable(std::vector<std::string> headings);

  void Add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // The heading and the rows, each ending in a newline.
  std::string Text() const;
  std::string HeadingText() const;
  // One row, for tables that grow while they are printed; the widths are `widths_min` or more.
  std::string RowText(const std::vector<std::string>& cells) const;
  void SetWidthsMin(size_t width);

 private:
  void Widen(const std::vector<std::string>& cells);

  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gantry::gantryctl
