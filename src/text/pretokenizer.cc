#include "text/pretokenizer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "text/regex.h"
#include "text/tokenizer.h"
#include "text/tokenizer_base.h"
#include "text/utf8_scan.h"

namespace ballast {
namespace {

// The expressions, as the families publish them (tokenizer.json of each). A rule applies its expressions one
// after another, each within the cuts of those before; what an expression does not match is a word as well.
// \s is Unicode White_Space (see Expand), as in the engines the vocabularies were trained with.
constexpr char kGpt2[] = R"('(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kOneDigit[] = R"(\p{N})";
constexpr char kThreeDigits[] = R"(\p{N}{1,3})";
constexpr char kThreeAsciiDigits[] = R"([0-9]{3})";
constexpr char kDigits[] = R"(\p{N}+)";
constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen35[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kO200k[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kTekken[] = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                           R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                           R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kCjk[] = R"([一-龥\x{3040}-ゟ゠-ヿ]+)";
constexpr char kDeepSeek3[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kLineBreak[] = R"([\r\n])";
constexpr char kSpaceLetters[] = R"(\s?\p{L}+)";
constexpr char kSpacePunctuation[] = R"(\s?\p{P}+)";
constexpr char kEastAsian[] = R"([一-龥ࠀ-一가-\x{D7FF}]+)";
constexpr char kFalconPunctuation[] = R"([\p{P}$+<=>^~|`]+)";
constexpr char kDefaultPunctuation[] = R"([\p{P}$+<=>^~|]+)";
constexpr char kBloom[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)";

struct Rule {
  std::vector<const char*> names;
  std::vector<const char*> expressions;
  bool whole_words_first = false;
  bool implies_bos = false;
};

const std::vector<Rule>& Rules() {
  static const std::vector<Rule>* const kRules = new std::vector<Rule>{
      {{"default"}, {kDefaultPunctuation, kGpt2, kDigits, kThreeAsciiDigits}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion", "granite-docling", "mellum",
        "gigachat", "a.x-4.0", "modern-bert", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de",
        "jina-v2-code", "roberta-bpe"},
       {kGpt2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {kOneDigit, kGpt2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {kLlama3},
       true,
       true},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {kLlama3}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "solar-open", "kormo"},
       {kQwen2}},
      {{"qwen35"}, {kQwen35}},
      {{"gpt-4o", "llama4", "kanana2", "minimax-m2"}, {kO200k}},
      {{"tekken"}, {kTekken}, true, true},
      {{"deepseek-v3", "hunyuan-dense"}, {kThreeDigits, kCjk, kDeepSeek3}},
      {{"deepseek-coder"}, {kLineBreak, kSpaceLetters, kSpacePunctuation, kEastAsian, kOneDigit}},
      {{"falcon"}, {kFalconPunctuation, kGpt2, kThreeAsciiDigits}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, kOneDigit}},
  };
  return *kRules;
}

const Rule* FindRule(std::string_view name) {
  for (const Rule& rule : Rules()) {
    for (const char* known : rule.names) {
      if (name == known) return &rule;
    }
  }
  return nullptr;
}

// Spells \s and \S out: PCRE2's own \s also takes U+180E, which lost White_Space in Unicode 6.3.
std::string Expand(std::string_view expression) {
  constexpr std::string_view kSpaces = R"(\p{Z}\x09-\x0D\x{85})";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c != '\\') {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    const char escaped = expression[++i];
    if (escaped == 's' || escaped == 'S') {
      if (!in_class) out += escaped == 's' ? "[" : "[^";
      out += kSpaces;
      if (!in_class) out += ']';
    } else {
      out += c;
      out += escaped;
    }
  }
  return out;
}

class RegexPreTokenizer : public PreTokenizer {
 public:
  Status Init(const Rule& rule) {
    whole_words_first_ = rule.whole_words_first;
    for (const char* expression : rule.expressions) {
      BALLAST_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(Expand(expression)));
      expressions_.push_back(std::move(regex));
    }
    return Status();
  }

  bool whole_words_first() const override { return whole_words_first_; }

  void Split(std::string_view text, std::vector<size_t>* ends) const override {
    if (text.empty()) return;
    RegexMatcher matcher;
    std::vector<TextSpan> words, scratch;
    size_t at = 0;
    while (at < text.size()) {
      const size_t begin = at;
      size_t step = Utf8CharBytes(text, at);
      const bool valid = step > 0;
      while (at < text.size() && (step > 0) == valid) {
        at += valid ? step : 1;
        if (at < text.size()) step = Utf8CharBytes(text, at);
      }
      if (!valid) {
        ends->push_back(at);
        continue;
      }
      words.assign(1, TextSpan{0, at - begin});
      for (const Regex& regex : expressions_) {
        scratch.clear();
        for (const TextSpan& word : words) {
          Cut(regex, text.substr(begin + word.begin, word.end - word.begin), word.begin, &matcher, &scratch);
        }
        words.swap(scratch);
      }
      for (const TextSpan& word : words) ends->push_back(begin + word.end);
    }
  }

 private:
  // Cuts one word (UTF-8) into the matches of `regex` and what lies between them. `base` is added to the
  // offsets.
  static void Cut(const Regex& regex, std::string_view word, size_t base, RegexMatcher* matcher,
                  std::vector<TextSpan>* out) {
    size_t at = 0;
    while (at < word.size()) {
      TextSpan match;
      switch (matcher->Find(regex, word, at, &match)) {
        case RegexMatcher::Found::kMatch:
          break;
        case RegexMatcher::Found::kEmpty:
        case RegexMatcher::Found::kNothing:
          match = {word.size(), word.size()};
          break;
        case RegexMatcher::Found::kGaveUp:
          match = {at, at + std::max<size_t>(Utf8CharBytes(word, at), 1)};
          break;
      }
      if (match.begin > at) out->push_back({base + at, base + match.begin});
      if (match.end > match.begin) out->push_back({base + match.begin, base + match.end});
      at = match.end;
    }
  }

  std::vector<Regex> expressions_;
  bool whole_words_first_ = false;
};

}  // namespace

Result<std::unique_ptr<const PreTokenizer>> PreTokenizer::Create(std::string_view name) {
  const Rule* rule = FindRule(name);
  if (rule == nullptr) {
    std::string known = "one of";
    for (const std::string& each : KnownPreTokenizers()) known.append(" ").append(each);
    return Status::Expected(Code::kModel, "pre-tokenizer (tokenizer.ggml.pre)", known, QuoteForMessage(name));
  }
  auto made = std::make_unique<RegexPreTokenizer>();
  BALLAST_RETURN_IF_ERROR(made->Init(*rule));
  return std::unique_ptr<const PreTokenizer>(std::move(made));
}

std::vector<std::string> KnownPreTokenizers() {
  std::vector<std::string> names;
  for (const Rule& rule : Rules()) names.insert(names.end(), rule.names.begin(), rule.names.end());
  return names;
}

bool PreTokenizerImpliesBos(std::string_view pre) {
  const Rule* rule = FindRule(pre);
  return rule != nullptr && rule->implies_bos;
}

}  // namespace ballast
