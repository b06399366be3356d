#include "client/session/transfer_calls.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "client/session/spec_checks.h"
#include "client/session/transfer_body.h"
#include "lib/base/name.h"
#include "lib/base/url_escape.h"

namespace gantry::client {
namespace {

// One request waits no longer than this, so that the sidecar's limits on waits are no concern.
constexpr uint64_t kWaitSliceMs = 10'000;
// How often a transfer is looked at where the sidecar lets no more requests wait.
constexpr uint64_t kLooksAgainMs = 20;

// Time that is left to wait; GANTRY_FOREVER stays what it is.
class Remaining {
 public:
  explicit Remaining(uint64_t timeout_ms) : timeout_ms_(timeout_ms) {}
  uint64_t ms() const {
    if (timeout_ms_ == GANTRY_FOREVER) return GANTRY_FOREVER;
    const auto passed = std::chrono::duration_cast<milliseconds>(Clock::now() - start_).count();
    return timeout_ms_ - std::min(timeout_ms_, static_cast<uint64_t>(passed));
  }

 private:
  const uint64_t timeout_ms_;
  const TimePoint start_ = Clock::now();
};

// The request may go through without its wait.
bool IsRefusedWait(const Result<std::string>& body) {
  return !body && body.error().code == ErrorCode::kResourceExhausted;
}

// The memory behind a local buffer may have gone since it was registered.
Status CheckLocal(const RegisteredBuffer& buffer, std::string field) {
  const bool closed = std::any_of(buffer.arenas.begin(), buffer.arenas.end(),
                                  [](const auto& arena) { return arena->closed.load(); });
  if (buffer.registered && !closed) return {};
  return Fail(ErrorCode::kUnregistered, "buffer '" + buffer.name + "' is no longer registered",
              "register it again", std::move(field));
}

std::string ReferenceOf(const RegisteredBuffer& buffer) {
  return buffer.name + "@" + buffer.generation;
}

}  // namespace

Status TransferCalls::CheckGpuMemoryOf(ViewRecord& view, const gantry_transfer_spec& spec) {
  std::shared_ptr<const GpuAllocation> last;
  for (const BufferPointer& buffer : buffers_.OnGpuOf(view, spec)) {
    RETURN_IF_ERROR(CheckGpuMemory(*buffer, "view", &last));
  }
  return {};
}

Result<std::shared_ptr<TransferRecord>> TransferCalls::Submit(const gantry_transfer_spec& spec,
                                                              const SubmitHandles& handles,
                                                              uint64_t wait_ms) {
  RETURN_IF_ERROR(CheckSpec(spec));
  std::vector<std::string> references;
  for (size_t i = 0; i < handles.local.size(); ++i) {
    RegisteredBuffer& buffer = *handles.local[i];
    RETURN_IF_ERROR(CheckLocal(buffer, "local/" + std::to_string(i)));
    RETURN_IF_ERROR(CheckGpuMemory(buffer, "local/" + std::to_string(i)));
    references.push_back(ReferenceOf(buffer));
  }
  if (handles.view) RETURN_IF_ERROR(CheckGpuMemoryOf(*handles.view, spec));
  TransferObjects objects = {references, handles.view ? handles.view->id() : "", ""};
  if (handles.fence) {
    RETURN_IF_ERROR(CheckLocal(*handles.fence, "fence"));
    RETURN_IF_ERROR(CheckGpuMemory(*handles.fence, "fence"));
    objects.fence = ReferenceOf(*handles.fence);
  }
  std::string id = spec.id != nullptr ? spec.id
                                      : "t-" + link_.generation() + "-" +
                                            std::to_string(transfers_made_.fetch_add(1));
  RETURN_IF_ERROR(CheckName(id, "id"));
  const Remaining remaining(wait_ms);
  const uint64_t slice = std::min(wait_ms, kWaitSliceMs);
  const std::string target = "/v1/transfers?wait_ms=" + std::to_string(slice);
  const std::string request = TransferBody(link_.workload(), id, spec, objects);
  http::HttpRequest post = {.method = "POST",
                            .target = target,
                            .body = request,
                            .body_type = kCborBodyType,
                            .answer_type = kCborBodyType,
                            .repeatable = true,  // it names what it makes
                            .timeout = link_.timeout() + milliseconds(static_cast<int64_t>(slice))};
  Result<std::string> body = link_.Exchange(post);
  const bool is_refused = slice > 0 && IsRefusedWait(body);
  if (is_refused) {
    post.target = "/v1/transfers?wait_ms=0";
    body = link_.Exchange(post);
  }
  if (!body) return Fail(std::move(body).error());
  ASSIGN_OR_RETURN(TransferAnswer answer, ReadTransfer(*std::move(body)));
  auto transfer = std::make_shared<TransferRecord>(std::move(id));
  transfer->Learn(std::move(answer));
  // The transfer has been accepted: a later failure shows when it is waited for.
  if (is_refused || wait_ms > slice) static_cast<void>(Await(*transfer, remaining.ms()));
  return transfer;
}

std::string TransferCalls::TransferTarget(const TransferRecord& transfer, uint64_t wait_ms) const {
  return "/v1/transfers/" + UrlEscape(transfer.id()) + "?workload=" + UrlEscape(link_.workload()) +
         "&wait_ms=" + std::to_string(wait_ms);
}

Status TransferCalls::Await(TransferRecord& transfer, uint64_t timeout_ms) {
  const Remaining remaining(timeout_ms);
  bool may_wait = true;
  for (bool asked = false; !transfer.is_over(); asked = true) {
    const uint64_t left = remaining.ms();
    if (asked && left == 0) return {};
    const uint64_t slice = may_wait ? std::min(left, kWaitSliceMs) : 0;
    const std::string target = TransferTarget(transfer, slice);
    auto body = link_.Exchange({.method = "GET",
                                .target = target,
                                .answer_type = kCborBodyType,
                                .repeatable = true,
                                .timeout = link_.timeout() + milliseconds(slice)});
    const bool is_refused = slice > 0 && IsRefusedWait(body);
    if (!body && !is_refused) return Fail(std::move(body).error());
    if (!is_refused) {
      ASSIGN_OR_RETURN(TransferAnswer answer, ReadTransfer(*std::move(body)));
      transfer.Learn(std::move(answer));
      if (!may_wait && !transfer.is_over()) {
        std::this_thread::sleep_for(milliseconds(std::min(left, kLooksAgainMs)));
      }
    }
    may_wait = !is_refused;
  }
  return {};
}

Status TransferCalls::Cancel(TransferRecord& transfer, uint64_t timeout_ms) {
  if (transfer.is_over()) return {};
  const Remaining remaining(timeout_ms);
  const uint64_t slice = std::min(timeout_ms, kWaitSliceMs);
  const std::string target = TransferTarget(transfer, slice);
  ASSIGN_OR_RETURN(std::string body,
                   link_.Exchange({.method = "DELETE",
                                   .target = target,
                                   .answer_type = kCborBodyType,
                                   .repeatable = true,
                                   .timeout = link_.timeout() + milliseconds(slice)}));
  ASSIGN_OR_RETURN(TransferAnswer answer, ReadTransfer(std::move(body)));
  transfer.Learn(std::move(answer));
  return remaining.ms() > 0 ? Await(transfer, remaining.ms()) : Status();
}

Result<std::shared_ptr<ViewRecord>> TransferCalls::MakeView(const gantry_view_spec& spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  const std::string id = spec.id != nullptr ? spec.id
                                            : "v-" + link_.generation() + "-" +
                                                  std::to_string(views_made_.fetch_add(1));
  RETURN_IF_ERROR(CheckName(id, "id"));
  const std::string request = ViewBody(link_.workload(), id, spec);
  ASSIGN_OR_RETURN(std::string body, link_.Exchange({.method = "POST",
                                                     .target = "/v1/views",
                                                     .body = request,
                                                     .body_type = kCborBodyType,
                                                     .repeatable = true,  // it names what it makes
                                                     .timeout = 2 * link_.timeout()}));
  ASSIGN_OR_RETURN(ViewAnswer answer, ReadView(std::move(body)));
  return std::make_shared<ViewRecord>(std::move(answer));
}

std::string TransferCalls::ViewTarget(const ViewRecord& view) const {
  return "/v1/views/" + UrlEscape(view.id()) + "?workload=" + UrlEscape(link_.workload());
}

Status TransferCalls::Drop(ViewRecord& view) {
  Status done;
  bool unheard = link_.silence().IsOn();
  if (!unheard) {
    done = DeleteView(view);
    unheard = !done && done.error().code == ErrorCode::kDeadlineExceeded;
  }
  if (unheard && !link_.is_closed() && !view.deleted())
    link_.silence().KeepTarget(ViewTarget(view));
  return done;
}

Status TransferCalls::DeleteView(ViewRecord& view) {
  if (link_.is_closed() || view.deleted().exchange(true)) return {};
  const std::string target = ViewTarget(view);
  auto answer = link_.Exchange(
      {.method = "DELETE", .target = target, .repeatable = true, .timeout = link_.timeout()});
  if (answer || answer.error().code == ErrorCode::kNotFound) return {};
  view.deleted() = false;
  return Fail(std::move(answer).error());
}

}  // namespace gantry::client
