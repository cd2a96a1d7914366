#include "engine/stream_snapshot.h"

#include <xxhash.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

namespace ballast {
namespace {

constexpr char kMagic[8] = {'B', 'A', 'L', 'L', 'S', 'T', 'R', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kCheckBytes = 16;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t layers;
  uint64_t identity[2];
  uint64_t note_bytes, row_bytes;
  int64_t context, pinned, position, floor, fed, history;
  uint32_t vocab;
  uint8_t compute, kv, policy, has_logits;
};
static_assert(std::is_trivially_copyable_v<Header>);
static_assert(std::has_unique_object_representations_v<Header>);  // no padding: it is hashed

// Where the parts of an image with this header lie.
struct Sections {
  uint64_t note, lost, history, logits, rows, check, end;
};
constexpr uint64_t Align(uint64_t n) { return (n + 63) / 64 * 64; }
Sections Lay(const Header& h) {
  Sections s{};
  s.note = Align(sizeof(Header));
  s.lost = Align(s.note + h.note_bytes);
  s.history = Align(s.lost + h.layers * sizeof(int64_t));
  s.logits = Align(s.history + static_cast<uint64_t>(h.history) * sizeof(Token));
  s.rows = Align(s.logits + (h.has_logits != 0 ? h.vocab : 0) * sizeof(float));
  s.check = Align(s.rows + h.row_bytes);
  s.end = s.check + kCheckBytes;
  return s;
}

template <typename T>
void Put(uint8_t* out, const T* values, size_t count) {
  if (count > 0) std::memcpy(out, values, count * sizeof(T));
}
template <typename T>
std::vector<T> Take(std::span<const uint8_t> image, uint64_t at, uint64_t count) {
  std::vector<T> out(count);
  if (count > 0) std::memcpy(out.data(), image.data() + at, count * sizeof(T));
  return out;
}

Status Damaged(std::string_view what, std::string_view expected, std::string_view found) {
  return Status::Expected(Code::kInput, "stream snapshot: " + std::string(what), expected, found);
}

// A header whose numbers may be added up, of an image whose checksum is right.
Result<Header> CheckImage(std::span<const uint8_t> image) {
  Header h;
  if (image.size() < Align(sizeof(h)) + kCheckBytes) {
    return Damaged("length", "a whole one", std::to_string(image.size()) + " bytes");
  }
  std::memcpy(&h, image.data(), sizeof(h));
  if (std::memcmp(h.magic, kMagic, sizeof(kMagic)) != 0) return Damaged("magic", "BALLSTR", "another");
  if (h.version != kVersion) {
    return Damaged("version", std::to_string(kVersion), std::to_string(h.version));
  }
  const uint64_t most = image.size();
  const bool sane = h.note_bytes <= most && h.row_bytes <= most && h.layers <= most && h.vocab <= most &&
                    h.history >= 0 && static_cast<uint64_t>(h.history) <= most;
  if (!sane || Lay(h).end != most) return Damaged("length", "that of its header", std::to_string(most));
  const uint64_t check = Lay(h).check;
  const XXH128_hash_t sum = XXH3_128bits(image.data(), check);
  const std::vector<uint64_t> stored = Take<uint64_t>(image, check, 2);
  if (sum.low64 != stored[0] || sum.high64 != stored[1]) return Damaged("content", "its checksum", "another");
  return h;
}

}  // namespace

Result<Arena> EncodeStream(const Stream& stream, const ModelIdentity& model, std::span<const uint8_t> note) {
  const Stream::State state = stream.state();
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  h.version = kVersion;
  h.layers = static_cast<uint32_t>(state.cache.lost.size());
  h.identity[0] = model.low;
  h.identity[1] = model.high;
  h.note_bytes = note.size();
  h.row_bytes = static_cast<uint64_t>(stream.cache().row_bytes());
  h.context = stream.context();
  h.pinned = stream.pinned();
  h.position = state.cache.position;
  h.floor = state.cache.floor;
  h.fed = state.fed;
  h.history = static_cast<int64_t>(state.history.size());
  h.vocab = static_cast<uint32_t>(stream.model().config().vocab);
  h.compute = static_cast<uint8_t>(model.compute);
  h.kv = static_cast<uint8_t>(stream.cache().type());
  h.policy = static_cast<uint8_t>(stream.policy());
  h.has_logits = !state.logits.empty();
  const Sections at = Lay(h);
  BALLAST_ASSIGN_OR_RETURN(Arena image, Arena::Allocate(at.end));
  uint8_t* out = image.data();
  Put(out, &h, 1);
  Put(out + at.note, note.data(), note.size());
  Put(out + at.lost, state.cache.lost.data(), state.cache.lost.size());
  Put(out + at.history, state.history.data(), state.history.size());
  Put(out + at.logits, state.logits.data(), state.logits.size());
  stream.cache().ExportRows(out + at.rows);
  const XXH128_hash_t sum = XXH3_128bits(out, at.check);
  const uint64_t stored[] = {sum.low64, sum.high64};
  Put(out + at.check, stored, 2);
  return image;
}

Result<StreamImage> DecodeStream(std::span<const uint8_t> image, const Model& model, ThreadPool& pool,
                                 const StreamOptions& options, const ModelIdentity& identity) {
  BALLAST_ASSIGN_OR_RETURN(const Header h, CheckImage(image));
  if (h.identity[0] != identity.low || h.identity[1] != identity.high ||
      h.compute != static_cast<uint8_t>(identity.compute)) {
    return Damaged("model", identity.name, "another, or another compute mode");
  }
  StreamImage out;
  BALLAST_ASSIGN_OR_RETURN(out.stream, Stream::Create(model, pool, options));
  const Stream& stream = *out.stream;
  if (h.context != stream.context() || h.pinned != stream.pinned() ||
      h.policy != static_cast<uint8_t>(stream.policy()) ||
      h.kv != static_cast<uint8_t>(stream.cache().type()) ||
      h.row_bytes != static_cast<uint64_t>(stream.cache().row_bytes()) ||
      h.vocab != static_cast<uint32_t>(model.config().vocab)) {
    return Damaged("options", "the same policy, capacity, pinned tokens and cache type", "others");
  }
  const Sections at = Lay(h);
  out.note = Take<uint8_t>(image, at.note, h.note_bytes);
  Stream::State state;
  state.cache = {h.position, h.floor, Take<int64_t>(image, at.lost, h.layers)};
  state.fed = h.fed;
  state.history = Take<Token>(image, at.history, static_cast<uint64_t>(h.history));
  if (h.has_logits != 0) state.logits = Take<float>(image, at.logits, h.vocab);
  BALLAST_RETURN_IF_ERROR(out.stream->Import(std::move(state), image.data() + at.rows));
  return out;
}

}  // namespace ballast
