#include "lib/http/rehearsal.h"

#include <sys/socket.h>

#include <array>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/prefetch.h"

namespace gantry::http {
namespace {

// A request's stack begins higher than its rehearsal's: not the same of it is used.
constexpr size_t kStackBytes = 20 << 10;

}  // namespace

bool Rehearsal::SpinForInput(HttpConnection* connection) {
  if (connection->rehearsal().empty()) return connection->SpinForInput();
  due_ = Clock::now() + share_->limits.rehearsal_interval;
  return connection->SpinForInput([&] { RunIfDue(connection); });
}

void Rehearsal::RunIfDue(HttpConnection* connection) {
  if (connection->rehearsal().empty() || Clock::now() < due_) return;
  if (!Run(connection)) {
    connection->EndRehearsals();
    connection_.reset();  // something may be left in it
  }
  due_ = Clock::now() + share_->limits.rehearsal_interval;
}

bool Rehearsal::Run(HttpConnection* connection) {
  if (connection_ == nullptr && !Open()) return false;
  connection->KeepReady();
  connection_->SwapMemory(connection);  // what the next request will use
  if (!Send(connection->rehearsal())) return false;
  if (connection_->Advance() != HttpConnection::State::kHasRequest) return false;
  HttpInterpreter::Call call = connection_->request();
  call.uid = connection->uid();
  call.rehearsed = true;
  const HttpInterpreter::Outcome outcome = interpreter_->Run(call, connection_->response());
  connection_->EndRequest(outcome);
  PrefetchStack(kStackBytes);
  const bool again = outcome.may_rehearse &&
                     connection_->Advance() == HttpConnection::State::kWantsInput && Discard();
  if (again) connection_->SwapMemory(connection);
  return again;
}

bool Rehearsal::Open() {
  auto ends = SocketPair(SOCK_STREAM | SOCK_NONBLOCK);
  if (!ends) return false;
  client_ = std::move((*ends)[0]);
  connection_ = std::make_unique<HttpConnection>(std::move((*ends)[1]), std::nullopt, share_);
  return true;
}

bool Rehearsal::Send(const std::string& request) {
  return ::send(client_.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(request.size());
}

// All of the answer is there.
bool Rehearsal::Discard() {
  std::array<char, 16 << 10> bytes;
  ssize_t received = 0;
  do {
    received = ::recv(client_.get(), bytes.data(), bytes.size(), 0);
  } while (received == static_cast<ssize_t>(bytes.size()));
  return connection_->is_idle();
}

}  // namespace gantry::http
