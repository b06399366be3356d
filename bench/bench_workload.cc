#include "bench/bench_workload.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/bench_json_transfer.h"
#include "gantryctl/json_field.h"
#include "lib/base/clock.h"

namespace gantry::bench {
namespace {

using gantryctl::MemberOf;
using gantryctl::NumberOf;
using gantryctl::TextOf;

// Pages before the buffer and after it: an offset that somebody forgot shows at once.
constexpr uint64_t kBefore = uint64_t{17} * 4096;
constexpr uint64_t kAfter = uint64_t{5} * 4096;
constexpr uint64_t kTransferMs = 300'000;
constexpr uint64_t kWaitSliceMs = 10'000;  // of one request, as the client library does
constexpr uint64_t kDrainMs = 5'000;

}  // namespace

Status StatusOf(gantry_error* error) {
  if (error == nullptr) return {};
  Error ours(ErrorCodeByName(gantry_error_code(error)), gantry_error_message(error),
             gantry_error_hint(error), gantry_error_field(error));
  gantry_error_destroy(error);
  return Fail(std::move(ours));
}

BenchWorkload::BenchWorkload(Client client, Arena arena, uint64_t bytes, std::byte canary)
    : client_(std::move(client)), arena_(std::move(arena)), bytes_(bytes), canary_(canary) {}

Result<std::unique_ptr<BenchWorkload>> BenchWorkload::Open(const std::string& api_socket,
                                                           const std::string& name, uint64_t bytes,
                                                           std::byte canary, Memory memory,
                                                           std::optional<uint64_t> piece_bytes) {
  gantry_client* client = nullptr;
  RETURN_IF_ERROR(StatusOf(gantry_client_open(api_socket.c_str(), name.c_str(), nullptr, &client)));
  Client owned_client(client);
  gantry_arena* arena = nullptr;
  RETURN_IF_ERROR(StatusOf(gantry_arena_create(client, kBefore + bytes + kAfter, &arena)));
  std::unique_ptr<BenchWorkload> workload(
      new BenchWorkload(std::move(owned_client), Arena(arena), bytes, canary));
  RETURN_IF_ERROR(workload->Map());
  if (memory != Memory::kHost) {
    ASSIGN_OR_RETURN(
        workload->gpu_,
        BenchGpuMemory::Create(memory == Memory::kLastGpu, gantry_arena_bytes(arena), piece_bytes));
  }
  return workload;
}

Status BenchWorkload::Map() {
  void* mapped = mmap(nullptr, gantry_arena_bytes(arena_.get()), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, gantry_arena_fd(arena_.get()), 0);
  if (mapped == MAP_FAILED) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "mapping the arena", errno));
  }
  mapping_ = static_cast<std::byte*>(mapped);
  FillCanary(before(), canary_);
  FillCanary(after(), canary_);
  return {};
}

uint64_t BenchWorkload::offset() { return kBefore; }

Status BenchWorkload::Upload() {
  return gpu_ ? gpu_->Upload({mapping_, gantry_arena_bytes(arena_.get())}) : Status();
}
Status BenchWorkload::Download() {
  return gpu_ ? gpu_->Download({mapping_, gantry_arena_bytes(arena_.get())}) : Status();
}

BenchWorkload::~BenchWorkload() {
  if (mapping_ != nullptr) munmap(mapping_, gantry_arena_bytes(arena_.get()));
}

Status BenchWorkload::Unregister() {
  view_.reset();
  for (const Buffer& buffer : buffers_) {
    RETURN_IF_ERROR(StatusOf(gantry_buffer_unregister(buffer.get(), kDrainMs)));
  }
  buffers_.clear();
  return {};
}

Status BenchWorkload::Register(uint64_t block_bytes, uint64_t buffers) {
  RETURN_IF_ERROR(Unregister());
  const auto* start = static_cast<const std::byte*>(gantry_arena_data(arena_.get()));
  // A GPU's address goes through the C interface as a pointer that nobody follows.
  if (gpu_) start = reinterpret_cast<const std::byte*>(NumberOf(gpu_->address()));
  const uint64_t bytes = bytes_ / buffers;
  std::vector<std::string> names(buffers, kBufferName);
  std::vector<gantry_piece> pieces(buffers);
  std::vector<gantry_buffer_spec> specs(buffers);
  for (uint64_t i = 0; i < buffers; ++i) {
    if (buffers > 1) names[i] += "-" + std::to_string(i);
    pieces[i] = {start + kBefore + i * bytes, bytes};
    specs[i].name = names[i].c_str();
    specs[i].pieces = &pieces[i];
    specs[i].piece_count = 1;
    specs[i].access = GANTRY_REMOTE_READ | GANTRY_REMOTE_WRITE;
    specs[i].block_bytes = block_bytes;
    specs[i].blocks = bytes / block_bytes;
  }
  std::vector<gantry_buffer*> handles(buffers);
  RETURN_IF_ERROR(
      StatusOf(gantry_buffers_register(client_.get(), specs.data(), buffers, handles.data())));
  for (gantry_buffer* const handle : handles) buffers_.emplace_back(handle);
  return {};
}

Status BenchWorkload::PairWith(const std::string& peer, const std::string& remote_workload) {
  gantry_view_spec spec{};  // without groups: all buffers by name
  spec.peer = peer.c_str();
  spec.remote_workload = remote_workload.c_str();
  gantry_view* view = nullptr;
  RETURN_IF_ERROR(StatusOf(gantry_view_create(client_.get(), &spec, &view)));
  view_.reset(view);
  const uint64_t pairs = gantry_view_pair_count(view);
  if (pairs == buffers_.size()) return {};
  return Fail(ErrorCode::kInternal, "the view pairs " + std::to_string(pairs) + " buffers of " +
                                        std::to_string(buffers_.size()));
}

std::span<std::byte> BenchWorkload::buffer() const { return {mapping_ + kBefore, bytes_}; }
bool BenchWorkload::IsIntactAround() const {
  return IsCanary(before(), canary_) && IsCanary(after(), canary_);
}
std::span<std::byte> BenchWorkload::before() const { return {mapping_, kBefore}; }
std::span<std::byte> BenchWorkload::after() const {
  return {mapping_ + kBefore + bytes_, gantry_arena_bytes(arena_.get()) - kBefore - bytes_};
}

Result<TransferOutcome> BenchWorkload::Transfer(const std::string& remote,
                                                const BenchOptions& options,
                                                std::span<const uint64_t> local_blocks,
                                                std::span<const uint64_t> remote_blocks) {
  const TimePoint start = Clock::now();
  ASSIGN_OR_RETURN(StartedTransfer transfer,
                   Submit(remote, options, local_blocks, remote_blocks, kTransferMs));
  ASSIGN_OR_RETURN(TransferOutcome outcome, Await(transfer));
  outcome.times.wall_us = 1e6 * SecondsBetween(start, Clock::now());
  return outcome;
}

Result<BenchWorkload::StartedTransfer> BenchWorkload::Submit(
    const std::string& remote, const BenchOptions& options, std::span<const uint64_t> local_blocks,
    std::span<const uint64_t> remote_blocks, uint64_t wait_ms) {
  if (options.encoding == BenchOptions::Encoding::kJson) {
    return SubmitJson(remote, options, local_blocks, remote_blocks, wait_ms);
  }
  gantry_buffer* const local = buffers_.front().get();
  const char* const remote_name = remote.c_str();
  gantry_transfer_spec spec{};
  const bool read = options.operation == BenchOptions::Operation::kRead;
  spec.operation = read ? GANTRY_READ : GANTRY_WRITE;
  spec.executor = options.peer_executes ? GANTRY_EXECUTOR_PEER : GANTRY_EXECUTOR_SELF;
  if (view_) {
    spec.view = view_.get();
  } else {
    spec.local = &local;
    spec.local_count = 1;
    spec.remote = &remote_name;
    spec.remote_count = 1;
  }
  spec.local_blocks = local_blocks.data();
  spec.remote_blocks = remote_blocks.data();
  spec.block_count = local_blocks.size();
  spec.deadline_ms = kTransferMs;

  gantry_transfer* raw = nullptr;
  RETURN_IF_ERROR(StatusOf(gantry_transfer_submit(client_.get(), &spec, wait_ms, &raw)));
  StartedTransfer transfer;
  transfer.handle.reset(raw);
  return transfer;
}

Result<BenchWorkload::StartedTransfer> BenchWorkload::SubmitJson(
    const std::string& remote, const BenchOptions& options, std::span<const uint64_t> local_blocks,
    std::span<const uint64_t> remote_blocks, uint64_t wait_ms) {
  JsonTransfer asked;
  asked.workload = gantry_client_workload(client_.get());
  asked.view = view_ ? gantry_view_id(view_.get()) : "";
  asked.local = kBufferName;
  asked.remote = remote;
  asked.read = options.operation == BenchOptions::Operation::kRead;
  asked.peer_executes = options.peer_executes;
  asked.deadline_ms = kTransferMs;
  const uint64_t slice = std::min(wait_ms, kWaitSliceMs);
  StartedTransfer transfer;
  ASSIGN_OR_RETURN(transfer.view,
                   Request("POST", "/v1/transfers?wait_ms=" + std::to_string(slice),
                           JsonTransferBody(asked, local_blocks, remote_blocks), slice));
  return transfer;
}

Result<TransferOutcome> BenchWorkload::Await(StartedTransfer& transfer) {
  while (!transfer.handle) {  // it ends: it has a deadline
    ASSIGN_OR_RETURN(const JsonTransferState state, ReadJsonTransfer(transfer.view));
    if (state.is_over) return state.outcome;
    const std::string target = "/v1/transfers/" + state.id +
                               "?workload=" + gantry_client_workload(client_.get()) +
                               "&wait_ms=" + std::to_string(kWaitSliceMs);
    ASSIGN_OR_RETURN(transfer.view, Request("GET", target, "", kWaitSliceMs));
  }
  gantry_transfer_status status{};
  RETURN_IF_ERROR(StatusOf(gantry_transfer_wait(transfer.handle.get(), kTransferMs, &status)));
  TransferOutcome outcome;
  outcome.times = {0,
                   static_cast<double>(status.admit_us),
                   static_cast<double>(status.queue_us),
                   static_cast<double>(status.move_us),
                   static_cast<double>(status.copy_us),
                   static_cast<double>(status.total_us)};
  outcome.bytes = status.bytes_moved;
  outcome.chunks = status.chunks;
  outcome.descriptors_in = status.descriptors_in;
  outcome.descriptors_out = status.descriptors_out;
  outcome.workers = status.workers;
  outcome.path = status.path;
  outcome.by_peer = status.executor == GANTRY_EXECUTOR_PEER;
  return outcome;
}

std::string BenchWorkload::GpuPlanOf(const StartedTransfer& transfer) {
  char* const text = transfer.handle ? gantry_transfer_json(transfer.handle.get()) : nullptr;
  const auto view =
      nlohmann::json::parse(text == nullptr ? transfer.view : std::string(text), nullptr, false);
  gantry_free(text);
  const nlohmann::json& copies = MemberOf(view, "gpu_copies");
  return copies.is_object() ? TextOf(copies, "plan") + ": " + TextOf(copies, "reason") : "";
}

Result<std::string> BenchWorkload::Request(const std::string& method, const std::string& target,
                                           const std::string& body, uint64_t wait_ms) {
  char* answer = nullptr;
  RETURN_IF_ERROR(StatusOf(gantry_client_request(client_.get(), method.c_str(), target.c_str(),
                                                 body.c_str(), wait_ms, &answer)));
  std::string text(answer);
  gantry_free(answer);
  return text;
}

}  // namespace gantry::bench
