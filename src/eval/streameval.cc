#include "eval/streameval.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/mmap.h"
#include "engine/rng.h"
#include "eval/nll_stats.h"

namespace ballast {
namespace {

constexpr int64_t kKeys = 64;         // of each half
constexpr int64_t kLinesBetween = 6;  // from questions to questions; even, see Facts::Shown
constexpr int64_t kShownEvery = 3;    // lines from one answered question of the list to the next ...
constexpr int64_t kShownBack = 30;    // ... and how far back the line it repeats may lie
constexpr size_t kWords = 16;         // answers wanted
constexpr size_t kFewestWords = 4;    // answers needed
constexpr std::string_view kFirst[kKeys] = {
    "amber", "brave",  "calm",   "dusty",  "eager", "faint",  "gentle", "hollow", "icy",    "jolly",
    "keen",  "lively", "mellow", "narrow", "odd",   "pale",   "quick",  "rusty",  "silent", "tidy",
    "upper", "vivid",  "warm",   "young",  "zesty", "bitter", "clever", "dim",    "early",  "fierce",
    "grand", "humble", "idle",   "just",   "kind",  "lonely", "misty",  "noble",  "old",    "proud",
    "royal", "shy",    "tall",   "urban",  "vast",  "wild",   "yellow", "blunt",  "crisp",  "deep",
    "empty", "fresh",  "golden", "heavy",  "inner", "loud",   "modest", "neat",   "open",   "plain",
    "rapid", "solid",  "tender", "worn"};
constexpr std::string_view kSecond[kKeys] = {
    "falcon", "garden", "hammer",  "island", "jacket",  "kettle",  "ladder",   "mirror", "needle",  "orchard",
    "pencil", "quarry", "ribbon",  "saddle", "tunnel",  "valley",  "wagon",    "anchor", "basket",  "candle",
    "desert", "engine", "forest",  "goblet", "harbor",  "insect",  "jungle",   "kitten", "lantern", "market",
    "napkin", "ocean",  "parrot",  "rabbit", "shadow",  "temple",  "umbrella", "violin", "window",  "arrow",
    "bridge", "castle", "dragon",  "eagle",  "feather", "glacier", "helmet",   "jewel",  "knight",  "lemon",
    "meadow", "nest",   "oyster",  "planet", "river",   "spider",  "tiger",    "turtle", "walnut",  "zebra",
    "barrel", "canyon", "dolphin", "flute"};
constexpr std::string_view kAnswers[] = {"red",  "blue",  "green", "white", "black", "gold", "iron",  "water",
                                         "fire", "wood",  "stone", "glass", "paper", "salt", "bread", "fish",
                                         "bird", "horse", "king",  "ship",  "moon",  "star", "snow",  "rain"};

std::vector<int64_t> Shuffled(int64_t n, Rng& rng) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), int64_t{0});
  for (size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[rng.Next() % i]);
  return out;
}

// The list as ids, a line at a time.
class Facts {
 public:
  Facts(const Tokenizer& tokenizer, uint64_t seed)
      : tokenizer_(tokenizer), rng_(seed), first_(Shuffled(kKeys, rng_)), second_(Shuffled(kKeys, rng_)) {
    Tokenizer::EncodeOptions plain;
    plain.leading_space = false;
    for (const std::string_view word : kAnswers) {
      const std::vector<Token> ids = tokenizer.Encode(" " + std::string(word), plain);
      if (ids.size() != 1 || words_.size() >= kWords) continue;
      if (std::find(words_.begin(), words_.end(), ids[0]) != words_.end()) continue;
      words_.push_back(ids[0]);
      names_.push_back(word);
    }
    newline_ = tokenizer.Encode("\n", plain);
  }

  // "amber falcon" of a line; another one within 4,096 lines differs. The answer follows the key at once:
  // that is what small models can look up.
  std::string Key(int64_t line) const {
    const auto second = static_cast<size_t>(line % kKeys);
    const auto first = static_cast<size_t>((line / kKeys + line * 7) % kKeys);
    return std::string(kFirst[static_cast<size_t>(first_[first])]) + " " +
           std::string(kSecond[static_cast<size_t>(second_[second])]);
  }
  std::vector<Token> KeyIds(int64_t line) const { return Encode(Key(line)); }
  std::vector<Token> Question(int64_t line) const { return Encode("again: " + Key(line)); }
  // A question with its answer, on one of the newest even lines: so the list itself shows what "again" means.
  // Only odd lines are asked about; nothing is asked that was said twice. REQUIRES: three lines at least.
  std::vector<Token> Shown() {
    const auto lines = static_cast<int64_t>(answers_.size());
    const auto choices = static_cast<uint64_t>((std::min(kShownBack, lines) + 1) / 2);
    const int64_t line = (lines - 1) / 2 * 2 - 2 * static_cast<int64_t>(rng_.Next() % choices);
    return WithAnswer(Question(std::max<int64_t>(0, line)), std::max<int64_t>(0, line));
  }
  // The next line's ids; its answer is chosen now.
  std::vector<Token> Next() {
    answers_.push_back(static_cast<size_t>(rng_.Next() % words_.size()));
    const auto line = static_cast<int64_t>(answers_.size()) - 1;
    return WithAnswer(KeyIds(line), line);
  }
  size_t Answer(int64_t line) const { return answers_[static_cast<size_t>(line)]; }
  const std::vector<Token>& words() const { return words_; }
  std::string Example() const { return Key(0) + " " + std::string(names_[Answer(0)]); }

 private:
  std::vector<Token> Encode(const std::string& text) const {
    Tokenizer::EncodeOptions plain;
    plain.leading_space = false;
    return tokenizer_.Encode(text, plain);
  }
  std::vector<Token> WithAnswer(std::vector<Token> ids, int64_t line) const {
    ids.push_back(words_[Answer(line)]);
    ids.insert(ids.end(), newline_.begin(), newline_.end());
    return ids;
  }

  const Tokenizer& tokenizer_;
  Rng rng_;
  std::vector<int64_t> first_, second_;
  std::vector<Token> words_;
  std::vector<std::string_view> names_;
  std::vector<Token> newline_;
  std::vector<size_t> answers_;  // (line): which word
};

// Probabilities of `words` alone, given logits over the vocabulary.
std::vector<double> Shares(std::span<const float> logits, const std::vector<Token>& words) {
  std::vector<double> out;
  double top = -INFINITY;
  for (const Token id : words) top = std::max(top, static_cast<double>(logits[static_cast<size_t>(id)]));
  double sum = 0;
  for (const Token id : words) {
    out.push_back(std::exp(static_cast<double>(logits[static_cast<size_t>(id)]) - top));
    sum += out.back();
  }
  for (double& v : out) v /= sum;
  return out;
}

// Where a line lies in the stream.
struct Line {
  int64_t begin = 0;   // of its first token
  int64_t answer = 0;  // of its answer
};

struct Tally {
  int64_t right = 0;
  int64_t visible = 0;
  double tokens = 0;
  std::vector<double> likelihoods;
};

// The stream, a second one that plays its copy, and what was fed.
class Exam {
 public:
  Exam(std::unique_ptr<Stream> stream, std::unique_ptr<Stream> copy, Facts facts)
      : stream_(std::move(stream)), copy_(std::move(copy)), facts_(std::move(facts)) {}

  Status Begin(const Tokenizer& tokenizer) {
    Tokenizer::EncodeOptions marked;
    marked.add_special = true;
    return stream_->Append(tokenizer.Encode("A list of keys, each with its word.\n", marked));
  }

  Status FeedLine() {
    const std::vector<Token> ids = facts_.Next();
    const int64_t begin = stream_->position();
    lines_.push_back({begin, begin + static_cast<int64_t>(facts_.KeyIds(lines()).size())});
    BALLAST_RETURN_IF_ERROR(stream_->Append(ids));
    return lines() % kShownEvery == 0 ? stream_->Append(facts_.Shown()) : Status();
  }

  // A question on the line `distance` lines back, for each.
  Status Ask(const std::vector<int64_t>& distances, std::vector<Tally>& tallies) {
    const auto bytes = static_cast<size_t>(stream_->cache().row_bytes());
    BALLAST_ASSIGN_OR_RETURN(const Arena rows, Arena::Allocate(std::max<size_t>(1, bytes)));
    stream_->cache().ExportRows(rows.data());
    for (size_t i = 0; i < distances.size(); ++i) {
      const int64_t line = lines() - distances[i];
      BALLAST_RETURN_IF_ERROR(copy_->Import(stream_->state(), rows.data()));
      BALLAST_RETURN_IF_ERROR(copy_->Append(facts_.Question(line)));
      const std::vector<double> shares = Shares(copy_->logits(), facts_.words());
      BALLAST_RETURN_IF_ERROR(CheckFinite("likelihood of an answer", shares.front()));
      const size_t answer = facts_.Answer(line);
      const Line& at = lines_[static_cast<size_t>(line)];
      Tally& tally = tallies[i];
      tally.likelihoods.push_back(shares[answer]);
      tally.right += std::max_element(shares.begin(), shares.end()) - shares.begin() ==
                     static_cast<std::ptrdiff_t>(answer);
      tally.visible += at.begin >= copy_->start() || at.answer < copy_->pinned();
      tally.tokens += static_cast<double>(copy_->position() - 1 - at.answer);
    }
    return Status();
  }

  int64_t lines() const { return static_cast<int64_t>(lines_.size()); }
  const Stream& stream() const { return *stream_; }
  const Facts& facts() const { return facts_; }

 private:
  std::unique_ptr<Stream> stream_, copy_;
  Facts facts_;
  std::vector<Line> lines_;
};

// Of a line with its share of the answered questions.
double MeanLineTokens(const Facts& facts) {
  double sum = 0;
  for (int64_t line = 0; line < kKeys; ++line) {
    constexpr double kRest = 2;  // the answer and the line's end
    sum += static_cast<double>(facts.KeyIds(line).size()) + kRest;
    sum += (static_cast<double>(facts.Question(line).size()) + kRest) / kShownEvery;
  }
  return sum / static_cast<double>(kKeys);
}

StreamEvalPoint Summarise(int64_t distance, const Tally& tally) {
  StreamEvalPoint point;
  const auto n = static_cast<double>(tally.likelihoods.size());
  point.lines = distance;
  point.asked = static_cast<int64_t>(tally.likelihoods.size());
  point.right = tally.right;
  point.tokens = tally.tokens / n;
  point.visible = static_cast<double>(tally.visible) / n;
  point.accuracy = WilsonInterval(tally.right, point.asked);
  for (const double v : tally.likelihoods) point.likelihood += v / n;
  point.likelihood_interval = StudentInterval(tally.likelihoods);
  point.likelihood_interval.low = std::max(point.likelihood_interval.low, 0.0);  // it is a probability
  point.likelihood_interval.high = std::min(point.likelihood_interval.high, 1.0);
  return point;
}

}  // namespace

std::vector<int64_t> DefaultDistances(double lines) {
  std::vector<int64_t> out = {1, 2, 5, 10};
  for (const double share : {0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 2.0}) out.push_back(std::llround(share * lines));
  for (int64_t& d : out) d = std::clamp<int64_t>(d, 1, kMostDistance);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<StreamEvalResult> RunStreamEval(const Model& model, const Tokenizer& tokenizer, ThreadPool& pool,
                                       const StreamEvalOptions& options) {
  Facts facts(tokenizer, options.seed);
  if (facts.words().size() < kFewestWords) {
    return Status::Expected(Code::kModel, "streameval: the vocabulary",
                            "at least 4 of its answers as one token, such as \" red\"",
                            std::to_string(facts.words().size()));
  }
  for (const int64_t d : options.distances) {
    if (d >= 1 && d <= kMostDistance) continue;
    return Status::Expected(Code::kUsage, "--distance", "1 to " + std::to_string(kMostDistance) + " lines",
                            std::to_string(d));
  }
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, Stream::Create(model, pool, options.stream));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Stream> copy, Stream::Create(model, pool, options.stream));
  StreamEvalResult result;
  result.tokens_per_line = MeanLineTokens(facts);
  result.words = static_cast<int64_t>(facts.words().size());
  const int64_t room = stream->context() - stream->pinned();
  std::vector<int64_t> distances = options.distances;
  if (distances.empty()) distances = DefaultDistances(static_cast<double>(room) / result.tokens_per_line);
  for (int64_t& d : distances) d |= 1;  // see Facts::Shown
  std::sort(distances.begin(), distances.end());
  distances.erase(std::unique(distances.begin(), distances.end()), distances.end());
  // The cache is full and the farthest line exists before the first question.
  const auto full = static_cast<int64_t>(static_cast<double>(room) / result.tokens_per_line) + 1;
  const int64_t before = (std::max(distances.back(), full) + 1) / 2 * 2;
  Exam exam(std::move(stream), std::move(copy), std::move(facts));
  std::vector<Tally> tallies(distances.size());
  const int64_t total = before + options.questions * kLinesBetween;
  const auto tell = [&] { return !options.on_progress || options.on_progress(exam.lines(), total); };
  const Status stopped(Code::kInterrupted, "interrupted");
  BALLAST_RETURN_IF_ERROR(exam.Begin(tokenizer));
  while (exam.lines() < total) {
    BALLAST_RETURN_IF_ERROR(exam.FeedLine());
    const int64_t since = exam.lines() - before;
    if (since > 0 && since % kLinesBetween == 0) BALLAST_RETURN_IF_ERROR(exam.Ask(distances, tallies));
    if (!tell()) return stopped;
  }
  result.policy = exam.stream().policy();
  result.context = exam.stream().context();
  result.sinks = exam.stream().pinned();
  result.lines = exam.lines();
  result.tokens = exam.stream().position();
  result.example = exam.facts().Example();
  for (size_t i = 0; i < distances.size(); ++i) {
    result.points.push_back(Summarise(distances[i], tallies[i]));
  }
  return result;
}

}  // namespace ballast
