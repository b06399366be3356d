// For x86-64.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "sidecar/worker/process/stream_copy.h"

namespace gantry::worker {
namespace {

constexpr size_t kStoreBytes = 64;
constexpr size_t kLinesAtOnce = 4;
constexpr size_t kParts = kStoreBytes / sizeof(__m128i);

// Of whole lines, `to` at the beginning of one, as many as it takes at once. How many bytes.
__attribute__((target("avx512f"))) size_t StreamWide(std::byte* to, const std::byte* from,
                                                     size_t bytes) {
  size_t done = 0;
  for (; done + kLinesAtOnce * kStoreBytes <= bytes; done += kLinesAtOnce * kStoreBytes) {
    __m512i lines[kLinesAtOnce];
    for (size_t i = 0; i < kLinesAtOnce; ++i) {
      lines[i] = _mm512_loadu_si512(from + done + i * kStoreBytes);
    }
    for (size_t i = 0; i < kLinesAtOnce; ++i) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + done + i * kStoreBytes), lines[i]);
    }
  }
  return done;
}

// The same, line by line, with what every processor of this kind has.
size_t StreamNarrow(std::byte* to, const std::byte* from, size_t bytes) {
  size_t done = 0;
  for (; done + kStoreBytes <= bytes; done += kStoreBytes) {
    __m128i parts[kParts];
    for (size_t i = 0; i < kParts; ++i) {
      parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done) + i);
    }
    for (size_t i = 0; i < kParts; ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + done) + i, parts[i]);
    }
  }
  return done;
}

const bool kWide = __builtin_cpu_supports("avx512f") != 0;

size_t Stream(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t done = kWide ? StreamWide(to, from, bytes) : 0;
  return done + StreamNarrow(to + done, from + done, bytes - done);
}

bool Overlap(const std::byte* one, const std::byte* other, size_t bytes) {
  return one < other + bytes && other < one + bytes;
}

}  // namespace

void StreamBytes(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = -reinterpret_cast<uintptr_t>(to) % kStoreBytes;
  if (bytes < head + kStoreBytes || Overlap(to, from, bytes)) {
    std::memmove(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  const size_t done = head + Stream(to + head, from + head, bytes - head);
  std::memcpy(to + done, from + done, bytes - done);
}

void FenceStreams() { _mm_sfence(); }

}  // namespace gantry::worker
