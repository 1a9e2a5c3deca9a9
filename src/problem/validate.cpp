// The one place where arguments are refused. Cheap when all is well; the words are made only for a failure.
// Must not know: devices' abilities, tile sizes, backends.
#include "problem/validate.hpp"

#include <cmath>

#include "problem/bindings.hpp"
#include "problem/fail.hpp"
#include "problem/indices.hpp"
#include "problem/view.hpp"

namespace tessera::problem {
namespace {

void check_sinks(View& sinks, const View& q, std::int64_t heads) {
  check_float(sinks);
  if (sinks->rank != 1 || sinks.extent(0) != heads)
    fail(Code::invalid_shape, sinks.name, " is ", *sinks, ": it holds one logit for each head of q, here [", heads,
         "]");
  check_device(sinks, q);
  check_memory(sinks);
}

void check_errors(View& errors, const View& q) {
  if (errors->dtype != DType::i32) fail(Code::invalid_dtype, errors.name, " is ", errors->dtype, ": it is one i32");
  if (errors->rank < 0 || errors->rank > 1 || (errors->rank == 1 && errors.extent(0) != 1))
    fail(Code::invalid_shape, errors.name, " is ", *errors, ": it is one i32, of rank 0 or [1]");
  check_device(errors, q), check_memory(errors), check_writable(errors);
}

// Which of the tensors that say where a sequence begins and ends are given together.
void check_packing(bool cu_q, bool cu_k, bool lengths, bool table) {
  if (table && !lengths)
    fail(Code::invalid_pages, "pages.block_table is given, pages.lengths is not: lengths, [batch], say how many keys ",
         "of its pages each sequence has");
  if (cu_k && lengths)
    fail(Code::invalid_packing, "packed.cu_k and pages.lengths are both given: lengths take the place of cu_k");
  if (cu_q != cu_k && !lengths)
    fail(Code::invalid_packing,
         cu_q ? "packed.cu_q is given, packed.cu_k is not" : "packed.cu_k is given, packed.cu_q is not",
         ": a packed call needs both, or pages.lengths instead of cu_k, a dense call neither");
}

void check_cache_rank(const View& view) {
  if (view->rank != 4)
    fail(Code::invalid_shape, view.name, " has rank ", view->rank, " (", *view, "), and the call has ",
         view.axes == page_axes ? "a block table: it is of rank 4, [pages, page size, heads, dim]"
                                : "lengths: it is of rank 4, [batch, tokens, heads, dim]");
}

// Returns the most keys that a sequence can have.
std::int64_t check_table(View& table, const View& q, const Facts& facts) {
  if (table->dtype != DType::i32) fail(Code::invalid_dtype, table.name, " is ", table->dtype, ": page numbers are i32");
  if (table->rank != 2 || table.extent(0) != facts.batch)
    fail(Code::invalid_shape, table.name, " is ", *table, ": it holds the pages of each sequence, here [", facts.batch,
         ", width]");
  check_extents(table, 0), check_place(table, q), check_last_stride(table), check_memory(table);
  std::int64_t tokens = 0;
  if (__builtin_mul_overflow(table.extent(1), facts.page_size, &tokens))
    fail(Code::size_overflow, table.name, " is ", *table, ", a page has ", facts.page_size,
         " tokens: the tokens of a sequence pass 2^63 - 1");
  return tokens;
}

}  // namespace

Facts examine(const Inputs& inputs, const Outputs* outputs) {
  require_given("q", inputs.q), require_given("k", inputs.k), require_given("v", inputs.v);
  const bool has_cu_q = is_given("packed.cu_q", inputs.packed.cu_q);
  const bool has_cu_k = is_given("packed.cu_k", inputs.packed.cu_k);
  View table{"pages.block_table", &inputs.pages.block_table, table_axes};
  View lengths{"pages.lengths", &inputs.pages.lengths, list_axes};
  const bool has_lengths = is_given(lengths.name, *lengths), paged = is_given(table.name, *table);
  check_packing(has_cu_q, has_cu_k, has_lengths, paged);
  const bool packed = has_cu_q, packed_keys = packed && !has_lengths;
  const char* const* axes = packed ? packed_axes : dense_axes;
  const char* const* key_axes = paged ? page_axes : packed_keys ? packed_axes : dense_axes;
  View q{"q", &inputs.q, axes}, k{"k", &inputs.k, key_axes}, v{"v", &inputs.v, key_axes};

  // Each alone, then types, then shapes, then memory: the first message is the one that helps.
  const int tokens = packed ? 0 : 1, heads = tokens + 1, dim = tokens + 2;
  const int k_tokens = packed_keys ? 0 : 1, k_heads = k_tokens + 1, k_dim = k_tokens + 2;
  const unsigned at_least_1 = 1u << heads | 1u << dim;
  const unsigned k_at_least_1 = 1u << k_heads | 1u << k_dim | (paged ? 1u << k_tokens : 0u);
  check_rank(q, packed), check_extents(q, at_least_1);
  for (const View* view : {&k, &v}) {
    if (has_lengths) check_cache_rank(*view);
    else check_rank(*view, packed);
    check_extents(*view, k_at_least_1);
  }
  check_float(q);
  for (const View* view : {&k, &v})
    if ((*view)->dtype != q->dtype)
      fail(Code::invalid_dtype, view->name, " is ", (*view)->dtype, ", q is ", q->dtype,
           ": q, k and v are of one type");
  if (paged) {
    check_equal(v, 0, k, 0, "a page of keys has its page of values");
  } else if (!packed) {
    check_equal(k, 0, q, 0, "they must be equal"), check_equal(v, 0, q, 0, "they must be equal");
  } else if (has_lengths) {
    check_equal(v, 0, k, 0, "they must be equal");
  }
  check_equal(v, k_tokens, k, k_tokens, "each key has one value");
  check_equal(v, k_heads, k, k_heads, "k and v have the same heads");
  check_equal(k, k_dim, q, dim, "queries and keys are of one dim (only v's may differ)");
  if (q.extent(heads) % k.extent(k_heads) != 0)
    fail(Code::invalid_shape, "q has ", q.extent(heads), " heads, k has ", k.extent(k_heads),
         ": q heads must be a multiple of k heads");
  check_device(k, q), check_device(v, q);
  for (View* view : {&q, &k, &v}) check_last_stride(*view), check_memory(*view);

  Facts facts;
  facts.dtype = facts.out_dtype = q->dtype, facts.device = q->device;
  facts.packed = packed, facts.lengths = has_lengths, facts.paged = paged;
  facts.heads_q = q.extent(heads), facts.heads_kv = k.extent(k_heads);
  facts.tokens_q = q.extent(tokens), facts.tokens_kv = k.extent(k_tokens);
  facts.dim = q.extent(dim), facts.dim_v = v.extent(k_dim);

  View cu_q{"packed.cu_q", &inputs.packed.cu_q, list_axes}, cu_k{"packed.cu_k", &inputs.packed.cu_k, list_axes};
  View offset{"q_offset", &inputs.q_offset, list_axes};
  if (packed) {
    const std::int64_t count = cu_q->rank == 1 ? cu_q.extent(0) : 1;
    if (count < 1)
      fail(Code::invalid_shape, cu_q.name, " is ", *cu_q, ": prefix sums are [batch + 1], at least one element");
    check_integers(cu_q, count, q, "prefix sums are [batch + 1]");
    if (packed_keys)
      check_integers(cu_k, count, q, "prefix sums are [batch + 1], as many for the keys as for the queries");
    facts.batch = count - 1;
  } else {
    facts.batch = q.extent(0);
  }
  if (has_lengths) {
    check_integers(lengths, facts.batch, q, "it holds the number of keys of each sequence, [batch]");
    if (paged) facts.page_size = facts.tokens_kv, facts.tokens_kv = check_table(table, q, facts);
    else if (k.extent(0) != facts.batch)
      fail(Code::invalid_shape, "k has batch ", k.extent(0), ", the call has ", facts.batch,
           " sequences: they must be equal");
  }
  facts.offset_per_sequence = is_given(offset.name, *offset);
  if (facts.offset_per_sequence)
    check_integers(offset, facts.batch, q, "it holds one offset for each sequence, [batch]");

  View sinks{"sinks", &inputs.sinks, list_axes};
  facts.sinks = is_given(sinks.name, *sinks);
  if (facts.sinks) check_sinks(sinks, q, facts.heads_q);

  if (q->device.type == DeviceType::cuda) {
    const auto there = [](const View& view) { return view->device.type == DeviceType::cuda; };
    facts.on_device = {.cu_q = there(cu_q),
                       .cu_k = there(cu_k),
                       .lengths = there(lengths),
                       .block_table = there(table),
                       .q_offset = there(offset)};
  }
  facts.align = {alignment_bytes(q), alignment_bytes(k), alignment_bytes(v), max_align_bytes};
  facts.shared_rows = shares(q, tokens) || shares(q, heads) || shares(k, k_tokens) || shares(v, k_tokens);
  if (outputs) {
    View o{"o", &outputs->o, axes}, lse{"lse", &outputs->lse, packed ? packed_lse_axes : lse_axes};
    require_given(o.name, *o);
    facts.wants_lse = is_given(lse.name, *lse);
    check_rank(o, packed), check_extents(o, at_least_1);
    if (o->dtype != q->dtype && o->dtype != DType::f32)
      fail(Code::invalid_dtype, "o is ", o->dtype, ", q is ", q->dtype, ": o is of q's type or f32");
    facts.out_dtype = o->dtype;
    if (!packed) check_equal(o, 0, q, 0, "they must be equal");
    check_equal(o, tokens, q, tokens, "each query has one output");
    check_equal(o, heads, q, heads, "o has the heads of q");
    check_equal(o, dim, v, k_dim, "o has the dim of v");
    if (facts.wants_lse) check_lse_shape(lse, o, packed);
    check_device(o, q), check_last_stride(o), check_memory(o), check_writable(o);
    if (facts.wants_lse) check_device(lse, q), check_memory(lse), check_writable(lse);
    facts.align.o = alignment_bytes(o);
    View errors{"errors", &outputs->errors, list_axes};
    if (is_given(errors.name, *errors)) check_errors(errors, q);
    // Views that are not given, or have no elements, lie nowhere and meet nothing.
    check_apart(o, lse), check_apart(o, errors), check_apart(lse, errors);
    for (const View* other : {&q, &k, &v, &cu_q, &cu_k, &table, &lengths, &offset, &sinks})
      check_apart(o, *other), check_apart(lse, *other), check_apart(errors, *other);
  }
  return facts;
}

void check_options(const Options& options, const Inputs& inputs) {
  if (options.scale && !std::isfinite(*options.scale))
    fail(Code::invalid_option, "scale is ", *options.scale, ": a finite number is allowed");
  if (options.q_offset && inputs.q_offset.defined())
    fail(Code::invalid_option, "q_offset is given twice, as the option (", *options.q_offset, ") and as the tensor (",
         inputs.q_offset, "): leave one out");
}

// ------------------------------------------------------------------------------------------------ a plan's tensors

namespace {

template <class Value>
void check_same(const char* what, const Value& planned, const Value& given) {
  if (!(planned == given))
    fail(Code::plan_mismatch, "the plan was made for ", what, " ", planned, ", the tensors have ", given,
         ": describe and plan them anew");
}

void check_same(const char* what, const detail::Frozen<DType, 8>& planned, const detail::Frozen<DType, 8>& given) {
  for (std::size_t i = 0; i < planned.size(); ++i)
    if (planned[i] != given[i])
      fail(Code::plan_mismatch, "the plan was made for ", what, " of type ", planned[i], ", that of the call is ",
           given[i], ": describe and plan it anew");
}

void check_same(const char* what, bool planned, bool given) {
  if (planned != given)
    fail(Code::plan_mismatch, "the plan was made ", planned ? "with " : "without ", what, ", the call is ",
         given ? "with" : "without", ": describe and plan it anew");
}

void check_aligned(const char* name, std::int64_t planned, std::int64_t given) {
  if (given < planned)
    fail(Code::plan_mismatch, "the plan was made for addresses and strides of ", name, " that are multiples of ",
         planned, " bytes, those of the tensor are multiples of ", given, " only: describe and plan them anew");
}

void check_where(const char* name, bool planned, bool given) {
  if (planned != given)
    fail(Code::plan_mismatch, "the plan was made for ", name, planned ? " on q's device" : " on the cpu", ", it is ",
         given ? "on q's device" : "on the cpu", ": describe and plan them anew");
}

}  // namespace

void check_tensors(const Problem& problem, const Inputs& inputs, const Outputs& outputs) {
  const Facts facts = examine(inputs, &outputs);
  check_same("prefix sums", problem.packed, facts.packed);
  check_same("lengths", problem.lengths, facts.lengths);
  check_same("a block table", problem.paged, facts.paged);
  check_same("type", problem.dtype, facts.dtype);
  check_same("output type", problem.out_dtype, facts.out_dtype);
  check_same("device", problem.device, facts.device);
  check_same("batch", problem.batch, facts.batch);
  check_same("tokens of q", problem.tokens_q, facts.tokens_q);
  check_same("page size", problem.page_size, facts.page_size);
  check_same("tokens of k", problem.tokens_kv, facts.tokens_kv);
  check_same("heads of q", problem.heads_q, facts.heads_q);
  check_same("heads of k", problem.heads_kv, facts.heads_kv);
  check_same("dim", problem.dim, facts.dim);
  check_same("dim of v", problem.dim_v, facts.dim_v);
  check_same("lse", problem.wants_lse, facts.wants_lse);
  check_same("a tensor q_offset", problem.offset_per_sequence, facts.offset_per_sequence);
  check_same("sinks", problem.sinks, facts.sinks);
  check_aligned("q", problem.align.q, facts.align.q), check_aligned("k", problem.align.k, facts.align.k);
  check_aligned("v", problem.align.v, facts.align.v), check_aligned("o", problem.align.o, facts.align.o);
  if (facts.shared_rows && !problem.shared_rows)
    fail(Code::plan_mismatch,
         "the plan was made for tokens and query heads with rows of their own, those of the call share rows by a "
         "stride of 0: describe and plan them anew");
  check_where("packed.cu_q", problem.on_device.cu_q, facts.on_device.cu_q);
  check_where("packed.cu_k", problem.on_device.cu_k, facts.on_device.cu_k);
  check_where("pages.lengths", problem.on_device.lengths, facts.on_device.lengths);
  check_where("pages.block_table", problem.on_device.block_table, facts.on_device.block_table);
  check_where("q_offset", problem.on_device.q_offset, facts.on_device.q_offset);
  check_bindings("mask", problem.mask.graph(), inputs.bind, facts.device);
  check_bindings("score", problem.score.graph(), inputs.bind, facts.device);
  check_same("tensors of the mask", problem.mask_tables, table_dtypes(problem.mask.graph(), inputs.bind));
  check_same("tensors of the score change", problem.score_tables, table_dtypes(problem.score.graph(), inputs.bind));
  check_where("what the mask reads", problem.on_device.mask, on_device(problem.mask.graph(), inputs.bind));
  check_where("what the score reads", problem.on_device.score, on_device(problem.score.graph(), inputs.bind));
  check_indices("mask", problem.mask.graph(), inputs.bind, problem);
  check_indices("score", problem.score.graph(), inputs.bind, problem);
}

}  // namespace tessera::problem
