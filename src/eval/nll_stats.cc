#include "eval/nll_stats.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace ballast {
namespace {

using nlohmann::json;

// Neighbours added up: half as many sums, each of twice the width.
void Halve(std::vector<double>& sums) {
  std::vector<double> merged((sums.size() + 1) / 2);
  for (size_t i = 0; i < sums.size(); ++i) merged[i / 2] += sums[i];
  sums = std::move(merged);
}

bool IsPower(int64_t n, int64_t first) {  // first times a power of two
  while (n > first && n % 2 == 0) n /= 2;
  return n == first;
}

// How many bins of `width` hold `values` of them.
size_t Needed(int64_t values, int64_t width) { return static_cast<size_t>((values + width - 1) / width); }

}  // namespace

void TailSums::Add(double nll) {
  sum += nll;
  if (static_cast<size_t>(count / width) >= kMaxBatches) {
    Halve(batches);
    width *= 2;
  }
  const auto batch = static_cast<size_t>(count / width);
  if (batch >= batches.size()) batches.resize(batch + 1);
  batches[batch] += nll;
  ++count;
}

double TailSums::perplexity() const { return count > 0 ? std::exp(sum / static_cast<double>(count)) : 0; }

Status CheckFinite(std::string_view what, double value) {
  if (std::isfinite(value)) return Status();
  return Status::Expected(Code::kModel, what, "a number", "none, since the model's output is not finite",
                          "its file may be damaged; --compute f32 tells whether it is the short arithmetic");
}

void NllStats::Bins::Add(int64_t position, double nll) {
  const auto bin = static_cast<size_t>(position / width);
  if (bin >= sums.size()) sums.resize(bin + 1);
  sums[bin] += nll;
}

std::vector<PerplexityBlock> NllStats::Bins::Means(int64_t end) const {
  std::vector<PerplexityBlock> out;
  for (size_t i = 0; i < sums.size(); ++i) {
    const int64_t from = static_cast<int64_t>(i) * width;
    const int64_t to = std::min(from + width, end);
    const int64_t values = to - std::max<int64_t>(from, 1);
    PerplexityBlock block;
    block.from = from;
    block.to = to;
    block.perplexity = std::exp(sums[i] / static_cast<double>(values));
    out.push_back(block);
  }
  return out;
}

NllStats::NllStats(const std::vector<int64_t>& tails, int64_t block) : blocks_{block, {}} {
  for (const int64_t from : tails) {
    tails_.emplace_back();
    tails_.back().from = from;
  }
}

void NllStats::Add(double nll) {
  const int64_t position = count_ + 1;  // of the predicted token
  sum_ += nll;
  for (TailSums& tail : tails_) {
    if (count_ >= tail.from) tail.Add(nll);
  }
  ++count_;
  blocks_.Add(position, nll);
  if (static_cast<size_t>(position / curve_.width) >= kMaxBins) {
    Halve(curve_.sums);
    curve_.width *= 2;
  }
  curve_.Add(position, nll);
}

std::vector<PerplexityBlock> NllStats::Blocks() const { return blocks_.Means(count_ + 1); }
std::vector<PerplexityBlock> NllStats::Curve() const { return curve_.Means(count_ + 1); }

json NllStats::ToJson() const {
  json tails = json::array();
  for (const TailSums& t : tails_) {
    tails.push_back(
        {{"from", t.from}, {"count", t.count}, {"sum", t.sum}, {"width", t.width}, {"batches", t.batches}});
  }
  return {{"count", count_},
          {"sum", sum_},
          {"tails", std::move(tails)},
          {"blocks", {{"width", blocks_.width}, {"sums", blocks_.sums}}},
          {"curve", {{"width", curve_.width}, {"sums", curve_.sums}}}};
}

Status NllStats::FromJson(const json& in) {
  const Status bad = Status::Expected(Code::kInput, "checkpoint: sums", "those of this evaluation", "others");
  NllStats read({}, blocks_.width);
  try {
    read.count_ = in.at("count").get<int64_t>();
    read.sum_ = in.at("sum").get<double>();
    for (const json& t : in.at("tails")) {
      TailSums tail;
      tail.from = t.at("from").get<int64_t>();
      tail.count = t.at("count").get<int64_t>();
      tail.sum = t.at("sum").get<double>();
      tail.width = t.at("width").get<int64_t>();
      tail.batches = t.at("batches").get<std::vector<double>>();
      read.tails_.push_back(std::move(tail));
    }
    const auto bins = [&](const char* name, Bins& out) {
      out.width = in.at(name).at("width").get<int64_t>();
      out.sums = in.at(name).at("sums").get<std::vector<double>>();
    };
    bins("blocks", read.blocks_);
    bins("curve", read.curve_);
  } catch (const json::exception&) {
    return bad;
  }
  constexpr int64_t kMost = int64_t{1} << 60;
  if (read.count_ < 0 || read.count_ > kMost || read.blocks_.width != blocks_.width ||
      read.tails_.size() != tails_.size()) {
    return bad;
  }
  if (!IsPower(read.curve_.width, kFirstBin)) return bad;
  const int64_t end = read.count_ > 0 ? read.count_ + 1 : 0;  // positions, the unpredicted first included
  if (read.blocks_.sums.size() != Needed(end, read.blocks_.width) ||
      read.curve_.sums.size() != Needed(end, read.curve_.width) || read.curve_.sums.size() > kMaxBins) {
    return bad;
  }
  for (size_t i = 0; i < tails_.size(); ++i) {
    const TailSums& t = read.tails_[i];
    const bool fits = t.from == tails_[i].from && t.count == std::max<int64_t>(0, read.count_ - t.from) &&
                      IsPower(t.width, TailSums::kFirstWidth) &&
                      t.batches.size() == Needed(t.count, t.width) &&
                      t.batches.size() <= TailSums::kMaxBatches;
    if (!fits) return bad;
  }
  *this = std::move(read);
  return Status();
}

}  // namespace ballast
