// A shape with data: random tensors of its type, and views of them.
#pragma once
#include "cli/memory.hpp"
#include "cli/shape_flags.hpp"

namespace tessera::cli {

// Normal-looking values of about unit variance, none of them denormal.
void fill_random(const Tensor& tensor, std::uint64_t seed);

class Scene {
 public:
  // Throws Error when the shape makes no sense, Misuse when it does not fit into memory.
  explicit Scene(const Shape& shape);
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  const Shape& shape() const { return shape_; }
  const Inputs& inputs() const { return inputs_; }
  Outputs outputs() const { return {o_, {}}; }
  std::size_t bytes() const { return q_.bytes() + k_.bytes() + v_.bytes() + o_memory_.bytes(); }
  // A second output of the same shape, for a comparison; uninitialised.
  Outputs outputs_in(const Block& memory) const;
  std::size_t output_bytes() const { return o_memory_.bytes(); }

 private:
  Shape shape_;
  Prefix prefix_;
  Block q_, k_, v_, o_memory_;
  Inputs inputs_;
  Tensor o_;
};

// Largest difference between two outputs of one shape, in the rows that belong to a sequence.
double largest_difference(const Tensor& a, const Tensor& b);

}  // namespace tessera::cli
