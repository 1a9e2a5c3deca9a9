// Tensors for the names in masks and score changes, from --bind: out of a file, or made up for a measurement.
// Must not know: shapes, what reads them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tessera/tensor.hpp"

namespace tessera::cli {

struct BoundTensor {
  std::string name, what;  // as typed: NAME=WHAT
  Tensor tensor;
  std::shared_ptr<const void> memory;  // that the tensor looks at
};

// Each text: NAME=WHAT. WHAT is FILE.npy, FILE.safetensors (the tensor of that name), FILE.safetensors:TENSOR, or
// made-up data, the same in every run: random:8,1024 (normal reals of that shape), documents:TOKENS,COUNT (sorted ids
// of COUNT documents of random lengths), offsets:TOKENS,COUNT (where each begins, and TOKENS), lengths:B,MAX (B numbers
// from 1 to MAX). Throws Misuse for a text that says nothing of this, Error for a file that cannot be read and a name
// that is none.
std::shared_ptr<const std::vector<BoundTensor>> bound_tensors(const std::vector<std::string>& texts);

}  // namespace tessera::cli
