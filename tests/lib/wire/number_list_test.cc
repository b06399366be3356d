#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "lib/wire/transfers_body.h"
#include "tests/lib/wire/body_formats.h"

namespace gantry::wire {
namespace {

using nlohmann::json;

constexpr uint64_t kLargest = ~uint64_t{0} >> 1;

// What a transfer by a view's first list comes to: its ids, or "code /field" and the message.
std::string Outcome(BodyFormat format, const std::string& body) {
  const auto read = ReadTransferBody(format, body);
  if (!read) {
    return std::string(InfoOf(read.error().code).name) + " " + read.error().field + " " +
           read.error().message;
  }
  std::string ids;
  for (const uint64_t id : read->requests.front().local_blocks) ids += std::to_string(id) + " ";
  return ids;
}

// The same, by a tree of the body and one look at each element.
std::string ExpectedOf(const json& list) {
  std::string ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = " /local_blocks/" + std::to_string(i) + " ";
    const json& id = list[i];
    if (id.is_number_float()) {
      return "malformed_body" + at +
             "expected an integer, found a number that is no integer of 64 bits";
    }
    if (id.is_string()) return "malformed_body" + at + "expected an integer, found a string";
    if (id.is_array()) return "malformed_body" + at + "expected an integer, found a list";
    if (id.is_number_unsigned() && id.get<uint64_t>() > kLargest) {
      return "invalid_argument" + at + "the number is larger than 2^63 - 1";
    }
    if (id.get<int64_t>() < 0) {
      return "invalid_argument" + at + id.dump() + " is not between 0 and " +
             std::to_string(kLargest);
    }
    ids += std::to_string(id.get<uint64_t>()) + " ";
  }
  return ids;
}

// The body with its list in the form of unknown length.
std::string OpenCborOf(const std::string& head, const std::string& list) {
  const std::string tree = CborOf(head + "0}");
  const size_t at = tree.find("local_blocks") + 12;
  std::string open = tree.substr(0, at) + '\x9f';
  for (const json& element : json::parse(list)) open += CborOf(element.dump());
  return open + '\xff' + tree.substr(at + 1);
}

// The body with its list as a byte string of 32 bits for each integer.
std::string PackedCborOf(const std::string& head, const std::vector<uint32_t>& list) {
  json tree = json::parse(head + "0}");
  std::vector<uint8_t> packed;
  for (const uint32_t id : list) {
    for (int shift = 0; shift < 32; shift += 8) packed.push_back(static_cast<uint8_t>(id >> shift));
  }
  tree["local_blocks"] = json::binary(packed);
  const std::vector<uint8_t> bytes = json::to_cbor(tree);
  return {bytes.begin(), bytes.end()};
}

constexpr std::string_view kHead =
    R"({"workload":"a","op":"read","view":"v","remote_blocks":[1],"local_blocks":)";

class NumberListProperty : public ::testing::TestWithParam<int> {
 protected:
  std::string Pick(std::initializer_list<const char*> choices) {
    return *(choices.begin() + random_() % choices.size());
  }
  std::string PlainId() { return std::to_string(random_() >> (1 + random_() % 63)); }
  std::string Id(bool odd) {
    if (!odd) return PlainId();
    return Pick({"-0", "-1", "0.5", "1e2", "18446744073709551615", "9223372036854775808",
                 "9223372036854775807", "999999999999999999", "1000000000000000000", "0",
                 "123456789012345678901", "\"7\"", "[7]"});
  }
  std::string Space() { return random_() % 4 == 0 ? Pick({" ", "\n", "\t\r", "  "}) : ""; }

  std::vector<uint32_t> PackedIds() {
    std::vector<uint32_t> ids(random_() % 100);
    for (uint32_t& id : ids) id = static_cast<uint32_t>(random_() >> random_() % 64);
    return ids;
  }

  // Well formed, but for what Spoil does.
  std::string List(bool odd) {
    const size_t count = random_() % 9;
    std::string list = "[" + Space();
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) list += Space() + "," + Space();
      list += Id(odd && random_() % 8 == 0);
    }
    return list + Space() + "]";
  }
  void Spoil(std::string* text) {
    const size_t at = random_() % text->size();
    switch (random_() % 3) {
      case 0:
        text->insert(at, Pick({",", "0", "]", "-", "x", "[", ".", " ", ":", "/", "\xb5", "\xff"}));
        break;
      case 1:
        text->erase(at, 1);
        break;
      default:
        text->resize(at);
    }
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
};

TEST_P(NumberListProperty, ListsAsTheTreeSaysInBothFormats) {
  for (int round = 0; round < 2000; ++round) {
    const std::string list = List(round % 2 == 0);
    const std::string body = std::string(kHead) + list + "}";
    const std::string expected = ExpectedOf(json::parse(list));
    ASSERT_EQ(Outcome(kJson, body), expected) << body;
    ASSERT_EQ(Outcome(kCbor, CborOf(body)), expected) << body;
    ASSERT_EQ(Outcome(kCbor, OpenCborOf(std::string(kHead), list)), expected) << body;
  }
}

TEST_P(NumberListProperty, PackedListsAsTheTreeSays) {
  for (int round = 0; round < 500; ++round) {
    const std::vector<uint32_t> ids = PackedIds();
    ASSERT_EQ(Outcome(kCbor, PackedCborOf(std::string(kHead), ids)), ExpectedOf(json(ids)));
  }
}

TEST_P(NumberListProperty, SpoiltJsonIsRefusedWhereTheParserRefusesIt) {
  int compared = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string list = List(false);
    Spoil(&list);
    const std::string body = std::string(kHead) + list + "}";
    try {
      const json tree = json::parse(body);
      ASSERT_EQ(Outcome(kJson, body), ExpectedOf(tree["local_blocks"])) << body;
    } catch (const json::parse_error& error) {
      const std::string outcome = Outcome(kJson, body);
      ASSERT_FALSE(ReadTransferBody(kJson, body)) << body;
      // A wrong element may come before, or the list end there and something else behind it.
      if (outcome.find("the body") == std::string::npos) continue;
      ++compared;
      ASSERT_EQ(outcome.substr(outcome.find("the body")),
                "the body cannot be read from byte " + std::to_string(error.byte) + " on")
          << body;
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST_P(NumberListProperty, CborThatIsCutOffIsRefusedAtItsEnd) {
  for (int round = 0; round < 50; ++round) {
    const std::string list = "[" + PlainId() + ",300,70000," + PlainId() + "]";
    std::vector<uint32_t> packed = PackedIds();
    packed.push_back(7);
    for (const std::string& body :
         {CborOf(std::string(kHead) + list + "}"), OpenCborOf(std::string(kHead), list),
          PackedCborOf(std::string(kHead), packed)}) {
      for (size_t bytes = 1; bytes < body.size(); ++bytes) {
        const auto read = ReadTransferBody(kCbor, body.substr(0, bytes));
        ASSERT_FALSE(read);
        ASSERT_EQ(read.error().code, ErrorCode::kMalformedBody);
        ASSERT_EQ(read.error().message,
                  "the body cannot be read from byte " + std::to_string(bytes + 1) + " on");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, NumberListProperty, ::testing::Range(1, 5));

TEST(NumberListTest, CborListsThatAreShorterThanTheySayAreRefused) {
  const std::string head = CborOf(std::string(kHead) + "0}");
  for (const char* list :
       {"\x9a\xff\xff\xff\xff\x01\x02", "\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        "\x98\x05\x01\x02", "\x99\x01\x02", "\x5a\xff\xff\xff\xfc\x01\x02",
        "\x5b\xff\xff\xff\xff\xff\xff\xff\xfc\x01\x02\x03\x04\x05\x06\x07\x08"}) {
    EXPECT_FALSE(ReadTransferBody(kCbor, head.substr(0, head.size() - 1) + list)) << list;
  }
}

TEST(NumberListTest, NumbersOfTheListsOfABodyAreLimitedTogether) {
  const size_t half = kBodyElementsMax / 2;
  const auto body = [&](size_t local, size_t remote) {
    json tree = {{"workload", "a"}, {"op", "read"}, {"view", "v"}};
    tree["local_blocks"] = std::vector<uint64_t>(local, 7);
    tree["remote_blocks"] = std::vector<uint64_t>(remote, 7);
    return tree.dump();
  };
  for (const auto format : {kJson, kCbor}) {
    const auto read = [&](size_t local, size_t remote) {
      const std::string text = body(local, remote);
      return ReadTransferBody(format, format == kJson ? text : CborOf(text));
    };
    EXPECT_TRUE(read(half, half));
    const auto refused = read(half + 1, half);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kBodyTooLarge);
    EXPECT_EQ(refused.error().field, "/remote_blocks/" + std::to_string(half - 1));
  }
}

}  // namespace
}  // namespace gantry::wire
