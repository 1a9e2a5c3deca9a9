// What the baseline does beside the two products, for one instruction set each: softmax rows and conversions.
// No inline function may stand here: see ceilings_table.hpp.
#pragma once
#include <stdint.h>

namespace tessera::cli {

struct KeyRange {
  int64_t begin, end;
};

struct StandardRows {
  const char* isa;
  // scores [keys] of one row, in units of log2: becomes exp2(s - max) within the ranges, 0 outside, and returns the
  // sum; 0 if no key is attended to.
  float (*softmax)(float* scores, int64_t keys, const KeyRange* ranges, int range_count);
  void (*scale)(float* values, int64_t count, float factor);
  // dtype: 0 f32, 1 bf16, 2 f16. Both stay within [count].
  void (*widen)(const void* from, int dtype, float* to, int64_t count);
  void (*narrow)(const float* from, int dtype, void* to, int64_t count);
};

extern const StandardRows standard_rows_scalar, standard_rows_avx2, standard_rows_avx512;

}  // namespace tessera::cli
