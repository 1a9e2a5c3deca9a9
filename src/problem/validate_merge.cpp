// The arguments of merge().
// Must not know: devices' abilities, tile sizes, backends.
#include "problem/fail.hpp"
#include "problem/validate.hpp"
#include "problem/view.hpp"

namespace tessera::problem {

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
