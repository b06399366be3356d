#include "lib/http/http_reply_parser.h"

#include <algorithm>
#include <optional>

#include "lib/http/head_lines.h"

namespace gantry::http {
namespace {

tl::unexpected<Error> Malformed(std::string what) {
  return Fail(ErrorCode::kMalformedBody, "the sidecar's reply is not HTTP/1.1: " + std::move(what),
              "is this socket the API socket of a Gantry sidecar?");
}

}  // namespace

Result<bool> HttpReplyParser::Take(std::string_view bytes) {
  started_ = started_ || !bytes.empty();
  unread_.append(bytes);
  bool advanced = true;
  while (advanced && stage_ != Stage::kDone) {
    ASSIGN_OR_RETURN(advanced, Advance());
  }
  return stage_ == Stage::kDone;
}

Result<bool> HttpReplyParser::TakeEnd() {
  if (stage_ != Stage::kUntilEnd) return false;
  stage_ = Stage::kDone;
  keep_alive_ = false;
  return true;
}

// One step; false when more bytes are needed for it.
Result<bool> HttpReplyParser::Advance() {
  switch (stage_) {
    case Stage::kHead:
      return TakeHead();
    case Stage::kChunkSize:
      return TakeChunkSize();
    case Stage::kLength:
    case Stage::kChunk:
    case Stage::kUntilEnd:
      return TakeBodyBytes();
    case Stage::kChunkEnd:
      if (unread_.size() < 2) return false;
      if (!unread_.starts_with("\r\n")) return Malformed("a chunk is longer than it said");
      unread_.erase(0, 2);
      stage_ = Stage::kChunkSize;
      return true;
    case Stage::kTrailer:
      return TakeTrailer();
    case Stage::kDone:
      break;
  }
  return false;
}

Result<bool> HttpReplyParser::TakeHead() {
  const size_t end = unread_.find("\r\n\r\n");
  if (std::min(end, unread_.size()) > kHeadBytesMax) return Malformed("its head is too long");
  if (end == std::string::npos) return false;
  std::string_view head = std::string_view(unread_).substr(0, end + 2);
  RETURN_IF_ERROR(TakeStatusLine(TakeLine(&head).value_or("")));
  while (!head.empty()) {
    const auto line = TakeLine(&head);
    const auto header = line ? HeaderIn(*line) : std::nullopt;
    if (!header) return Malformed("a header cannot be read");
    RETURN_IF_ERROR(TakeHeader(header->name, header->value));
  }
  unread_.erase(0, end + 4);
  if (reply_.status < 200) {
    if (reply_.status == 101) return Malformed("it switches protocols");
    chunked_ = has_length_ = false;
    return true;  // an interim reply: the head of the real one follows
  }
  const bool has_body = reply_.status != 204 && reply_.status != 304;
  if (has_body && chunked_) {
    stage_ = Stage::kChunkSize;
  } else if (has_body && !has_length_) {
    stage_ = Stage::kUntilEnd;
    left_ = kBodyBytesMax;
  } else {
    stage_ = has_body && left_ > 0 ? Stage::kLength : Stage::kDone;
    reply_.body.reserve(std::min<uint64_t>(left_, 1 << 20));
  }
  return true;
}

Status HttpReplyParser::TakeStatusLine(std::string_view line) {
  const bool has_status = line.starts_with("HTTP/1.") && line.size() >= 12 && line[8] == ' ';
  const auto status = has_status ? NumberIn(line.substr(9, 3), 10) : std::nullopt;
  if (!status || *status < 100) return Malformed("no status line");
  keep_alive_ = line[7] == '1';
  reply_.status = static_cast<int>(*status);
  return {};
}

Status HttpReplyParser::TakeHeader(std::string_view name, std::string_view value) {
  if (EqualsIgnoringCase(name, "content-length")) {
    const auto length = NumberIn(value, 10);
    if (has_length_ || !length) return Malformed("its Content-Length");
    if (*length > kBodyBytesMax) return Malformed("its body is too long");
    left_ = *length;
    has_length_ = true;
  } else if (EqualsIgnoringCase(name, "transfer-encoding")) {
    if (!EqualsIgnoringCase(value, "chunked")) return Malformed("its Transfer-Encoding");
    chunked_ = true;
  } else if (EqualsIgnoringCase(name, "connection")) {
    keep_alive_ = !EqualsIgnoringCase(value, "close");
  }
  return {};
}

Result<bool> HttpReplyParser::TakeChunkSize() {
  const size_t end = unread_.find("\r\n");
  if (end == std::string::npos && unread_.size() < 1024) return false;
  const std::string_view line = std::string_view(unread_).substr(0, end);
  const auto size = NumberIn(Trim(line.substr(0, line.find(';'))), 16);
  if (end == std::string::npos || !size) return Malformed("a chunk has no size");
  if (*size > kBodyBytesMax - reply_.body.size()) return Malformed("its body is too long");
  left_ = *size;
  unread_.erase(0, end + 2);
  stage_ = left_ == 0 ? Stage::kTrailer : Stage::kChunk;
  return true;
}

Result<bool> HttpReplyParser::TakeBodyBytes() {
  const size_t bytes = std::min<uint64_t>(left_, unread_.size());
  reply_.body.append(unread_, 0, bytes);
  unread_.erase(0, bytes);
  left_ -= bytes;
  if (left_ > 0) return false;
  if (stage_ == Stage::kUntilEnd) return Malformed("its body is too long");
  stage_ = stage_ == Stage::kLength ? Stage::kDone : Stage::kChunkEnd;
  return true;
}

Result<bool> HttpReplyParser::TakeTrailer() {
  const size_t end = unread_.find("\r\n");
  if (std::min(end, unread_.size()) + trailer_bytes_ > kHeadBytesMax) {
    return Malformed("its trailer is too long");
  }
  if (end == std::string::npos) return false;
  trailer_bytes_ += end + 2;
  unread_.erase(0, end + 2);
  if (end == 0) stage_ = Stage::kDone;
  return true;
}

}  // namespace gantry::http
