#include "text/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ballast {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

std::string Encode(uint32_t code) {
  std::string out;
  auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 63));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63));
    put(0x80 | (code & 63));
  }
  return out;
}

// Decodes the strict way: the arithmetic value, then the rules against overlong forms, surrogates and the end
// of Unicode. Returns the length of a valid character, or 0.
size_t PlainValidLength(const std::string& s, size_t at) {
  for (size_t length = 1; length <= 4 && at + length <= s.size(); ++length) {
    uint32_t code = 0;
    for (size_t i = 0; i < length; ++i) {
      const auto byte = static_cast<uint8_t>(s[at + i]);
      const uint32_t payload = i > 0 ? byte & 0x3F : length == 1 ? byte : byte & (0x7F >> length);
      code = code << 6 | payload;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) continue;
    if (Encode(code) == s.substr(at, length)) return length;
  }
  return 0;
}

// True when some valid character starts with these bytes and is longer. By search, not by ranges.
bool StartsSomeCharacter(const std::string& prefix) {
  if (prefix.empty() || prefix.size() > 3) return false;
  std::string s = prefix;
  for (size_t more = 1; prefix.size() + more <= 4; ++more) {
    // 0x80, 0x90, 0xA0 and 0xBF between them reach every range a second byte can have.
    for (int a : {0x80, 0x90, 0xA0, 0xBF}) {
      std::string t = prefix + static_cast<char>(a) + std::string(more - 1, '\x80');
      if (PlainValidLength(t, 0) == t.size()) return true;
    }
  }
  return false;
}

// Unicode's definition read off the page: replace each maximal subpart of an ill-formed sequence by U+FFFD.
std::string PlainRepair(const std::string& s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    if (size_t n = PlainValidLength(s, at)) {
      out += s.substr(at, n);
      at += n;
      continue;
    }
    size_t n = 1;
    while (n < 3 && at + n < s.size() && StartsSomeCharacter(s.substr(at, n + 1))) ++n;
    out += kFffd;
    at += n;
  }
  return out;
}

std::string InPieces(const std::string& s, std::mt19937* rng, size_t longest) {
  Utf8Stream stream;
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const size_t n = std::min<size_t>(s.size() - at, (*rng)() % (longest + 1));
    const std::string shown = stream.Push(s.substr(at, n));
    EXPECT_TRUE(IsValidUtf8(shown));
    EXPECT_LE(stream.held(), 3u);
    out += shown;
    at += n;
  }
  out += stream.Finish();
  EXPECT_EQ(stream.held(), 0u);
  return out;
}

TEST(Utf8StreamTest, UnicodeTable38Example) {
  // Unicode 15, tables 3-8 to 3-11.
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41",
       kFffd + kFffd + kFffd + kFffd + kFffd + kFffd + kFffd + kFffd + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41",
       kFffd + kFffd + kFffd + kFffd + kFffd + kFffd + kFffd + kFffd + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42",
       kFffd + kFffd + kFffd + kFffd + kFffd + "A" + kFffd + kFffd + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", kFffd + kFffd + kFffd + kFffd + "A"},
  };
  for (const auto& [bytes, expected] : cases) {
    Utf8Stream whole, bytewise;
    EXPECT_EQ(whole.Push(bytes) + whole.Finish(), expected);
    std::string out;
    for (char c : bytes) out += bytewise.Push(std::string(1, c));
    EXPECT_EQ(out + bytewise.Finish(), expected);
  }
}

TEST(Utf8StreamTest, EveryCharacterPassesHoweverItIsCut) {
  Utf8Stream stream;
  for (uint32_t code = 0; code <= 0x10FFFF; code += code < 0x3000 ? 1 : 7) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::string bytes = Encode(code);
    std::string out;
    for (size_t i = 0; i < bytes.size(); ++i) {
      out += stream.Push(bytes.substr(i, 1));
      ASSERT_EQ(out.empty(), i + 1 < bytes.size()) << code;  // shown at once, and only when whole
    }
    ASSERT_EQ(out, bytes);
    ASSERT_TRUE(IsValidUtf8(bytes));
    for (size_t i = 1; i < bytes.size(); ++i) ASSERT_FALSE(IsValidUtf8(bytes.substr(0, i)));
  }
}

TEST(Utf8StreamTest, RandomBytesAgreeWithThePlainDefinition) {
  std::mt19937 rng(7);
  // Bytes at the edges of every range, so that near misses are common.
  const std::vector<uint8_t> edges = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
                                      0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
                                      0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFC, 0xFE, 0xFF};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(rng() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(round % 2 ? edges[rng() % edges.size()] : rng());
    const std::string expected = PlainRepair(bytes);
    ASSERT_TRUE(IsValidUtf8(expected));
    ASSERT_EQ(IsValidUtf8(bytes), expected == bytes);
    ASSERT_EQ(InPieces(bytes, &rng, 1 + rng() % 9), expected);
    Utf8Stream whole;
    const std::string shown = whole.Push(bytes);
    ASSERT_EQ(shown + whole.Finish(), expected);
  }
}

// A model stuck on broken bytes must keep showing output at a steady cost, not gather it up.
TEST(Utf8StreamTest, EndlessInvalidBytesNeverPileUp) {
  for (const std::string piece : {"\x80", "\xFF", "\xF0\x9F", "\xE2\x82"}) {
    Utf8Stream stream;
    size_t shown = 0;
    for (int i = 0; i < 100000; ++i) {
      shown += stream.Push(piece).size();
      ASSERT_LE(stream.held(), 3u);
    }
    shown += stream.Finish().size();
    EXPECT_EQ(shown, 100000 * kFffd.size());
  }
}

TEST(Utf8StreamTest, FinishTurnsAnUnfinishedCharacterIntoOneReplacement) {
  for (const std::string start : {"\xC3", "\xE2\x82", "\xF0\x9F\x98"}) {
    Utf8Stream stream;
    EXPECT_EQ(stream.Push("a" + start), "a");
    EXPECT_EQ(stream.held(), start.size());
    EXPECT_EQ(stream.Finish(), kFffd);
    EXPECT_EQ(stream.Finish(), "");
    EXPECT_EQ(stream.Push("b"), "b");  // starts afresh
  }
}

TEST(Utf8StreamTest, ShowsAllThatIsCertain) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("ab\xE2"), "ab");
  EXPECT_EQ(stream.Push(""), "");
  EXPECT_EQ(stream.Push("c"), kFffd + "c");
  EXPECT_EQ(stream.Push(std::string("\0x", 2)), std::string("\0x", 2));
}

}  // namespace
}  // namespace ballast
