// The oracle: attention in fp64, straight from the definition. Everything else is judged by it.
// Must not know: tiles, plans, backends, tolerances.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "tessera/attention.hpp"

namespace tessera::conformance {

// One sequence: where its rows lie on the token axis, or in which pages, and which logical positions they have.
struct Sequence {
  std::int64_t index = 0;
  std::int64_t q_begin = 0, q_count = 0;  // begin: packed rows only, else 0
  std::int64_t k_begin = 0, k_count = 0;
  std::int64_t q_offset = 0;            // logical position of the first query
  const std::int32_t* pages = nullptr;  // [..] of the keys, page_size tokens each; null: none
  std::int64_t page_size = 0;
};
std::vector<Sequence> sequences(const Inputs& inputs, const Options& options);

// One row of the output: sequence, query head, local query index.
struct Row {
  std::int64_t b = 0, h = 0, q = 0;
  bool operator==(const Row&) const = default;
};
std::vector<Row> all_rows(const Inputs& inputs, const Options& options);
// At most about `count` rows chosen by `seed`, for sizes that fp64 cannot do whole. First and last sequence, head and
// query, and the queries beside multiples of 16 .. 256, are always candidates.
std::vector<Row> sample_rows(const Inputs& inputs, const Options& options, std::int64_t count, std::uint64_t seed);

// Where things lie, in elements. `token` is local to the sequence.
std::int64_t q_row_offset(const Tensor& tensor, const Sequence& sequence, std::int64_t token, std::int64_t head);
std::int64_t k_row_offset(const Tensor& tensor, const Sequence& sequence, std::int64_t token, std::int64_t head);
std::int64_t lse_offset(const Tensor& lse, const Sequence& sequence, std::int64_t token, std::int64_t head);
double element(const Tensor& tensor, std::int64_t offset);                  // of f32, bf16, f16, i32 or i64
void set_element(const Tensor& tensor, std::int64_t offset, double value);  // rounds to nearest even

inline std::int64_t heads_of(const Tensor& tensor) { return tensor.shape[tensor.rank - 2]; }
inline std::int64_t dim_of(const Tensor& tensor) { return tensor.shape[tensor.rank - 1]; }
float scale_of(const Inputs& inputs, const Options& options);
// The head's sink, -inf where there is none.
double sink_of(const Inputs& inputs, std::int64_t head);

class Evaluated;  // mods.hpp
// Which keys a row attends to, by the mask's interpreter. Remembers them, up to a limit.
class Attended {
 public:
  Attended(const Inputs& inputs, const Options& options);
  ~Attended();
  const std::vector<std::int64_t>& keys(const Sequence& sequence, std::int64_t head, std::int64_t query);

 private:
  std::unique_ptr<Evaluated> mask_;
  bool names_head_ = false;
  std::map<std::array<std::int64_t, 3>, std::vector<std::int64_t>> rows_;  // by sequence, head (if named), query
  std::int64_t remembered_ = 0;
};

// Values of the rows asked for, in their order.
struct Exact {
  std::int64_t dim_v = 0;
  std::vector<double> o;       // [rows, dim_v]
  std::vector<double> sum_pv;  // [rows, dim_v] sum of p |v|, normalised
  std::vector<double> lse_ln;  // [rows]
  // [rows] how the weight of the keys follows from the size of their scores: 1; beside a sink, max(1, |LSE without
  // it|).
  std::vector<double> size;
  // [rows] how much an error of the scores shows: the size of their terms, where more than one key counts.
  std::vector<double> sensitivity;
};
Exact attend_exactly(const Inputs& inputs, const Options& options, std::span<const Row> rows,
                     Attended* attended = nullptr);

}  // namespace tessera::conformance
