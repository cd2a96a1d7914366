#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "text/tokenizer_base.h"
#include "text/utf8_scan.h"

namespace ballast {
namespace {

constexpr size_t kStackStart = 32 << 10;
constexpr size_t kStackMax = 1 << 20;
constexpr int kMaxGiveUps = 64;

struct FreeContext {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<Regex> Regex::Compile(std::string_view pattern) {
  const std::unique_ptr<pcre2_compile_context, FreeContext> context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE at = 0;
  Regex out;
  out.code_.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                    &error, &at, context.get()));
  if (out.code_ == nullptr) {
    return Status::Expected(Code::kModel, "regular expression " + QuoteForMessage(pattern),
                            "one that PCRE2 compiles",
                            "error " + std::to_string(error) + " at " + std::to_string(at));
  }
  // Where JIT is not to be had (a hardened kernel), the interpreter gives the same matches.
  pcre2_jit_compile(out.code_.get(), PCRE2_JIT_COMPLETE);
  return out;
}

Result<Regex> Regex::FromOniguruma(std::string_view pattern) {
  BALLAST_ASSIGN_OR_RETURN(const std::string translated, TranslateOniguruma(pattern));
  return Compile(translated);
}

RegexMatcher::RegexMatcher()
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kStackStart, kStackMax, nullptr)) {
  if (data_ == nullptr || context_ == nullptr || stack_ == nullptr) throw std::bad_alloc();
  pcre2_jit_stack_assign(context_, nullptr, stack_);
}

RegexMatcher::~RegexMatcher() {
  pcre2_jit_stack_free(stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(data_);
}

int RegexMatcher::Run(const Regex& regex, std::string_view text, size_t from, uint32_t options) {
  return pcre2_match(regex.code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options,
                     data_, context_);
}

RegexMatcher::Found RegexMatcher::Find(const Regex& regex, std::string_view text, size_t from,
                                       TextSpan* match) {
  // Each expression visits a byte a handful of times; more means a pattern gone quadratic.
  const uint64_t limit = 1000 + 64 * static_cast<uint64_t>(text.size());
  pcre2_set_match_limit(context_, static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  int count = Run(regex, text, from, PCRE2_NO_UTF_CHECK);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = Run(regex, text, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  if (count == PCRE2_ERROR_NOMATCH) return Found::kNothing;
  if (count < 0) return Found::kGaveUp;
  const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(data_);
  *match = {ovector[0], ovector[1]};
  return match->end > match->begin ? Found::kMatch : Found::kEmpty;
}

void RegexMatcher::FindAll(const Regex& regex, std::string_view text, std::vector<TextSpan>* matches) {
  int gave_up = 0;
  for (size_t at = 0; at < text.size();) {
    TextSpan match;
    const Found found = Find(regex, text, at, &match);
    if (found == Found::kMatch) {
      matches->push_back(match);
      at = match.end;
    } else if (found == Found::kGaveUp) {
      if (++gave_up > kMaxGiveUps) return;
      at += std::max<size_t>(Utf8CharBytes(text, at), 1);
    } else if (found == Found::kEmpty && match.end < text.size()) {
      at = match.end + std::max<size_t>(Utf8CharBytes(text, match.end), 1);
    } else {
      return;
    }
  }
}

}  // namespace ballast
