// Reads one HTTP/1.1 reply as its bytes arrive: with Content-Length, chunked, or until the end of
// the connection; interim 1xx replies are skipped. Everything has a limit. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry::http {

struct HttpReply {
  int status = 0;
  std::string body;
};

class HttpReplyParser {
 public:
  static constexpr size_t kHeadBytesMax = 64 << 10;
  static constexpr size_t kBodyBytesMax = 256 << 20;

  // True when the reply is complete. No more bytes are taken after that.
  Result<bool> Take(std::string_view bytes);
  // The connection ended: true when that is how this reply ends.
  Result<bool> TakeEnd();

  bool started() const { return started_; }
  // Valid when complete: whether the connection can carry another request.
  bool reusable() const { return keep_alive_ && unread_.empty(); }
  HttpReply TakeReply() { return std::move(reply_); }

 private:
  enum class Stage { kHead, kLength, kChunkSize, kChunk, kChunkEnd, kTrailer, kUntilEnd, kDone };

  Result<bool> Advance();
  Result<bool> TakeHead();
  Result<bool> TakeChunkSize();
  Result<bool> TakeBodyBytes();
  Result<bool> TakeTrailer();
  Status TakeHeader(std::string_view name, std::string_view value);
  Status TakeStatusLine(std::string_view line);

  Stage stage_ = Stage::kHead;
  bool started_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool has_length_ = false;
  uint64_t left_ = 0;  // bytes of the body or of the chunk that are to come
  size_t trailer_bytes_ = 0;
  std::string unread_;  // bytes that were received and not yet understood
  HttpReply reply_;
};

}  // namespace gantry::http
