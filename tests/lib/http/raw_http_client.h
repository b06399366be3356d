// A client that sends exactly the bytes it is told to, and reads responses. Used by one thread at
// a time.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "lib/base/clock.h"
#include "lib/base/fd_passing.h"

namespace gantry::http {

struct RawResponse {
  int status = 0;  // 0: the connection ended before there was one
  std::map<std::string, std::string> headers;
  std::string body;

  // The value of a text field of a flat JSON body; empty when there is none.
  std::string Text(const std::string& key) const {
    const size_t at = body.find("\"" + key + "\":\"");
    if (at == std::string::npos) return {};
    const size_t begin = at + key.size() + 4;
    return body.substr(begin, body.find('"', begin) - begin);
  }
  std::string code() const { return Text("code"); }
  std::string field() const { return Text("field"); }
};

class RawHttpClient {
 public:
  explicit RawHttpClient(const std::string& path) {
    auto socket = ConnectUnix(path, SOCK_STREAM);
    if (socket) socket_ = std::move(*socket);
  }
  explicit RawHttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ConnectTo(reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  static RawHttpClient OverIpv6(int port) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    address.sin6_addr = in6addr_loopback;
    RawHttpClient client(UniqueFd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    client.ConnectTo(reinterpret_cast<sockaddr*>(&address), sizeof(address));
    return client;
  }

  bool connected() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }
  void Close() { socket_.reset(); }

  // False when the server closed before it took everything.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Bytes as they come; empty at the end of the connection or after `patience`.
  std::string Receive(milliseconds patience = milliseconds(10'000)) {
    pollfd readable{socket_.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(patience.count())) <= 0) return {};
    std::string bytes(65536, '\0');
    const ssize_t received = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(received, 0)));
    return bytes;
  }
  bool WaitForEnd(milliseconds patience = milliseconds(10'000)) {
    const TimePoint deadline = Clock::now() + patience;
    while (Clock::now() < deadline) {
      pollfd readable{socket_.get(), POLLIN, 0};
      if (::poll(&readable, 1, 50) > 0 && Receive().empty()) return true;
    }
    return false;
  }

  RawResponse Read(milliseconds patience = milliseconds(10'000)) {
    RawResponse response;
    size_t head = std::string::npos;
    while ((head = buffered_.find("\r\n\r\n")) == std::string::npos) {
      const std::string more = Receive(patience);
      if (more.empty()) return response;
      buffered_ += more;
    }
    ReadHead(buffered_.substr(0, head + 2), &response);
    buffered_.erase(0, head + 4);
    const auto length = response.headers.find("content-length");
    const size_t size = length == response.headers.end() ? 0 : std::stoul(length->second);
    while (buffered_.size() < size) {
      const std::string more = Receive(patience);
      if (more.empty()) return {};
      buffered_ += more;
    }
    response.body = buffered_.substr(0, size);
    buffered_.erase(0, size);
    return response;
  }

  RawResponse Get(const std::string& target, const std::string& headers = "") {
    return Request("GET", target, headers);
  }
  RawResponse Request(const std::string& method, const std::string& target,
                      const std::string& headers = "") {
    Send(method + " " + target + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
    return Read();
  }
  RawResponse Post(const std::string& target, std::string_view body,
                   const std::string& headers = "Content-Type: application/json\r\n",
                   const std::string& method = "POST") {
    std::string request = method + " " + target + " HTTP/1.1\r\nHost: x\r\n" + headers +
                          "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    request += body;
    Send(request);
    return Read();
  }
  RawResponse Put(const std::string& target, std::string_view body) {
    return Post(target, body, "Content-Type: application/json\r\n", "PUT");
  }

 private:
  explicit RawHttpClient(UniqueFd socket) : socket_(std::move(socket)) {}
  void ConnectTo(const sockaddr* address, socklen_t size) {
    if (::connect(socket_.get(), address, size) != 0) socket_.reset();
  }
  static void ReadHead(const std::string& head, RawResponse* response) {
    response->status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t end = head.find("\r\n", at);
      const std::string line = head.substr(at, end - at);
      const size_t colon = line.find(": ");
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](char c) { return static_cast<char>(std::tolower(c)); });
      response->headers[name] = line.substr(colon + 2);
      at = end + 2;
    }
  }

  UniqueFd socket_;
  std::string buffered_;
};

}  // namespace gantry::http
