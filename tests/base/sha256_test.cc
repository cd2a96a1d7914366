// The standard's own examples, and bytes that come in pieces.
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace ballast {
namespace {

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(Sha256Hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex(Bytes("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(Bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, PiecesOfAnySizeAreTheWhole) {
  const std::string text(1000, 'x');
  const std::string whole = Sha256Hex(Bytes(text));
  for (const size_t piece : {1, 55, 63, 64, 65, 128, 999}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) {
      hash.Add(Bytes(std::string_view(text).substr(at, piece)));
      hash.Add({});
      static_cast<void>(hash.Hex());  // asking changes nothing
    }
    EXPECT_EQ(hash.Hex(), whole) << piece;
  }
}

}  // namespace
}  // namespace ballast
