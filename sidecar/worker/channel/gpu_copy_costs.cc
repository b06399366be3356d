#include "sidecar/worker/channel/gpu_copy_costs.h"

#include <algorithm>
#include <charconv>

namespace gantry::worker {

std::string_view NameOf(CostOrigin origin) {
  switch (origin) {
    case CostOrigin::kFallback:
      return "fallback";
    case CostOrigin::kMeasured:
      return "measured";
    case CostOrigin::kSet:
      return "set";
  }
  return "";
}

bool GpuCosts::WantMeasured() const {
  for (size_t i = 0; i < kCostFields.size(); ++i) {
    if (kCostFields[i].measured && origins[i] != CostOrigin::kSet) return true;
  }
  return false;
}

void GpuCosts::Take(const MeasuredCosts& measured) {
  for (size_t i = 0; i < kCostFields.size(); ++i) {
    const CostField& field = kCostFields[i];
    if (!field.measured || origins[i] == CostOrigin::kSet || !IsPlausible(field, measured[i])) {
      continue;
    }
    values.*field.value = measured[i];
    origins[i] = CostOrigin::kMeasured;
  }
}

Result<GpuCosts> ParseCosts(std::span<const std::string> set) {
  GpuCosts costs;
  for (const std::string& each : set) {
    const std::string_view text = each;
    const size_t equals = std::min(text.find('='), text.size());
    const auto field =
        std::find_if(kCostFields.begin(), kCostFields.end(),
                     [&](const CostField& one) { return one.name == text.substr(0, equals); });
    if (field == kCostFields.end()) {
      std::string names;
      for (const CostField& one : kCostFields) {
        names += (names.empty() ? "" : ", ") + std::string(one.name);
      }
      return Fail(ErrorCode::kInvalidArgument, "'" + each + "' names no cost",
                  "write name=number; the names are " + names);
    }
    const std::string_view number = text.substr(std::min(equals + 1, text.size()));
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool whole = error == std::errc() && end == number.data() + number.size();
    if (!whole || !IsPlausible(*field, value)) {
      return Fail(ErrorCode::kInvalidArgument, "'" + each + "' is no plausible cost",
                  std::string(field->name) + " is a number from " + std::to_string(field->least) +
                      " to " + std::to_string(field->most));
    }
    costs.values.*field->value = value;
    costs.origins[static_cast<size_t>(field - kCostFields.begin())] = CostOrigin::kSet;
  }
  return costs;
}

Status CheckMeasured(const MeasuredCosts& measured) {
  for (size_t i = 0; i < kCostFields.size(); ++i) {
    if (measured[i] == 0 || IsPlausible(kCostFields[i], measured[i])) continue;
    return Fail(ErrorCode::kDeviceError, std::string(kCostFields[i].name) + " came out as " +
                                             std::to_string(measured[i]) +
                                             ", which is not plausible");
  }
  return {};
}

std::string GpusToNameFor(const Error& why, int index, std::span<const std::string> uuids) {
  if (why.code != ErrorCode::kPathUnavailable) return uuids.front();
  std::string names;
  if (index > 0) return names;
  for (const std::string& uuid : uuids) names += (names.empty() ? "" : ", ") + uuid;
  return names;
}

}  // namespace gantry::worker
