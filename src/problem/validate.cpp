// The one place where arguments are refused. Cheap when all is well; the words are made only for a failure.
// Must not know: devices' abilities, tile sizes, backends.
#include "problem/validate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "problem/bindings.hpp"
#include "problem/fail.hpp"
#include "problem/indices.hpp"
#include "problem/layout.hpp"

namespace tessera::problem {
namespace {

constexpr std::int64_t max_align_bytes = 64;

// A tensor under examination: what the texts call it, what its axes are called, where it lies.
struct View {
  const char* name;
  const Tensor* tensor;
  const char* const* axes = nullptr;
  std::uintptr_t begin = 0, end = 0;  // addresses; equal when it has no elements

  const Tensor& operator*() const { return *tensor; }
  const Tensor* operator->() const { return tensor; }
  std::int64_t extent(int axis) const { return tensor->shape[axis]; }
};

constexpr const char* dense_axes[] = {"batch", "tokens", "heads", "dim"};
constexpr const char* packed_axes[] = {"total tokens", "heads", "dim"};
constexpr const char* lse_axes[] = {"batch", "heads", "tokens"};
constexpr const char* packed_lse_axes[] = {"heads", "total tokens"};
constexpr const char* list_axes[] = {"elements"};

std::string axes_text(const View& view, int rank) {
  std::string text = "[";
  for (int axis = 0; axis < rank; ++axis) text.append(axis ? ", " : "").append(view.axes[axis]);
  return text + "]";
}

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }
bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

// ------------------------------------------------------------------------------------------------ one tensor alone

// Is an optional tensor there? One that has an address or a shape but no type was meant to be.
bool is_given(const char* name, const Tensor& t) {
  if (t.defined()) return true;
  if (t.data || t.rank != 0)
    fail(Code::invalid_dtype, name,
         " has an address or a shape but no type: make it by tensor(), or leave it out whole");
  return false;
}

void require_given(const char* name, const Tensor& t) {
  if (!is_given(name, t)) fail(Code::null_pointer, name, " is missing: it has no type, no shape and no data");
}

// Extents of 0 or more; at least 1 where `least` has a bit for the axis.
void check_extents(const View& view, unsigned least) {
  for (int axis = 0; axis < view->rank; ++axis) {
    const std::int64_t extent = view.extent(axis), lowest = (least >> axis) & 1u;
    if (extent < lowest)
      fail(Code::invalid_shape, view.name, " has ", view.axes[axis], " ", extent, ": ", lowest, " or more is allowed (",
           *view, ")");
  }
}

void check_float(const View& view) {
  if (!is_float(view->dtype))
    fail(Code::invalid_dtype, view.name, " is ", view->dtype, ": f32, bf16 and f16 are allowed");
}

// Strides, size, address. Fills in where it lies.
void check_memory(View& view) {
  const Tensor& t = *view;
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.stride[axis] < 0 && t.shape[axis] > 1)
      fail(Code::invalid_stride, view.name, " has stride ", t.stride[axis], " over its ", view.axes[axis],
           ": 0 or more is allowed; copy a reversed view");
  const std::optional<std::int64_t> reach = reach_bytes(t);
  if (!reach)
    fail(Code::size_overflow, view.name, " is ", t, ": its bytes (", size_bytes(t.dtype),
         " an element) or its reach over the strides pass 2^63 - 1");
  if (is_empty(t)) return;
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (!address) fail(Code::null_pointer, view.name, " has elements (", t, ") but its address is null");
  if ((address & static_cast<std::uintptr_t>(size_bytes(t.dtype) - 1)) != 0)  // sizes are powers of two
    fail(Code::invalid_stride, view.name, " lies at address ", t.data, ", which is no multiple of the ",
         size_bytes(t.dtype), " bytes of ", t.dtype);
  view.begin = address;
  if (__builtin_add_overflow(address, static_cast<std::uintptr_t>(*reach), &view.end))
    fail(Code::size_overflow, view.name, " (", t, ") lies at address ", t.data, " and reaches over ", *reach,
         " bytes: that passes the end of memory");
}

void check_last_stride(const View& view) {
  const int last = view->rank - 1;
  if (view->shape[last] > 1 && view->stride[last] != 1)
    fail(Code::invalid_stride, view.name, " has stride ", view->stride[last], " over its ", view.axes[last],
         ": it must be 1, each row of ", view->shape[last], " elements side by side");
}

void check_device(const View& view, const View& first) {
  if (!(view->device == first->device))
    fail(Code::invalid_device, view.name, " is on ", view->device, ", ", first.name, " on ", first->device,
         ": all tensors of a call are on one device");
}

void check_writable(const View& view) {
  if (view->read_only)
    fail(Code::invalid_dtype, view.name, " (", *view, ") is read only, made from a const pointer: ", view.name,
         " is written and needs a pointer to non-const");
  if (const auto collision = find_collision(*view))
    fail(Code::invalid_stride, view.name, " has stride ", view->stride[collision->axis], " over its ",
         view.axes[collision->axis], " while other axes cover ", collision->covered,
         " elements: an output may not write one place twice; a stride of ", collision->covered, " or more is enough");
}

// ------------------------------------------------------------------------------------------------ one with another

void check_equal(const View& view, int axis, const View& other, int other_axis, const char* rule) {
  if (view.extent(axis) != other.extent(other_axis))
    fail(Code::invalid_shape, view.name, " has ", view.axes[axis], " ", view.extent(axis), ", ", other.name, " has ",
         other.axes[other_axis], " ", other.extent(other_axis), ": ", rule);
}

void check_apart(const View& out, const View& other) {
  if (out.begin >= other.end || other.begin >= out.end) return;
  const Meeting meeting = meet(*out, *other);
  if (meeting == Meeting::apart) return;
  fail(Code::overlap, out.name, " (", *out, " at ", out->data, ", ", out.end - out.begin, " bytes) ",
       meeting == Meeting::shared ? "shares memory with " : "is interwoven with, and cannot be told apart from, ",
       other.name, " (", *other, " at ", other->data, ", ", other.end - other.begin,
       " bytes): an output needs memory of its own");
}

// Rank and type of a tensor of integers with `count` elements; `rule` says what it holds.
void check_integers(View& view, std::int64_t count, const View& q, const char* rule) {
  if (!is_index(view->dtype)) fail(Code::invalid_dtype, view.name, " is ", view->dtype, ": i32 and i64 are allowed");
  if (view->rank != 1 || view.extent(0) != count)
    fail(Code::invalid_shape, view.name, " is ", *view, ": ", rule, ", here [", count, "]");
  check_device(view, q);
  check_memory(view);
}

void check_sinks(View& sinks, const View& q, std::int64_t heads) {
  check_float(sinks);
  if (sinks->rank != 1 || sinks.extent(0) != heads)
    fail(Code::invalid_shape, sinks.name, " is ", *sinks, ": it holds one logit for each head of q, here [", heads,
         "]");
  check_device(sinks, q);
  check_memory(sinks);
}

void check_rank(const View& view, bool packed) {
  const int rank = packed ? 3 : 4;
  if (view->rank == rank) return;
  if (view->rank == (packed ? 4 : 3))
    fail(Code::invalid_shape, view.name, " has rank ", view->rank, " (", *view, "), ",
         packed
             ? "and the call has prefix sums: packed tensors are of rank 3, [total tokens, heads, dim]; a dense call, "
               "[batch, tokens, heads, dim], leaves packed.cu_q and packed.cu_k out"
             : "and the call has no prefix sums: dense tensors are of rank 4, [batch, tokens, heads, dim]; a packed "
               "call, [total tokens, heads, dim], needs packed.cu_q and packed.cu_k");
  fail(Code::invalid_shape, view.name, " has rank ", view->rank, ": it is of rank ", rank, ", ", axes_text(view, rank));
}

void check_lse_shape(const View& lse, const View& o, bool packed) {
  const int rank = packed ? 2 : 3;
  if (lse->dtype != DType::f32) fail(Code::invalid_dtype, lse.name, " is ", lse->dtype, ": it is always f32");
  if (lse->rank != rank)
    fail(Code::invalid_shape, lse.name, " has rank ", lse->rank, " (", *lse, "): it is of rank ", rank, ", ",
         axes_text(lse, rank));
  check_extents(lse, 0);
  if (!packed) check_equal(lse, 0, o, 0, "they must be equal");
  check_equal(lse, rank - 2, o, rank - 1, "lse has one row for each head of the output");
  check_equal(lse, rank - 1, o, rank - 2, "lse has one number for each query of the output");
}

void add_alignment(const View& view, std::uintptr_t& bits) {
  if (view.begin == view.end) return;
  bits |= view.begin;
  const auto size = static_cast<std::uintptr_t>(size_bytes(view->dtype));
  for (int axis = 0; axis + 1 < view->rank; ++axis)
    if (view->shape[axis] > 1) bits |= static_cast<std::uintptr_t>(view->stride[axis]) * size;
}

}  // namespace

Facts examine(const Inputs& inputs, const Outputs* outputs) {
  require_given("q", inputs.q), require_given("k", inputs.k), require_given("v", inputs.v);
  const bool has_cu_q = is_given("packed.cu_q", inputs.packed.cu_q);
  const bool has_cu_k = is_given("packed.cu_k", inputs.packed.cu_k);
  if (has_cu_q != has_cu_k)
    fail(Code::invalid_packing,
         has_cu_q ? "packed.cu_q is given, packed.cu_k is not" : "packed.cu_k is given, packed.cu_q is not",
         ": a packed call needs both, a dense call neither");
  const bool packed = has_cu_q;
  const char* const* axes = packed ? packed_axes : dense_axes;
  View q{"q", &inputs.q, axes}, k{"k", &inputs.k, axes}, v{"v", &inputs.v, axes};

  // Each alone, then types, then shapes, then memory: the first message is the one that helps.
  const int tokens = packed ? 0 : 1, heads = tokens + 1, dim = tokens + 2;
  const unsigned at_least_1 = 1u << heads | 1u << dim;
  for (const View* view : {&q, &k, &v}) check_rank(*view, packed), check_extents(*view, at_least_1);
  check_float(q);
  for (const View* view : {&k, &v})
    if ((*view)->dtype != q->dtype)
      fail(Code::invalid_dtype, view->name, " is ", (*view)->dtype, ", q is ", q->dtype,
           ": q, k and v are of one type");
  if (!packed) check_equal(k, 0, q, 0, "they must be equal"), check_equal(v, 0, q, 0, "they must be equal");
  check_equal(v, tokens, k, tokens, "each key has one value");
  check_equal(v, heads, k, heads, "k and v have the same heads");
  check_equal(k, dim, q, dim, "queries and keys are of one dim (only v's may differ)");
  if (q.extent(heads) % k.extent(heads) != 0)
    fail(Code::invalid_shape, "q has ", q.extent(heads), " heads, k has ", k.extent(heads),
         ": q heads must be a multiple of k heads");
  check_device(k, q), check_device(v, q);
  for (View* view : {&q, &k, &v}) check_last_stride(*view), check_memory(*view);

  Facts facts;
  facts.dtype = facts.out_dtype = q->dtype, facts.device = q->device, facts.packed = packed;
  facts.heads_q = q.extent(heads), facts.heads_kv = k.extent(heads);
  facts.tokens_q = q.extent(tokens), facts.tokens_kv = k.extent(tokens);
  facts.dim = q.extent(dim), facts.dim_v = v.extent(dim);

  View cu_q{"packed.cu_q", &inputs.packed.cu_q, list_axes}, cu_k{"packed.cu_k", &inputs.packed.cu_k, list_axes};
  View offset{"q_offset", &inputs.q_offset, list_axes};
  if (packed) {
    const std::int64_t count = cu_q->rank == 1 ? cu_q.extent(0) : 1;
    if (count < 1)
      fail(Code::invalid_shape, cu_q.name, " is ", *cu_q, ": prefix sums are [batch + 1], at least one element");
    check_integers(cu_q, count, q, "prefix sums are [batch + 1]");
    check_integers(cu_k, count, q, "prefix sums are [batch + 1], as many for the keys as for the queries");
    facts.batch = count - 1;
  } else {
    facts.batch = q.extent(0);
  }
  facts.offset_per_sequence = is_given(offset.name, *offset);
  if (facts.offset_per_sequence)
    check_integers(offset, facts.batch, q, "it holds one offset for each sequence, [batch]");

  View sinks{"sinks", &inputs.sinks, list_axes};
  facts.sinks = is_given(sinks.name, *sinks);
  if (facts.sinks) check_sinks(sinks, q, facts.heads_q);

  std::uintptr_t bits = static_cast<std::uintptr_t>(max_align_bytes);
  add_alignment(q, bits), add_alignment(k, bits), add_alignment(v, bits);
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
    check_equal(o, dim, v, dim, "o has the dim of v");
    if (facts.wants_lse) check_lse_shape(lse, o, packed);
    check_device(o, q), check_last_stride(o), check_memory(o), check_writable(o);
    if (facts.wants_lse) check_device(lse, q), check_memory(lse), check_writable(lse);
    add_alignment(o, bits);
    // Views that are not given, or have no elements, lie nowhere and meet nothing.
    for (const View* other : {&q, &k, &v, &cu_q, &cu_k, &offset, &sinks, &lse}) check_apart(o, *other);
    for (const View* other : {&q, &k, &v, &cu_q, &cu_k, &offset, &sinks}) check_apart(lse, *other);
  }
  facts.align_bytes = std::int64_t{1} << std::countr_zero(bits);
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

}  // namespace

void check_tensors(const Problem& problem, const Inputs& inputs, const Outputs& outputs) {
  const Facts facts = examine(inputs, &outputs);
  check_same("prefix sums", problem.packed, facts.packed);
  check_same("type", problem.dtype, facts.dtype);
  check_same("output type", problem.out_dtype, facts.out_dtype);
  check_same("device", problem.device, facts.device);
  check_same("batch", problem.batch, facts.batch);
  check_same("tokens of q", problem.tokens_q, facts.tokens_q);
  check_same("tokens of k", problem.tokens_kv, facts.tokens_kv);
  check_same("heads of q", problem.heads_q, facts.heads_q);
  check_same("heads of k", problem.heads_kv, facts.heads_kv);
  check_same("dim", problem.dim, facts.dim);
  check_same("dim of v", problem.dim_v, facts.dim_v);
  check_same("lse", problem.wants_lse, facts.wants_lse);
  check_same("a tensor q_offset", problem.offset_per_sequence, facts.offset_per_sequence);
  check_same("sinks", problem.sinks, facts.sinks);
  if (facts.align_bytes < problem.align_bytes)
    fail(Code::plan_mismatch, "the plan was made for addresses and strides that are multiples of ", problem.align_bytes,
         " bytes, those of the tensors are multiples of ", facts.align_bytes, " only: describe and plan them anew");
  check_bindings("mask", problem.mask.graph(), inputs.bind, facts.device);
  check_bindings("score", problem.score.graph(), inputs.bind, facts.device);
  check_same("tensors of the mask", problem.mask_tables, table_dtypes(problem.mask.graph(), inputs.bind));
  check_same("tensors of the score change", problem.score_tables, table_dtypes(problem.score.graph(), inputs.bind));
  check_indices("mask", problem.mask.graph(), inputs.bind, problem);
  check_indices("score", problem.score.graph(), inputs.bind, problem);
}

// ------------------------------------------------------------------------------------------------ values

std::int64_t integer_at(const Tensor& tensor, std::int64_t index) {
  const std::int64_t at = index * tensor.stride[0];
  return tensor.dtype == DType::i32 ? tensor.as<const std::int32_t>()[at] : tensor.as<const std::int64_t>()[at];
}

namespace {

void check_prefix_sums(const char* name, const Tensor& sums, std::int64_t batch, const char* of, std::int64_t total) {
  std::int64_t before = integer_at(sums, 0);
  if (before != 0) fail(Code::invalid_packing, name, "[0] is ", before, ": prefix sums start at 0");
  for (std::int64_t i = 1; i <= batch; ++i) {
    const std::int64_t sum = integer_at(sums, i);
    if (sum < before)
      fail(Code::invalid_packing, name, "[", i, "] is ", sum, ", ", name, "[", i - 1, "] is ", before,
           ": prefix sums never decrease");
    before = sum;
  }
  if (before > total)
    fail(Code::invalid_packing, name, "[", batch, "] is ", before, ", ", of, " has ", total,
         " tokens in all: prefix sums end at or before the total");
}

}  // namespace

void check_values(const Problem& problem, const Inputs& inputs) {
  // What lies on a device is not copied back to be looked at; the kernels clamp it.
  if (!problem.packed || problem.device.type != DeviceType::cpu) return;
  check_prefix_sums("packed.cu_q", inputs.packed.cu_q, problem.batch, "q", problem.tokens_q);
  check_prefix_sums("packed.cu_k", inputs.packed.cu_k, problem.batch, "k", problem.tokens_kv);
}

// ------------------------------------------------------------------------------------------------ merge

namespace {

bool same_view(const Tensor& a, const Tensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int axis = 0; axis < a.rank; ++axis)
    if (a.shape[axis] != b.shape[axis] || (a.shape[axis] > 1 && a.stride[axis] != b.stride[axis])) return false;
  return true;
}

struct Part {
  View o, lse;
};

void check_part(Part& part, bool lse_optional, const Part* first) {
  require_given(part.o.name, *part.o);
  const bool has_lse = is_given(part.lse.name, *part.lse);
  if (!has_lse && !lse_optional)
    fail(Code::null_pointer, part.lse.name, " is missing: two partial results can only be merged by their lse");
  View& o = part.o;
  const int rank = first ? first->o->rank : o->rank;
  if (o->rank != 3 && o->rank != 4)
    fail(Code::invalid_shape, o.name, " has rank ", o->rank,
         ": it is of rank 4, [batch, tokens, heads, dim], or packed of rank 3, [total tokens, heads, dim]");
  if (o->rank != rank)
    fail(Code::invalid_shape, o.name, " has rank ", o->rank, ", ", first->o.name, " has rank ", rank,
         ": all are dense or all are packed");
  const bool packed = rank == 3;
  o.axes = packed ? packed_axes : dense_axes, part.lse.axes = packed ? packed_lse_axes : lse_axes;
  check_extents(o, packed ? 0b110u : 0b1100u);
  check_float(o);
  for (int axis = 0; first && axis < rank; ++axis) check_equal(o, axis, first->o, axis, "they must be equal");
  check_device(o, first ? first->o : o);
  check_last_stride(o), check_memory(o);
  if (!has_lse) return;
  check_lse_shape(part.lse, o, packed);
  check_device(part.lse, first ? first->o : o);
  check_memory(part.lse);
}

}  // namespace

void check_merge(const Outputs& a, const Outputs& b, const Outputs& out) {
  Part first{{"a.o", &a.o}, {"a.lse", &a.lse}}, second{{"b.o", &b.o}, {"b.lse", &b.lse}};
  Part result{{"out.o", &out.o}, {"out.lse", &out.lse}};
  check_part(first, false, nullptr), check_part(second, false, &first), check_part(result, true, &first);
  check_writable(result.o), check_writable(result.lse);
  check_apart(result.o, result.lse);
  // In place, element by element: a result may lie exactly on the partial result of its own kind.
  for (const Part* part : {&first, &second}) {
    if (!same_view(*result.o, *part->o)) check_apart(result.o, part->o);
    if (!same_view(*result.lse, *part->lse)) check_apart(result.lse, part->lse);
    check_apart(result.o, part->lse), check_apart(result.lse, part->o);
  }
}

}  // namespace tessera::problem
