// What Ballast knows of architectures: which it runs, and what positions they use, so that `inspect` can say
// why a model can or cannot be streamed even when this version cannot run it.
#ifndef BALLAST_MODEL_FAMILIES_H_
#define BALLAST_MODEL_FAMILIES_H_

#include <string>
#include <string_view>

#include "kernels/rope.h"

namespace ballast {

struct Family {
  enum class Positions { kRope, kAlibi, kLearned, kRecurrent, kEncoder, kMla };
  std::string_view architecture;  // as general.architecture spells it
  Positions positions = Positions::kRope;
  bool runs = false;  // a forward pass exists in this version
  RopeForm rope_form = RopeForm::kHalfSplit;
  std::string_view note;  // shown to people, may be empty
};

// Null for an architecture nobody described yet.
const Family* FindFamily(std::string_view architecture);
// "llama, qwen2".
std::string RunnableFamilies();

}  // namespace ballast

#endif  // BALLAST_MODEL_FAMILIES_H_
