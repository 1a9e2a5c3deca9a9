// Attention in fp32 without tiles or tricks, as a subject: what the suite must accept, and, with one mistake planted,
// what it must refuse. It tests the suite, not the library.
#pragma once
#include <span>

#include "subject.hpp"

namespace tessera::conformance {

enum class Mistake : int {
  none,
  mask_off_by_one,  // one key too many on the causal side
  mask_multiplied,  // masked keys get probability 0 and are multiplied
  no_scale,
  scale_in_rounded_q,  // the scale folded into q, rounded to the input type
  sinks_ignored,
  lse_base_2,
  lse_of_rounded_sum,  // LSE from the sum of rounded probabilities
  wrong_group_head,    // heads_kv taken cyclically
  offset_ignored,
  last_key_dropped,
  empty_row_is_nan,
  no_maximum,  // exp without subtracting the maximum
  coarse_exp,  // exp with a relative error of 2^-9
  unwritten_last_row,
  writes_past_the_rows,
  threads_change_bits,
  batch_changes_bits,  // even where batch_invariant is asked for
};
std::span<const Mistake> mistakes();  // all but none
const char* name(Mistake mistake);
Subject plain(Mistake mistake = Mistake::none);

}  // namespace tessera::conformance
