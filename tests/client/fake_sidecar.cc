#include "tests/client/fake_sidecar.h"

#include <sys/socket.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/random_id.h"
#include "lib/codec/handoff_protocol.h"

namespace gantry::client {
namespace {

using Json = nlohmann::json;

size_t ContentLength(const std::string& head) {
  const size_t found = head.find("Content-Length: ");
  return found == std::string::npos ? 0 : std::stoul(head.substr(found + 16));
}

void SendAll(int socket, const std::string& text) {
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t some = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (some <= 0) return;
    sent += static_cast<size_t>(some);
  }
}

}  // namespace

FakeSidecar::FakeSidecar() {
  api_ = ListenUnix(api_socket(), SOCK_STREAM, 0600, 16).value();
  handoff_ = ListenUnix(folder_.File("handoff.sock"), SOCK_SEQPACKET, 0600, 16).value();
  listeners_.emplace_back([this] { Listen(api_.get(), false); });
  listeners_.emplace_back([this] { Listen(handoff_.get(), true); });
}

FakeSidecar::~FakeSidecar() {
  Kill();
  for (std::thread& thread : listeners_) thread.join();
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void FakeSidecar::On(const std::string& prefix, Handler handler) {
  MutexLock lock(mutex_);
  handlers_[prefix] = std::move(handler);
}

void FakeSidecar::Kill() {
  MutexLock lock(mutex_);
  killed_ = true;
  ::shutdown(api_.get(), SHUT_RDWR);
  ::shutdown(handoff_.get(), SHUT_RDWR);
  for (const auto& [fd, socket] : sockets_) ::shutdown(fd, SHUT_RDWR);
}

void FakeSidecar::CloseConnections() {
  MutexLock lock(mutex_);
  for (const auto& [fd, socket] : sockets_) {
    int type = 0;
    socklen_t length = sizeof(type);
    ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
    if (type == SOCK_STREAM) ::shutdown(fd, SHUT_RDWR);
  }
}

std::vector<FakeRequest> FakeSidecar::requests() const {
  MutexLock lock(mutex_);
  return requests_;
}

size_t FakeSidecar::connections_made() const {
  MutexLock lock(mutex_);
  return connections_made_;
}

std::vector<struct stat> FakeSidecar::fds_received() const {
  MutexLock lock(mutex_);
  return fds_received_;
}

std::vector<std::string> FakeSidecar::tokens_released() const {
  MutexLock lock(mutex_);
  return tokens_released_;
}

ino_t FakeSidecar::InodeOf(const std::string& token) const {
  MutexLock lock(mutex_);
  const auto found = kept_.find(token);
  return found == kept_.end() ? 0 : found->second;
}

bool FakeSidecar::attached() const {
  MutexLock lock(mutex_);
  return attached_;
}

std::string FakeSidecar::Json(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) +
         " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

std::string FakeSidecar::Problem(int status, const std::string& code, const std::string& detail) {
  return Json(
      status,
      gantry::client::Json{{"code", code}, {"detail", detail}, {"field", "/f"}, {"hint", "do this"}}
          .dump());
}

void FakeSidecar::Listen(int listener, bool handoff) {
  while (true) {
    UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    MutexLock lock(mutex_);
    if (killed_ || !socket.valid()) return;
    const int fd = socket.get();
    sockets_[fd] = std::move(socket);
    if (!handoff) ++connections_made_;
    threads_.emplace_back([this, fd, handoff] {
      handoff ? ServeHandoff(fd) : ServeHttp(fd);
      MutexLock inner(mutex_);
      sockets_.erase(fd);
    });
  }
}

void FakeSidecar::ServeHttp(int socket) {
  std::string bytes;
  std::array<char, 4096> part;
  while (true) {
    const size_t end = bytes.find("\r\n\r\n");
    if (end != std::string::npos) {
      FakeRequest request;
      request.head = bytes.substr(0, end + 2);
      const size_t length = ContentLength(request.head);
      if (bytes.size() >= end + 4 + length) {
        request.method = bytes.substr(0, bytes.find(' '));
        const size_t target = request.method.size() + 1;
        request.target = bytes.substr(target, bytes.find(' ', target) - target);
        request.body = bytes.substr(end + 4, length);
        bytes.erase(0, end + 4 + length);
        const std::string answer = Answer(request);
        if (answer.empty()) return;
        SendAll(socket, answer);
        continue;
      }
    }
    const ssize_t received = ::recv(socket, part.data(), part.size(), 0);
    if (received <= 0) return;
    bytes.append(part.data(), static_cast<size_t>(received));
  }
}

void FakeSidecar::ServeHandoff(int socket) {
  while (true) {
    auto message = ReceiveMessage(socket, wire::kHandoffMessageBytesMax);
    if (!message || message->closed) break;
    const auto request = wire::DecodeHandoffRequest(message->payload);
    if (!request) break;
    wire::HandoffReply reply;
    {
      MutexLock lock(mutex_);
      if (request->type == wire::HandoffType::kAttach) {
        attached_ = true;
        reply.workload = "w";
        reply.generation = 0xabc;
      }
      tokens_released_.insert(tokens_released_.end(), request->tokens.begin(),
                              request->tokens.end());
      for (const std::string& token : request->tokens) kept_.erase(token);
      for (const UniqueFd& fd : message->fds) {
        struct stat info = {};
        ::fstat(fd.get(), &info);
        fds_received_.push_back(info);
        reply.tokens.push_back(RandomToken());
        kept_[reply.tokens.back()] = info.st_ino;
      }
    }
    message->fds.clear();  // who reads the reply may count what is open
    if (!SendMessage(socket, wire::EncodeReply(reply), {})) break;
  }
  MutexLock lock(mutex_);
  attached_ = false;
}

std::string FakeSidecar::Answer(const FakeRequest& request) {
  Handler handler;
  {
    MutexLock lock(mutex_);
    requests_.push_back(request);
    for (const auto& [prefix, candidate] : handlers_) {
      if (request.target.starts_with(prefix)) handler = candidate;
    }
  }
  return handler ? handler(request) : Default(request);
}

std::string FakeSidecar::Default(const FakeRequest& request) {
  using Tree = nlohmann::json;
  if (request.method == "PUT" && request.target.starts_with("/v1/workloads/")) {
    return Json(
        201,
        R"({"name":"w","generation":"0000000000000abc","lease_token":"00112233445566778899aabbccddeeff"})");
  }
  if (request.method == "POST" && request.target == "/v1/buffers") {
    Tree views = Tree::array();
    const Tree body = Tree::parse(request.body);
    for (const Tree& buffer : body["buffers"]) {
      const std::string name = buffer["name"];
      views.push_back({{"name", name}, {"id", "id-" + name}, {"generation", "00000000000000aa"}});
    }
    return Json(201, Tree{{"buffers", views}}.dump());
  }
  if (request.method == "DELETE") return "HTTP/1.1 204 No Content\r\n\r\n";
  if (request.target.starts_with("/v1/transfers")) {
    return Json(
        200,
        R"({"id":"t","state":"succeeded","executor":"self","path":"shm","bytes":7,"bytes_moved":7,)"
        R"("descriptors_in":2,"descriptors_out":1,"timings":{"total_us":9}})");
  }
  return Json(200, "{}");
}

}  // namespace gantry::client
