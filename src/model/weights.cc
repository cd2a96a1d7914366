#include "model/weights.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "tensor/block_codes.h"
#include "tensor/dequant.h"
#include "tensor/quantize.h"

namespace ballast {
namespace {

std::string ShapeText(const std::vector<int64_t>& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return out + "]";
}

}  // namespace

Result<MatrixView> WeightLoader::View(const std::string& name, int64_t rows, int64_t cols) const {
  const TensorInfo* t = file_.FindTensor(name);
  const std::vector<int64_t> want = {cols, rows};
  if (t == nullptr || t->dims != want) {
    return Status::Expected(Code::kModel, file_.path() + ": tensor " + name, ShapeText(want),
                            t == nullptr ? "no such tensor" : ShapeText(t->dims));
  }
  used_.insert(name);
  return file_.Matrix(*t);
}

// Row by row, so that beside the blocks only some rows are ever floats.
Result<MatrixView> WeightLoader::Quantized(const TensorInfo& tensor, const MatrixView& view,
                                           std::shared_ptr<uint8_t>* owner) const {
  MatrixView out = view;
  out.dtype = *quantize_to_;
  const auto bytes = static_cast<size_t>(out.row_bytes() * out.rows);
  std::shared_ptr<uint8_t> blocks(new uint8_t[bytes + 1], std::default_delete<uint8_t[]>());
  out.data = blocks.get();
  std::atomic<bool> good = true;
  pool_.For(view.rows, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<size_t>(view.cols));
    for (int64_t r = begin; r < end; ++r) {
      Dequantize(view.dtype, view.row(r), view.cols, row.data());
      if (!Quantize(out.dtype, row.data(), view.cols, blocks.get() + r * out.row_bytes())) good = false;
    }
  });
  if (!good) {
    return Status::Expected(Code::kModel, file_.path() + ": tensor " + tensor.name,
                            "finite values below 65504 times the largest code", "others",
                            "load it without --weights");
  }
  *owner = std::move(blocks);
  return out;
}

Result<Weights> WeightLoader::Pack(const TensorInfo& tensor, const MatrixView& view,
                                   std::shared_ptr<uint8_t> owner) {
  MatrixView source = view;
  if (quantize_to_.has_value() && !IsQuantized(view.dtype) &&
      view.cols % Info(*quantize_to_).block_elements == 0) {
    BALLAST_ASSIGN_OR_RETURN(source, Quantized(tensor, view, &owner));
  }
  Weights packed = Weights::Pack(source, compute_, pool_, std::move(owner));
  packed_bytes_ += packed.bytes();
  packed_elements_ += view.rows * view.cols;
  if (compute_ == Compute::kFast || source.data != view.data) file_.DontNeed(tensor);
  return packed;
}

Result<Weights> WeightLoader::Matrix(const std::string& name, int64_t rows, int64_t cols) {
  BALLAST_ASSIGN_OR_RETURN(const MatrixView view, View(name, rows, cols));
  return Pack(*file_.FindTensor(name), view, nullptr);
}

Result<Weights> WeightLoader::Rows(const std::string& name, int64_t total_rows, int64_t cols,
                                   std::span<const int64_t> rows) {
  BALLAST_ASSIGN_OR_RETURN(const MatrixView whole, View(name, total_rows, cols));
  MatrixView part = whole;
  part.rows = static_cast<int64_t>(rows.size());
  const size_t row_bytes = static_cast<size_t>(whole.row_bytes());
  std::shared_ptr<uint8_t> gathered(new uint8_t[row_bytes * rows.size() + 1],
                                    std::default_delete<uint8_t[]>());
  for (size_t i = 0; i < rows.size(); ++i) {
    BALLAST_CHECK(rows[i] >= 0 && rows[i] < total_rows);
    std::memcpy(gathered.get() + i * row_bytes, whole.row(rows[i]), row_bytes);
  }
  part.data = gathered.get();
  return Pack(*file_.FindTensor(name), part, gathered);
}

Result<std::vector<float>> WeightLoader::Floats(const TensorInfo& tensor, int64_t n) const {
  used_.insert(tensor.name);
  std::vector<float> values(static_cast<size_t>(n));
  Dequantize(tensor.dtype, file_.Data(tensor), n, values.data());
  for (float v : values) {
    if (!std::isfinite(v)) {
      return Status::Expected(Code::kModel, file_.path() + ": tensor " + tensor.name, "finite values",
                              "NaN or infinity");
    }
  }
  return values;
}

Result<std::vector<float>> WeightLoader::Vector(const std::string& name, int64_t n) const {
  const TensorInfo* t = file_.FindTensor(name);
  const std::vector<int64_t> want = {n};
  if (t == nullptr || t->dims != want) {
    return Status::Expected(Code::kModel, file_.path() + ": tensor " + name, ShapeText(want),
                            t == nullptr ? "no such tensor" : ShapeText(t->dims));
  }
  return Floats(*t, n);
}

Result<std::vector<float>> WeightLoader::OptionalVector(const std::string& name, int64_t n) const {
  if (!Has(name)) return std::vector<float>();
  return Vector(name, n);
}

Result<std::vector<float>> WeightLoader::OptionalValues(const std::string& name,
                                                        std::span<const int64_t> counts) const {
  const TensorInfo* t = file_.FindTensor(name);
  if (t == nullptr) return std::vector<float>();
  int64_t n = 1;
  for (const int64_t dim : t->dims) n *= dim;
  std::string wanted;
  for (const int64_t count : counts) {
    if (n == count) return Floats(*t, n);
    wanted += (wanted.empty() ? "" : " or ") + std::to_string(count);
  }
  return Status::Expected(Code::kModel, file_.path() + ": tensor " + name, wanted + " values",
                          ShapeText(t->dims));
}

std::string WeightLoader::Unused(std::string_view prefix) const {
  for (const TensorInfo& t : file_.tensors()) {
    if (t.name.compare(0, prefix.size(), prefix) == 0 && used_.find(t.name) == used_.end()) return t.name;
  }
  return "";
}

}  // namespace ballast
