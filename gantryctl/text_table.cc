#include "gantryctl/text_table.h"

#include <algorithm>
#include <utility>

namespace gantry::gantryctl {

TextTable::TextTable(std::vector<std::string> headings) : headings_(std::move(headings)) {
  for (std::string& heading : headings_) {
    right_.push_back(!heading.empty() && heading.front() == '>');
    if (right_.back()) heading.erase(0, 1);
  }
  widths_.resize(headings_.size());
  Widen(headings_);
}

void TextTable::Add(std::vector<std::string> cells) {
  cells.resize(headings_.size());
  Widen(cells);
  rows_.push_back(std::move(cells));
}

std::string TextTable::Text() const {
  std::string text = HeadingText();
  for (const auto& row : rows_) text += RowText(row);
  return text;
}

std::string TextTable::HeadingText() const { return RowText(headings_); }

std::string TextTable::RowText(const std::vector<std::string>& cells) const {
  std::string line;
  for (size_t i = 0; i < headings_.size(); ++i) {
    const std::string cell = i < cells.size() ? cells[i] : "";
    const std::string padding(widths_[i] > cell.size() ? widths_[i] - cell.size() : 0, ' ');
    if (i != 0) line += "  ";
    line += right_[i] ? padding + cell : cell + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

void TextTable::SetWidthsMin(size_t width) {
  for (size_t& each : widths_) each = std::max(each, width);
}

void TextTable::Widen(const std::vector<std::string>& cells) {
  for (size_t i = 0; i < widths_.size() && i < cells.size(); ++i) {
    widths_[i] = std::max(widths_[i], cells[i].size());
  }
}

}  // namespace gantry::gantryctl
