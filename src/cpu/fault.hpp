// Planted faults: typical mistakes that a test build switches on, one at a time, to prove that the suite sees them.
// In every other build a fault is the constant false and leaves no trace.
#pragma once

#define TESSERA_FAULTS(X)                                                                \
  X(mask_off_by_one)      /* the band's upper end one key too far */                     \
  X(mask_skipped)         /* boundary tiles are not masked at all */                     \
  X(rescale_missing)      /* O is not rescaled when the maximum grows */                 \
  X(stale_sum)            /* the sum is not rescaled when the maximum grows */           \
  X(lse_base_2)           /* LSE without the factor ln 2 */                              \
  X(scale_missing)        /* scores are not scaled */                                    \
  X(wrong_group_head)     /* query heads are spread over the key heads cyclically */     \
  X(band_begin_ignored)   /* the band's lower end does not mask */                       \
  X(last_block_dropped)   /* keys past the last whole block are ignored */               \
  X(last_split_dropped)   /* the merge forgets the last partial result */                \
  X(merge_unscaled)       /* partial results are added without their references */       \
  X(redo_skipped)         /* non-finite rows are not redone on the selecting path */     \
  X(empty_row_divided)    /* a row that attends to nothing is normalised all the same */ \
  X(offset_ignored)       /* the logical position of the first query is taken as 0 */    \
  X(packed_start_ignored) /* every packed sequence reads the keys of the first one */    \
  X(first_page_repeated)  /* every page of a sequence is its first one */                \
  X(page_place_ignored)   /* reading starts with a page's first row, always */           \
  X(lengths_ignored)      /* a sequence has all the keys of its last page, or cache */   \
  X(length_not_in_offset) /* the last query stands on the last key there is room for */  \
  X(last_dim_dropped)     /* the last column of V is not accumulated */                  \
  X(sink_of_first_head)   /* every head of an item takes the sink of the first */        \
  X(sink_not_rescaled)    /* a sink above the maximum does not become the reference */

namespace tessera::cpu {

enum class Fault : int {
#define TESSERA_FAULT_ENUM(name) name,
  TESSERA_FAULTS(TESSERA_FAULT_ENUM)
#undef TESSERA_FAULT_ENUM
};

#ifdef TESSERA_PLANT_FAULTS
extern int planted;  // index of the active fault; -1: none
#define TESSERA_FAULT(name) (::tessera::cpu::planted == static_cast<int>(::tessera::cpu::Fault::name))
#else
#define TESSERA_FAULT(name) false
#endif

}  // namespace tessera::cpu
