#include "bench/bench_json_transfer.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lib/codec/body_writer.h"

namespace gantry::bench {
namespace {

// Keeps the members that are wanted, of the answer itself and of its timings, and builds no tree:
// to allocate one and to let go of it takes as long as to read the text.
class TransferReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonTransferState& read() { return read_; }
  const std::string& state() const { return state_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ == 1 && key_ == "workers") read_.outcome.workers = static_cast<uint32_t>(value);
    for (const auto& [name, count] : kCounts) {
      if (depth_ == 1 && key_ == name) read_.outcome.*count = value;
    }
    for (const auto& [name, time] : kTimes) {
      if (in_timings_ && key_ == name) read_.outcome.times.*time = static_cast<double>(value);
    }
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 1) return true;
    if (key_ == "executor") read_.outcome.by_peer = value == "peer";
    if (key_ == "id") {
      read_.id = std::move(value);
    } else if (key_ == "state") {
      state_ = std::move(value);
    } else if (key_ == "path") {
      read_.outcome.path = std::move(value);
    }
    return true;
  }
  bool start_object(size_t) override {
    in_timings_ = ++depth_ == 2 && key_ == "timings";
    return true;
  }
  bool end_object() override {
    --depth_;
    in_timings_ = false;
    return true;
  }
  bool start_array(size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    key_.swap(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  static constexpr std::array<std::pair<std::string_view, uint64_t TransferOutcome::*>, 4> kCounts =
      {{{"bytes_moved", &TransferOutcome::bytes},
        {"chunks", &TransferOutcome::chunks},
        {"descriptors_in", &TransferOutcome::descriptors_in},
        {"descriptors_out", &TransferOutcome::descriptors_out}}};
  static constexpr std::array<std::pair<std::string_view, double TransferTimes::*>, 5> kTimes = {
      {{"admit_us", &TransferTimes::admit_us},
       {"queue_us", &TransferTimes::queue_us},
       {"move_us", &TransferTimes::move_us},
       {"copy_us", &TransferTimes::copy_us},
       {"total_us", &TransferTimes::total_us}}};

  JsonTransferState read_;
  std::string state_;
  std::string key_;
  int depth_ = 0;
  bool in_timings_ = false;
};

}  // namespace

std::string JsonTransferBody(const JsonTransfer& transfer, std::span<const uint64_t> local_blocks,
                             std::span<const uint64_t> remote_blocks) {
  wire::BodyWriter body(wire::BodyFormat::kJson);
  body.BeginObject();
  body.Field("workload", transfer.workload).Field("op", transfer.read ? "read" : "write");
  body.Field("executor", transfer.peer_executes ? "peer" : "self");
  body.Field("deadline_ms", transfer.deadline_ms);
  if (transfer.view.empty()) {
    body.Field("local", std::span(&transfer.local, 1))
        .Field("remote", std::span(&transfer.remote, 1));
  } else {
    body.Field("view", transfer.view);
  }
  body.Field("local_blocks", local_blocks).Field("remote_blocks", remote_blocks);
  return body.EndObject().Take();
}

Result<JsonTransferState> ReadJsonTransfer(const std::string& answer) {
  TransferReader reader;
  const bool is_json =
      nlohmann::json::sax_parse(answer.data(), answer.data() + answer.size(), &reader);
  const std::string& state = reader.state();
  if (is_json && (state == "queued" || state == "running" || state == "stopping")) {
    return std::move(reader.read());
  }
  if (!is_json || state != "succeeded") {
    return Fail(ErrorCode::kInternal, "a transfer did not succeed: " + answer);
  }
  reader.read().is_over = true;
  return std::move(reader.read());
}

}  // namespace gantry::bench
