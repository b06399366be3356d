#include "client/session/workload_session.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "client/timeline/timeline.h"
#include "lib/base/name.h"

namespace gantry::client {

WorkloadSession::WorkloadSession(SessionOptions options, std::string api_socket)
    : owner_(::getpid()),
      link_(std::move(options), std::move(api_socket)),
      memory_(link_),
      transfers_(link_, memory_.buffers()) {}

Result<std::shared_ptr<WorkloadSession>> WorkloadSession::Open(SessionOptions options) {
  RETURN_IF_ERROR(CheckName(options.workload, "workload"));
  struct stat info = {};
  std::string api_socket = options.path;
  if (::stat(api_socket.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) api_socket += "/api.sock";
  std::shared_ptr<WorkloadSession> session(
      new WorkloadSession(std::move(options), std::move(api_socket)));
  RETURN_IF_ERROR(session->link_.Attach());
  if (session->link_.wants_dma_bufs()) session->memory_.locator().gpu().WantDmaBufs();
  return session;
}

Status WorkloadSession::Close(milliseconds longest) {
  if (link_.is_closed()) return {};
  Status outcome = link_.Close(longest);
  Timeline::FreeQuietPages();  // of every client that this process has had
  memory_.buffers().ForgetAll();
  return outcome;
}

}  // namespace gantry::client
