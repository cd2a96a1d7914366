#include "server/snapshot.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace ballast::server {
namespace {

constexpr char kMagic[8] = {'B', 'A', 'L', 'L', 'S', 'E', 'S', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kMaxOwed = 8;
constexpr size_t kCheckBytes = 16;
constexpr uint64_t kMaxFile = uint64_t{1} << 46;

struct SnapshotHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t identity[2];
  uint64_t row_bytes;
  uint64_t chain, system_chain;
  int64_t context, pinned, position, floor, live, fed, kv_bytes;
  int64_t messages, turns_ever, open_turn, saved_at, turn_evictions;
  uint32_t layers, vocab, turn_capacity, turn_count;
  uint8_t compute, kv, policy, evict, chat, named, has_logits, cut, pin_system, unused[3];
  uint32_t tools_hash;
  uint32_t owed_count;
  int32_t owed[kMaxOwed];
  char model[128];
  char tenant[128];
  char response[128];
  char id[72];
  uint64_t check;  // XXH3-64 of all before it
};
static_assert(std::is_trivially_copyable_v<SnapshotHeader>);
static_assert(sizeof(SnapshotHeader) <= kSnapshotHeaderBytes);

// How the stream fared, at the end of the header's block. Files from before there was a monitor have zeros.
struct MonitorRecord {
  float share_recent, share_usual;
  int64_t share_learnt;
  float entropy_recent, entropy_usual;
  int64_t entropy_learnt;
  int64_t since, rescues;
  uint8_t state, reason, present, unused[5];
  uint64_t check;  // XXH3-64 of all before it
};
static_assert(std::is_trivially_copyable_v<MonitorRecord>);
constexpr size_t kMonitorAt = kSnapshotHeaderBytes - sizeof(MonitorRecord);
static_assert(sizeof(SnapshotHeader) <= kMonitorAt);

// Where the parts of a file of this header lie.
struct Sections {
  uint64_t turns, lost, pinned_ids, ring_ids, logits, rows, check, end;
};
constexpr uint64_t Align(uint64_t n) { return (n + 63) / 64 * 64; }
Sections Lay(const SnapshotHeader& h) {
  Sections s{};
  s.turns = kSnapshotHeaderBytes;
  s.lost = Align(s.turns + h.turn_capacity * sizeof(Turn));
  s.pinned_ids = Align(s.lost + h.layers * sizeof(int64_t));
  s.ring_ids = Align(s.pinned_ids + static_cast<uint64_t>(h.pinned) * sizeof(Token));
  s.logits = Align(s.ring_ids + static_cast<uint64_t>(h.context) * sizeof(Token));
  s.rows = Align(s.logits + h.vocab * sizeof(float));
  s.check = Align(s.rows + h.row_bytes);
  s.end = s.check + kCheckBytes;
  return s;
}

Status Damaged(std::string_view what, std::string_view expected, std::string_view found) {
  return Status::Expected(Code::kInput, "snapshot: " + std::string(what), expected, found);
}

template <size_t N>
bool PutText(const std::string& text, char (&out)[N]) {
  if (text.size() >= N || text.find('\0') != std::string::npos) return false;
  std::memcpy(out, text.data(), text.size());
  return true;
}
template <size_t N>
std::string GetText(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

void Seal(std::span<uint8_t> image, const Sections& s) {
  const XXH128_hash_t sum = XXH3_128bits(image.data(), s.check);
  std::memcpy(image.data() + s.check, &sum.low64, 8);
  std::memcpy(image.data() + s.check + 8, &sum.high64, 8);
}

void SealHeader(SnapshotHeader& h) { h.check = XXH3_64bits(&h, offsetof(SnapshotHeader, check)); }

MonitorRecord RecordMonitor(const Session& session) {
  const Monitor::State state = session.monitor().state();
  MonitorRecord r;
  std::memset(&r, 0, sizeof(r));
  r.share_recent = state.sinks.recent;
  r.share_usual = state.sinks.usual;
  r.share_learnt = state.sinks.learnt;
  r.entropy_recent = state.entropy.recent;
  r.entropy_usual = state.entropy.usual;
  r.entropy_learnt = state.entropy.learnt;
  r.since = state.verdict.since;
  r.rescues = session.rescues();
  r.state = static_cast<uint8_t>(state.verdict.state);
  r.reason = static_cast<uint8_t>(state.verdict.reason);
  r.present = 1;
  r.check = XXH3_64bits(&r, offsetof(MonitorRecord, check));
  return r;
}

// All zeros, or a record with its own checksum.
Result<MonitorRecord> ReadMonitor(std::span<const uint8_t> header) {
  MonitorRecord r;
  std::memcpy(&r, header.data() + kMonitorAt, sizeof(r));
  const auto bytes = header.subspan(kMonitorAt, sizeof(r));
  const bool none = std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
  if (none || (r.present == 1 && r.check == XXH3_64bits(&r, offsetof(MonitorRecord, check)))) return r;
  return Damaged("monitor", "its checksum", "another");
}

Status RestoreMonitor(Session& session, const MonitorRecord& r) {
  if (r.present == 0) return Status();
  if (r.rescues < 0) return Damaged("monitor", "0 or more rescues", std::to_string(r.rescues));
  Monitor::State state;
  state.sinks = {r.share_recent, r.share_usual, r.share_learnt};
  state.entropy = {r.entropy_recent, r.entropy_usual, r.entropy_learnt};
  state.verdict = {static_cast<Health>(r.state), static_cast<Ailment>(r.reason), r.since};
  session.set_rescues(r.rescues);
  return session.monitor().Import(state);
}

// A header that can be trusted as far as sums of its own numbers go.
Result<SnapshotHeader> CheckHeader(std::span<const uint8_t> bytes, uint64_t file_bytes) {
  if (bytes.size() < kSnapshotHeaderBytes) {
    return Damaged("length", "at least " + std::to_string(kSnapshotHeaderBytes) + " bytes",
                   std::to_string(bytes.size()));
  }
  SnapshotHeader h;
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (std::memcmp(h.magic, kMagic, sizeof(kMagic)) != 0) return Damaged("magic", "BALLSES", "another");
  if (h.version != kVersion) {
    return Damaged("version", std::to_string(kVersion), std::to_string(h.version));
  }
  if (h.check != XXH3_64bits(&h, offsetof(SnapshotHeader, check)) || h.header_bytes != sizeof(h)) {
    return Damaged("header", "its checksum", "another");
  }
  const auto rest = bytes.subspan(sizeof(h), kMonitorAt - sizeof(h));
  if (std::any_of(rest.begin(), rest.end(), [](uint8_t b) { return b != 0; })) {
    return Damaged("header", "zeros after it", "other bytes");
  }
  BALLAST_RETURN_IF_ERROR(ReadMonitor(bytes).status());
  const bool sane = h.context >= 1 && h.context <= kMaxContext && h.pinned >= 0 && h.pinned < h.context &&
                    h.row_bytes <= kMaxFile && h.layers <= 4096 && h.vocab <= (1u << 30) &&
                    h.turn_count <= h.turn_capacity && h.turn_capacity <= (1u << 20) &&
                    h.owed_count <= kMaxOwed && h.kv <= 2 && h.policy <= 3 && h.evict <= 1 && h.chat <= 1 &&
                    h.named <= 1 && h.has_logits <= 1 && h.cut <= 1 && h.pin_system <= 1 && h.compute <= 1;
  if (!sane) return Damaged("header", "numbers that a session can have", "others");
  const uint64_t expected = Lay(h).end;
  if (h.file_bytes != expected || file_bytes != expected) {
    return Damaged("length", std::to_string(expected) + " bytes", std::to_string(file_bytes));
  }
  return h;
}

template <typename T>
std::vector<T> ReadVector(std::span<const uint8_t> image, uint64_t at, uint64_t count) {
  std::vector<T> out(count);
  if (count > 0) std::memcpy(out.data(), image.data() + at, count * sizeof(T));
  return out;
}
template <typename T>
void WriteVector(const std::vector<T>& values, uint8_t* out) {
  if (!values.empty()) std::memcpy(out, values.data(), values.size() * sizeof(T));
}

// Turns of any file with a right checksum, even one made by hand, keep a session's invariants.
bool TurnsMakeSense(const TurnLog::State& log, int64_t position, int64_t owed) {
  int64_t last = 0, messages = 0;
  for (const Turn& t : log.turns) {
    if (t.begin < last || t.end < t.begin || t.end > position + owed || t.floor < 0 || t.floor > position ||
        t.messages < messages) {
      return false;
    }
    last = t.end;
    messages = t.messages;
  }
  if (log.open && (*log.open < 0 || *log.open > position)) return false;
  return log.count + 1 >= static_cast<int64_t>(log.turns.size()) && log.messages >= messages;
}

SnapshotHeader MakeHeader(const Session& session, const ModelIdentity& model) {
  const Stream& stream = session.stream();
  const KvCache::State cache = stream.cache().state();
  const TurnLog& turns = session.turns();
  SnapshotHeader h;
  std::memset(&h, 0, sizeof(h));  // padding too: it is hashed
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  h.version = kVersion;
  h.header_bytes = sizeof(h);
  h.identity[0] = model.low;
  h.identity[1] = model.high;
  h.row_bytes = static_cast<uint64_t>(stream.cache().row_bytes());
  h.chain = turns.chain();
  h.system_chain = session.system_chain();
  h.tools_hash = session.tools_hash();
  h.context = stream.context();
  h.pinned = stream.pinned();
  h.position = cache.position;
  h.floor = cache.floor;
  h.live = stream.live();
  h.fed = stream.position();
  h.kv_bytes = stream.kv_bytes();
  h.messages = turns.messages();
  h.turns_ever = turns.count();
  h.open_turn = turns.open() ? *turns.NewestBegin() : -1;
  h.turn_evictions = session.turn_evictions();
  h.layers = static_cast<uint32_t>(cache.lost.size());
  h.vocab = static_cast<uint32_t>(stream.model().config().vocab);
  h.turn_capacity = static_cast<uint32_t>(turns.capacity());
  h.turn_count = static_cast<uint32_t>(turns.turns().size());
  h.compute = static_cast<uint8_t>(model.compute);
  h.kv = static_cast<uint8_t>(stream.cache().type());
  h.policy = static_cast<uint8_t>(stream.policy());
  h.evict = static_cast<uint8_t>(session.config().evict);
  h.chat = session.config().chat;
  h.pin_system = session.config().pin_system;
  h.has_logits = !stream.logits().empty();
  h.cut = session.cut();
  h.owed_count = static_cast<uint32_t>(session.owed().size());
  return h;
}

// Everything but the rows, into a session that nobody knows yet.
Status Fill(Session& session, const SnapshotHeader& h, std::span<const uint8_t> image) {
  const Sections at = Lay(h);
  TurnLog::State log;
  log.turns = ReadVector<Turn>(image, at.turns, h.turn_count);
  if (h.open_turn >= 0) log.open = h.open_turn;
  log.messages = h.messages;
  log.count = h.turns_ever;
  log.chain = h.chain;
  if (!TurnsMakeSense(log, h.fed, h.owed_count)) return Damaged("turns", "a conversation's", "others");
  std::vector<Token> pinned = ReadVector<Token>(image, at.pinned_ids, static_cast<uint64_t>(h.pinned));
  std::vector<Token> ring = ReadVector<Token>(image, at.ring_ids, static_cast<uint64_t>(h.context));
  const auto known = [&](Token id) { return id >= 0 && static_cast<uint32_t>(id) < h.vocab; };
  if (!std::all_of(pinned.begin(), pinned.end(), known) || !std::all_of(ring.begin(), ring.end(), known) ||
      !std::all_of(h.owed, h.owed + h.owed_count, known)) {
    return Damaged("ids", "ids of the vocabulary", "others");
  }
  session.RestoreIds(std::move(pinned), std::move(ring));
  session.owed().assign(h.owed, h.owed + h.owed_count);
  session.turns().Restore(log);
  session.set_system_chain(h.system_chain);
  session.set_tools_hash(h.tools_hash);
  if (h.cut != 0) session.NoteCut();
  return Status();
}

}  // namespace

Result<Arena> EncodeSnapshot(const Session& session, const SnapshotLabel& label, const ModelIdentity& model) {
  const Stream& stream = session.stream();
  SnapshotHeader h = MakeHeader(session, model);
  h.named = label.named;
  h.saved_at = label.saved_at;
  if (!PutText(label.tenant, h.tenant) || !PutText(label.id, h.id) || !PutText(label.response, h.response) ||
      !PutText(model.name, h.model)) {
    return Status(Code::kInput, "session: tenant, id or response id too long for a snapshot");
  }
  if (session.owed().size() > kMaxOwed) return Status(Code::kInternal, "session: too many tokens owed");
  std::copy(session.owed().begin(), session.owed().end(), h.owed);
  const Sections at = Lay(h);
  h.file_bytes = at.end;
  SealHeader(h);
  BALLAST_ASSIGN_OR_RETURN(Arena image, Arena::Allocate(at.end));
  uint8_t* out = image.data();
  std::memcpy(out, &h, sizeof(h));
  const MonitorRecord monitor = RecordMonitor(session);
  std::memcpy(out + kMonitorAt, &monitor, sizeof(monitor));
  const TurnLog::State log = session.turns().state();
  WriteVector(log.turns, out + at.turns);
  WriteVector(stream.cache().state().lost, out + at.lost);
  WriteVector(session.pinned_ids(), out + at.pinned_ids);
  WriteVector(session.ring_ids(), out + at.ring_ids);
  if (h.has_logits != 0) std::memcpy(out + at.logits, stream.logits().data(), stream.logits().size_bytes());
  stream.cache().ExportRows(out + at.rows);
  Seal({out, at.end}, at);
  return image;
}

Result<SnapshotLabel> ReadSnapshotHeader(std::span<const uint8_t> header, uint64_t file_bytes) {
  BALLAST_ASSIGN_OR_RETURN(const SnapshotHeader h, CheckHeader(header, file_bytes));
  SnapshotLabel label;
  label.tenant = GetText(h.tenant);
  label.id = GetText(h.id);
  label.response = GetText(h.response);
  label.named = h.named != 0;
  label.saved_at = h.saved_at;
  label.model = {h.identity[0], h.identity[1], GetText(h.model), static_cast<Compute>(h.compute)};
  label.bytes = static_cast<int64_t>(h.file_bytes);
  label.position = h.fed;
  label.live = h.live;
  label.pinned = h.pinned;
  label.context = h.context;
  label.turns = h.turns_ever;
  label.messages = h.messages;
  label.kv_bytes = h.kv_bytes;
  label.policy = static_cast<Policy>(h.policy);
  label.evict = static_cast<Evict>(h.evict);
  label.chat = h.chat != 0;
  label.pin_system = h.pin_system != 0;
  label.chain = h.open_turn < 0 ? h.chain : 0;
  return label;
}

Result<std::unique_ptr<Session>> DecodeSnapshot(std::span<const uint8_t> image, const Model& model,
                                                ThreadPool& pool, const ModelIdentity& identity) {
  BALLAST_ASSIGN_OR_RETURN(const SnapshotHeader h, CheckHeader(image, image.size()));
  const Sections at = Lay(h);
  const XXH128_hash_t sum = XXH3_128bits(image.data(), at.check);
  uint64_t stored[2];
  std::memcpy(stored, image.data() + at.check, sizeof(stored));
  if (sum.low64 != stored[0] || sum.high64 != stored[1]) return Damaged("content", "its checksum", "another");
  const ModelIdentity made{h.identity[0], h.identity[1], GetText(h.model), static_cast<Compute>(h.compute)};
  if (!(made == identity)) {
    const auto mode = [](Compute c) { return c == Compute::kF32 ? " (compute f32)" : " (compute fast)"; };
    const bool same_name = made.name == identity.name;
    return Status(Code::kInput,
                  "snapshot of model " + made.name + (same_name ? mode(made.compute) : "") +
                      ", this server runs " + identity.name + (same_name ? mode(identity.compute) : ""),
                  same_name && made.compute == identity.compute ? "same name, other weights" : "");
  }
  Session::Config config;
  config.stream.policy = static_cast<Policy>(h.policy);
  config.stream.context = h.context;
  config.stream.pinned = h.pinned;
  config.stream.kv = static_cast<KvType>(h.kv);
  config.evict = static_cast<Evict>(h.evict);
  config.chat = h.chat != 0;
  config.pin_system = h.pin_system != 0;
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(model, pool, config));
  const Stream& stream = session->stream();
  if (h.row_bytes != static_cast<uint64_t>(stream.cache().row_bytes()) || h.pinned != stream.pinned() ||
      h.layers != model.CacheShape().size() || h.vocab != static_cast<uint32_t>(model.config().vocab) ||
      h.turn_capacity != session->turns().capacity()) {
    return Damaged("shape", "that of this model's cache", "another");
  }
  BALLAST_RETURN_IF_ERROR(Fill(*session, h, image));
  BALLAST_ASSIGN_OR_RETURN(const MonitorRecord monitor, ReadMonitor(image));
  BALLAST_RETURN_IF_ERROR(RestoreMonitor(*session, monitor));
  Stream::State state;
  state.cache = {h.position, h.floor, ReadVector<int64_t>(image, at.lost, h.layers)};
  const bool recompute = config.stream.policy == Policy::kRecompute;
  if (recompute) {
    state.fed = h.fed;
    // Session::Newest counts from a position that the stream does not have yet.
    const std::vector<Token>& ring = session->ring_ids();
    for (int64_t t = std::max<int64_t>(0, h.fed - h.context); t < h.fed; ++t) {
      state.history.push_back(ring[static_cast<size_t>(t % h.context)]);
    }
  } else if (h.fed != h.position) {
    return Damaged("position", std::to_string(h.position), std::to_string(h.fed));
  }
  if (h.has_logits != 0) state.logits = ReadVector<float>(image, at.logits, h.vocab);
  BALLAST_RETURN_IF_ERROR(session->stream().Import(std::move(state), image.data() + at.rows));
  return session;
}

void ResealSnapshot(std::span<uint8_t> image) {
  if (image.size() < kSnapshotHeaderBytes) return;
  SnapshotHeader h;
  std::memcpy(&h, image.data(), sizeof(h));
  SealHeader(h);
  std::memcpy(image.data(), &h, sizeof(h));
  const uint64_t check = image.size() - kCheckBytes;
  const XXH128_hash_t sum = XXH3_128bits(image.data(), check);
  std::memcpy(image.data() + check, &sum.low64, 8);
  std::memcpy(image.data() + check + 8, &sum.high64, 8);
}

}  // namespace ballast::server
