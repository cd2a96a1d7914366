// A stream as bytes: it goes on bit for bit, and nothing damaged or foreign becomes a stream.
#include "engine/stream_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/load_tokenizer.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RandomTokens;
using testing::TinyLlama;
using testing::TinySpec;

class StreamSnapshot : public ::testing::TestWithParam<std::tuple<Policy, KvType>> {
 protected:
  StreamSnapshot() : pool_(1), file_(TensorFile::Open(TinyLlama(TinySpec{}).WriteTemp("snapshot.gguf"))) {
    model_ = Model::Load(*file_, {Compute::kF32, nullptr}, pool_).value();
    identity_ = IdentifyModel(*file_, *LoadTokenizer(*file_).value(), model_->config(), Compute::kF32);
  }
  StreamOptions Options() const {
    StreamOptions o;
    o.policy = std::get<0>(GetParam());
    o.context = 24;
    o.kv = std::get<1>(GetParam());
    return o;
  }
  std::unique_ptr<Stream> New() { return Stream::Create(*model_, pool_, Options()).value(); }
  Result<StreamImage> Decode(std::span<const uint8_t> image) {
    return DecodeStream(image, *model_, pool_, Options(), identity_);
  }
  static std::vector<uint8_t> Bytes(const Arena& image) {
    return {image.data(), image.data() + image.size()};
  }

  ThreadPool pool_;
  Result<TensorFile> file_;
  std::unique_ptr<const Model> model_;
  ModelIdentity identity_;
};

TEST_P(StreamSnapshot, GoesOnBitForBit) {
  const std::vector<uint8_t> note = {1, 2, 3};
  for (const int64_t fed : {0, 1, 5, 20}) {
    const int64_t fits = std::get<0>(GetParam()) == Policy::kDense ? 4 : 60;
    auto stream = New();
    ASSERT_TRUE(stream->Append(RandomTokens(fed, 64, 3)).ok());
    auto restored = Decode(Bytes(EncodeStream(*stream, identity_, note).value()));
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    EXPECT_THAT(restored->note, ElementsAre(1, 2, 3));
    for (const Token t : RandomTokens(fits, 64, 4)) {
      ASSERT_TRUE(stream->Append({&t, 1}).ok());
      ASSERT_TRUE(restored->stream->Append({&t, 1}).ok());
    }
    EXPECT_EQ(restored->stream->position(), stream->position());
    EXPECT_TRUE(std::equal(stream->logits().begin(), stream->logits().end(),
                           restored->stream->logits().begin(), restored->stream->logits().end()));
  }
}

TEST_P(StreamSnapshot, NoDamagedByteGetsThrough) {
  auto stream = New();
  ASSERT_TRUE(stream->Append(RandomTokens(20, 64, 3)).ok());
  const std::vector<uint8_t> good = Bytes(EncodeStream(*stream, identity_, {}).value());
  for (size_t at = 0; at < good.size(); at += at < 256 ? 1 : 97) {
    std::vector<uint8_t> bad = good;
    bad[at] ^= 0x40;
    EXPECT_EQ(Decode(bad).status().code(), Code::kInput) << at;
  }
  for (const size_t length : {size_t{0}, size_t{1}, size_t{100}, good.size() - 1}) {
    EXPECT_EQ(Decode({good.data(), length}).status().code(), Code::kInput) << length;
  }
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_EQ(Decode(longer).status().code(), Code::kInput);
}

TEST_P(StreamSnapshot, OtherModelsAndOptionsAreRefused) {
  auto stream = New();
  ASSERT_TRUE(stream->Append(RandomTokens(20, 64, 3)).ok());
  const std::vector<uint8_t> image = Bytes(EncodeStream(*stream, identity_, {}).value());
  ModelIdentity other = identity_;
  other.high ^= 1;
  EXPECT_THAT(DecodeStream(image, *model_, pool_, Options(), other).status().message(),
              HasSubstr("snapshot: model"));
  StreamOptions options = Options();
  options.context = 25;
  EXPECT_THAT(DecodeStream(image, *model_, pool_, options, identity_).status().message(),
              HasSubstr("snapshot: options"));
}

INSTANTIATE_TEST_SUITE_P(Policies, StreamSnapshot,
                         ::testing::Combine(::testing::Values(Policy::kSinks, Policy::kDense,
                                                              Policy::kRecompute),
                                            ::testing::Values(KvType::kF32, KvType::kQ8)));

}  // namespace
}  // namespace ballast
