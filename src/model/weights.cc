#include "model/weights.h"

#include <cmath>
#include <utility>

#include "tensor/dequant.h"

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
  return file_.Matrix(*t);
}

Result<Weights> WeightLoader::Matrix(const std::string& name, int64_t rows, int64_t cols) {
  BALLAST_ASSIGN_OR_RETURN(const MatrixView view, View(name, rows, cols));
  Weights packed = Weights::Pack(view, compute_, pool_);
  packed_bytes_ += packed.bytes();
  packed_elements_ += rows * cols;
  if (compute_ == Compute::kFast) {
    const TensorInfo* t = file_.FindTensor(name);
    file_.file().DontNeed(t->offset, t->bytes);
  }
  return packed;
}

Result<std::vector<float>> WeightLoader::Vector(const std::string& name, int64_t n) const {
  const TensorInfo* t = file_.FindTensor(name);
  const std::vector<int64_t> want = {n};
  if (t == nullptr || t->dims != want) {
    return Status::Expected(Code::kModel, file_.path() + ": tensor " + name, ShapeText(want),
                            t == nullptr ? "no such tensor" : ShapeText(t->dims));
  }
  std::vector<float> values(static_cast<size_t>(n));
  Dequantize(t->dtype, file_.Data(*t), n, values.data());
  for (float v : values) {
    if (!std::isfinite(v)) {
      return Status::Expected(Code::kModel, file_.path() + ": tensor " + name, "finite values",
                              "NaN or infinity");
    }
  }
  return values;
}

Result<std::vector<float>> WeightLoader::OptionalVector(const std::string& name, int64_t n) const {
  if (!Has(name)) return std::vector<float>();
  return Vector(name, n);
}

}  // namespace ballast
