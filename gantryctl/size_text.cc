#include "gantryctl/size_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace gantry::gantryctl {
namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};
constexpr uint64_t kKi = 1024, kMi = kKi * kKi, kGi = kKi * kMi, kTi = kKi * kGi;
constexpr uint64_t kK = 1000, kM = kK * kK, kG = kK * kM, kT = kK * kG;
constexpr auto kUnits = std::to_array<Unit>({
    {"", 1},
    {"B", 1},
    {"KiB", kKi},
    {"Ki", kKi},
    {"MiB", kMi},
    {"Mi", kMi},
    {"GiB", kGi},
    {"Gi", kGi},
    {"TiB", kTi},
    {"Ti", kTi},
    {"kB", kK},
    {"KB", kK},
    {"MB", kM},
    {"GB", kG},
    {"TB", kT},
});
constexpr std::string_view kHint = "write for example 4096, 64KiB, 1GiB or 1.5MiB";

std::string Print(const char* format, double value, const char* unit) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value, unit);
  return text.data();
}

}  // namespace

Result<uint64_t> ParseSize(std::string_view text) {
  double number = 0;
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const auto known =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == unit; });
  if (error != std::errc() || known == kUnits.end() || !(number >= 0)) {
    return Fail(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is no size",
                std::string(kHint));
  }
  const double bytes = number * static_cast<double>(known->bytes);
  if (bytes != std::floor(bytes) || bytes > 0x1p53) {
    return Fail(ErrorCode::kInvalidArgument,
                "'" + std::string(text) + "' is no whole number of bytes up to 2^53",
                std::string(kHint));
  }
  return static_cast<uint64_t>(bytes);
}

Result<std::vector<uint64_t>> ParseSizes(std::string_view text) {
  std::vector<uint64_t> sizes;
  for (;;) {
    const size_t comma = std::min(text.find(','), text.size());
    ASSIGN_OR_RETURN(const uint64_t size, ParseSize(text.substr(0, comma)));
    sizes.push_back(size);
    if (comma == text.size()) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::string FormatSize(uint64_t bytes) {
  constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kNames.size(); ++unit) value /= 1024;
  const char* format = value == std::floor(value) ? "%.0f %s" : "%.1f %s";
  return Print(format, value, kNames[unit]);
}

std::string FormatMicroseconds(double microseconds) {
  if (microseconds < 10) return Print("%.1f %s", microseconds, "us");
  if (microseconds < 1000) return Print("%.0f %s", microseconds, "us");
  if (microseconds < 1e6) return Print("%.1f %s", microseconds / 1e3, "ms");
  return Print("%.1f %s", microseconds / 1e6, "s");
}

std::string FormatSeconds(double seconds) {
  const auto whole = static_cast<uint64_t>(std::max(seconds, 0.0));
  const auto two = [](uint64_t large, const char* unit, uint64_t small, const char* small_unit) {
    std::string text = std::to_string(large) + unit;
    if (small != 0) text += " " + std::to_string(small) + small_unit;
    return text;
  };
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min";
  if (whole < 86400) return two(whole / 3600, " h", whole % 3600 / 60, " min");
  return two(whole / 86400, " d", whole % 86400 / 3600, " h");
}

std::string FormatFixed(double value, int digits) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

}  // namespace gantry::gantryctl
