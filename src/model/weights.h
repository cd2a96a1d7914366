// Finding, checking and packing tensors by name: shared by every family.
#ifndef BALLAST_MODEL_WEIGHTS_H_
#define BALLAST_MODEL_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/tensor_file.h"
#include "kernels/matmul.h"

namespace ballast {

class WeightLoader {
 public:
  WeightLoader(const TensorFile& file, Compute compute, ThreadPool& pool)
      : file_(file), compute_(compute), pool_(pool) {}

  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }
  // A matrix of exactly (rows, cols), as stored.
  Result<MatrixView> View(const std::string& name, int64_t rows, int64_t cols) const;
  // The same, packed for MatMul. In fast mode the file's pages are given back afterwards.
  Result<Weights> Matrix(const std::string& name, int64_t rows, int64_t cols);
  // A vector of exactly n values, as floats.
  Result<std::vector<float>> Vector(const std::string& name, int64_t n) const;
  // The same; empty when the file has no such tensor.
  Result<std::vector<float>> OptionalVector(const std::string& name, int64_t n) const;

  int64_t packed_bytes() const { return packed_bytes_; }  // read per pass over everything Matrix() returned
  int64_t packed_elements() const { return packed_elements_; }

 private:
  const TensorFile& file_;
  Compute compute_;
  ThreadPool& pool_;
  int64_t packed_bytes_ = 0;
  int64_t packed_elements_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_MODEL_WEIGHTS_H_
