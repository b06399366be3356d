#include "client/http/http_reply_parser.h"

#include <algorithm>
#include <charconv>

namespace gantry::client {
namespace {

tl::unexpected<Error> Malformed(std::string what) {
  return Fail(ErrorCode::kMalformedBody, "the sidecar's reply is not HTTP/1.1: " + std::move(what),
              "is this socket the API socket of a Gantry sidecar?");
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool ParseNumber(std::string_view text, int base, uint64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, *value, base);
  return code == std::errc() && stop == end && !text.empty();
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
  std::string_view head = std::string_view(unread_).substr(0, end);
  size_t line_end = std::min(head.find("\r\n"), head.size());
  RETURN_IF_ERROR(TakeStatusLine(head.substr(0, line_end)));
  while (line_end < head.size()) {
    head.remove_prefix(line_end + 2);
    line_end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, line_end);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return Malformed("a header has no colon");
    RETURN_IF_ERROR(TakeHeader(Lower(line.substr(0, colon)), Trim(line.substr(colon + 1))));
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
  uint64_t status = 0;
  if (!line.starts_with("HTTP/1.") || line.size() < 12 || line[8] != ' ' ||
      !ParseNumber(line.substr(9, 3), 10, &status) || status < 100) {
    return Malformed("no status line");
  }
  keep_alive_ = line[7] == '1';
  reply_.status = static_cast<int>(status);
  return {};
}

Status HttpReplyParser::TakeHeader(std::string_view name, std::string_view value) {
  if (name == "content-length") {
    if (has_length_ || !ParseNumber(value, 10, &left_)) return Malformed("its Content-Length");
    if (left_ > kBodyBytesMax) return Malformed("its body is too long");
    has_length_ = true;
  } else if (name == "transfer-encoding") {
    if (Lower(value) != "chunked") return Malformed("its Transfer-Encoding");
    chunked_ = true;
  } else if (name == "connection") {
    keep_alive_ = Lower(value) != "close";
  } else if (name == "content-type") {
    reply_.content_type = Lower(Trim(value.substr(0, value.find(';'))));
  }
  return {};
}

Result<bool> HttpReplyParser::TakeChunkSize() {
  const size_t end = unread_.find("\r\n");
  if (end == std::string::npos && unread_.size() < 1024) return false;
  const std::string_view line = std::string_view(unread_).substr(0, end);
  if (end == std::string::npos || !ParseNumber(Trim(line.substr(0, line.find(';'))), 16, &left_)) {
    return Malformed("a chunk has no size");
  }
  if (left_ > kBodyBytesMax - reply_.body.size()) return Malformed("its body is too long");
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

}  // namespace gantry::client
