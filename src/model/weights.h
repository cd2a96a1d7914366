// Finding, checking and packing tensors by name: shared by every family.
#ifndef BALLAST_MODEL_WEIGHTS_H_
#define BALLAST_MODEL_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/tensor_file.h"
#include "kernels/matmul.h"

namespace ballast {

class WeightLoader {
 public:
  WeightLoader(const TensorFile& file, Compute compute, ThreadPool& pool)
      : file_(file), compute_(compute), pool_(pool) {}

  // From now on matrices stored as floats become blocks of this type when they are packed, where their
  // columns allow it. REQUIRES: CanQuantizeTo(type).
  void QuantizeTo(std::optional<DType> type) { quantize_to_ = type; }

  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }
  // A matrix of exactly (rows, cols), as stored.
  Result<MatrixView> View(const std::string& name, int64_t rows, int64_t cols) const;
  // The same, packed for MatMul. In fast mode the file's pages are given back afterwards.
  Result<Weights> Matrix(const std::string& name, int64_t rows, int64_t cols);
  // Some rows of a matrix of (total_rows, cols) that holds several, in the order given.
  Result<Weights> Rows(const std::string& name, int64_t total_rows, int64_t cols,
                       std::span<const int64_t> rows);
  // A vector of exactly n values, as floats.
  Result<std::vector<float>> Vector(const std::string& name, int64_t n) const;
  // The same; empty when the file has no such tensor.
  Result<std::vector<float>> OptionalVector(const std::string& name, int64_t n) const;

  // As OptionalVector, of any shape whose elements are one of `counts`.
  Result<std::vector<float>> OptionalValues(const std::string& name, std::span<const int64_t> counts) const;

  // The first tensor that begins with `prefix` and was not asked for; "" when there is none.
  std::string Unused(std::string_view prefix) const;

  int64_t packed_bytes() const { return packed_bytes_; }  // read per pass over everything Matrix() returned
  int64_t packed_elements() const { return packed_elements_; }

 private:
  const TensorFile& file_;
  Compute compute_;
  ThreadPool& pool_;
  std::optional<DType> quantize_to_;
  Result<Weights> Pack(const TensorInfo& tensor, const MatrixView& view, std::shared_ptr<uint8_t> owner);
  Result<MatrixView> Quantized(const TensorInfo& tensor, const MatrixView& view,
                               std::shared_ptr<uint8_t>* owner) const;
  Result<std::vector<float>> Floats(const TensorInfo& tensor, int64_t n) const;
  mutable std::set<std::string, std::less<>> used_;
  int64_t packed_bytes_ = 0;
  int64_t packed_elements_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_MODEL_WEIGHTS_H_
