#include "eval/watch_state.h"

#include <xxhash.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace ballast {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic = "BALLWATC";
constexpr uint32_t kVersion = 1;
constexpr size_t kCheckBytes = 16;
constexpr size_t kHeadBytes = 16;  // magic, version, length of the description

size_t Align(size_t n) { return (n + 7) / 8 * 8; }

template <typename T>
void Append(std::string& out, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.resize(Align(out.size()));
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Takes sections off an image in the order in which they were appended.
class Reader {
 public:
  Reader(std::string_view image, size_t at) : image_(image), at_(at) {}
  template <typename T>
  bool Take(int64_t count, std::vector<T>* out) {
    std::string_view bytes;
    if (count < 0 || count > static_cast<int64_t>(image_.size()) ||
        !TakeBytes(static_cast<size_t>(count) * sizeof(T), &bytes)) {
      return false;
    }
    out->resize(static_cast<size_t>(count));
    if (count > 0) std::memcpy(out->data(), bytes.data(), bytes.size());
    return true;
  }
  bool TakeBytes(size_t bytes, std::string_view* out) {
    at_ = Align(at_);
    if (at_ > image_.size() || bytes > image_.size() - at_) return false;
    *out = image_.substr(at_, bytes);
    at_ += bytes;
    return true;
  }
  bool AtEnd() const { return at_ == image_.size(); }

 private:
  std::string_view image_;
  size_t at_;
};

Status Damaged(std::string_view what, std::string_view expected, std::string_view found) {
  return Status::Expected(Code::kInput, "watch state: " + std::string(what), expected, found);
}

json Describe(const WatchProgress& p) {
  return {{"input", p.input},
          {"device", p.place.device},
          {"inode", p.place.inode},
          {"offset", p.place.offset},
          {"before_bytes", p.place.before.bytes},
          {"before_hash", p.place.before.hash},
          {"modified", p.place.modified},
          {"lines", p.lines},
          {"bytes", p.bytes},
          {"skipped_lines", p.skipped_lines},
          {"skipped_bytes", p.skipped_bytes},
          {"alarms", p.alarms},
          {"since_alarm", p.since_alarm},
          {"out_device", p.out_device},
          {"out_inode", p.out_inode},
          {"out_bytes", p.out_bytes},
          {"out_closed", p.out_closed ? 1 : 0}};
}

// Numbers of a description whose checksum was right; one that is missing or no number is 0.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}
  template <typename T = int64_t>
  T Get(const char* name) const {
    const auto found = object_.find(name);
    return found != object_.end() && found->is_number_integer() ? found->get<T>() : T{0};
  }
  std::string Text(const char* name) const {
    const auto found = object_.find(name);
    return found != object_.end() && found->is_string() ? found->get<std::string>() : "";
  }

 private:
  const json& object_;
};

WatchProgress ReadProgress(const Fields& f) {
  WatchProgress p;
  p.input = f.Text("input");
  p.place = {f.Get<uint64_t>("device"),
             f.Get<uint64_t>("inode"),
             f.Get("offset"),
             {f.Get("before_bytes"), f.Get<uint64_t>("before_hash")},
             f.Get("modified")};
  p.lines = f.Get("lines");
  p.bytes = f.Get("bytes");
  p.skipped_lines = f.Get("skipped_lines");
  p.skipped_bytes = f.Get("skipped_bytes");
  p.alarms = f.Get("alarms");
  p.since_alarm = f.Get("since_alarm");
  p.out_device = f.Get<uint64_t>("out_device");
  p.out_inode = f.Get<uint64_t>("out_inode");
  p.out_bytes = f.Get("out_bytes");
  p.out_closed = f.Get("out_closed") != 0;
  return p;
}

// The description of an image that is whole.
Result<json> Verify(std::string_view image, size_t* sections) {
  uint32_t version = 0, length = 0;
  if (image.size() < kHeadBytes + kCheckBytes || image.substr(0, kMagic.size()) != kMagic) {
    return Damaged("file", "one that ballast watch wrote", "another");
  }
  std::memcpy(&version, image.data() + kMagic.size(), sizeof(version));
  std::memcpy(&length, image.data() + kMagic.size() + sizeof(version), sizeof(length));
  if (version != kVersion) return Damaged("version", std::to_string(kVersion), std::to_string(version));
  const size_t check = image.size() - kCheckBytes;
  const XXH128_hash_t sum = XXH3_128bits(image.data(), check);
  uint64_t stored[2];
  std::memcpy(stored, image.data() + check, sizeof(stored));
  if (sum.low64 != stored[0] || sum.high64 != stored[1] || length > check - kHeadBytes) {
    return Damaged("content", "its checksum", "another");
  }
  json description = json::parse(image.substr(kHeadBytes, length), nullptr, false);
  if (!description.is_object()) return Damaged("description", "an object", "none");
  *sections = kHeadBytes + length;
  return description;
}

}  // namespace

std::string EncodeWatchState(const WatchProgress& progress, const NoveltyJudge& judge, const Stream& stream,
                             const std::string& model) {
  const Stream::State state = stream.state();
  const NoveltyJudge::State learnt = judge.state();
  json description = Describe(progress);
  description["model"] = model;
  description["policy"] = PolicyName(stream.policy());
  description["context"] = stream.context();
  description["pinned"] = stream.pinned();
  description["kv"] = KvTypeName(stream.cache().type());
  description["judged"] = learnt.lines;
  description["run"] = learnt.run;
  description["quiet"] = learnt.quiet;
  description["templates"] = learnt.templates.size();
  description["pairs"] = learnt.pairs.size();
  description["recent"] = learnt.recent.size();
  description["position"] = state.cache.position;
  description["floor"] = state.cache.floor;
  description["fed"] = state.fed;
  description["history"] = state.history.size();
  description["lost"] = state.cache.lost.size();
  description["logits"] = state.logits.size();
  description["row_bytes"] = stream.cache().row_bytes();
  const std::string text = description.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string out(kMagic);
  const auto length = static_cast<uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&kVersion), sizeof(kVersion));
  out.append(reinterpret_cast<const char*>(&length), sizeof(length));
  out += text;
  Append(out, learnt.templates);
  Append(out, learnt.pairs);
  Append(out, learnt.recent);
  Append(out, state.cache.lost);
  Append(out, state.history);
  Append(out, state.logits);
  out.resize(Align(out.size()));
  const size_t rows = out.size();
  out.resize(Align(rows + static_cast<size_t>(stream.cache().row_bytes())));
  stream.cache().ExportRows(reinterpret_cast<uint8_t*>(out.data() + rows));
  const XXH128_hash_t sum = XXH3_128bits(out.data(), out.size());
  out.append(reinterpret_cast<const char*>(&sum.low64), 8);
  out.append(reinterpret_cast<const char*>(&sum.high64), 8);
  return out;
}

Status DecodeWatchState(std::string_view image, const std::string& model, WatchProgress* progress,
                        NoveltyJudge* judge, Stream* stream) {
  size_t sections = 0;
  BALLAST_ASSIGN_OR_RETURN(const json description, Verify(image, &sections));
  const Fields f(description);
  if (f.Text("model") != model) return Damaged("model", model, f.Text("model"));
  const auto shape = [](const std::string& policy, int64_t context, int64_t pinned, const std::string& kv) {
    return policy + ", " + std::to_string(context) + " tokens, " + std::to_string(pinned) + " pinned, " + kv;
  };
  const std::string own = shape(std::string(PolicyName(stream->policy())), stream->context(),
                                stream->pinned(), std::string(KvTypeName(stream->cache().type())));
  const std::string found = shape(f.Text("policy"), f.Get("context"), f.Get("pinned"), f.Text("kv"));
  if (own != found) return Damaged("cache", own, found);
  if (f.Get("row_bytes") != stream->cache().row_bytes()) {
    return Damaged("cache rows", std::to_string(stream->cache().row_bytes()),
                   std::to_string(f.Get("row_bytes")));
  }
  Reader reader(image.substr(0, image.size() - kCheckBytes), sections);
  NoveltyJudge::State learnt;
  Stream::State state;
  std::string_view rows;
  const bool whole =
      reader.Take(f.Get("templates"), &learnt.templates) && reader.Take(f.Get("pairs"), &learnt.pairs) &&
      reader.Take(f.Get("recent"), &learnt.recent) && reader.Take(f.Get("lost"), &state.cache.lost) &&
      reader.Take(f.Get("history"), &state.history) && reader.Take(f.Get("logits"), &state.logits) &&
      reader.TakeBytes(Align(static_cast<size_t>(f.Get("row_bytes"))), &rows) && reader.AtEnd();
  if (!whole) return Damaged("length", "that of its parts", "another");
  state.cache.position = f.Get("position");
  state.cache.floor = f.Get("floor");
  state.fed = f.Get("fed");
  BALLAST_RETURN_IF_ERROR(stream->Import(std::move(state), reinterpret_cast<const uint8_t*>(rows.data())));
  learnt.lines = f.Get("judged");
  learnt.run = f.Get("run");
  learnt.quiet = f.Get("quiet");
  judge->Restore(learnt);
  *progress = ReadProgress(f);
  return Status();
}

}  // namespace ballast
