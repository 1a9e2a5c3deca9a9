// Any tensors and options: refused by Error, or a problem whose tensors lie in bounds and whose outputs lie apart from
// everything else, by a computation of its own in 128 bits.
#include <fuzzer/FuzzedDataProvider.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "problem/validate.hpp"
#include "require.hpp"
#include "tessera/problem.hpp"

using namespace tessera;

namespace {

using Wide = __int128;

struct Named {
  const char* name;
  Tensor* tensor;
};

struct Call {
  Inputs in;
  Outputs out;
  Options options;

  std::vector<Named> all() {
    return {{"q", &in.q},
            {"k", &in.k},
            {"v", &in.v},
            {"o", &out.o},
            {"lse", &out.lse},
            {"cu_q", &in.packed.cu_q},
            {"cu_k", &in.packed.cu_k},
            {"q_offset", &in.q_offset}};
  }
};

Tensor dense(std::uintptr_t address, DType dtype, std::vector<std::int64_t> shape) {
  Tensor t;
  t.data = reinterpret_cast<void*>(address), t.dtype = dtype, t.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.shape[axis] = shape[static_cast<std::size_t>(axis)], t.stride[axis] = stride;
    stride *= std::max<std::int64_t>(t.shape[axis], 1);
  }
  return t;
}

std::int64_t odd_number(FuzzedDataProvider& bytes) {
  constexpr std::int64_t odd[] = {0,
                                  1,
                                  -1,
                                  2,
                                  3,
                                  7,
                                  8,
                                  64,
                                  65,
                                  1 << 20,
                                  std::int64_t{1} << 31,
                                  std::int64_t{1} << 32,
                                  std::int64_t{1} << 40,
                                  std::int64_t{1} << 60,
                                  std::int64_t{1} << 61,
                                  std::int64_t{1} << 62,
                                  std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min(),
                                  std::numeric_limits<std::int64_t>::max() / 2};
  const auto which = bytes.ConsumeIntegralInRange<std::size_t>(0, std::size(odd) + 3);
  if (which < std::size(odd)) return odd[which];
  if (which == std::size(odd)) return bytes.ConsumeIntegral<std::int64_t>();
  return bytes.ConsumeIntegralInRange<std::int64_t>(0, 100);
}

// A call that is fine as it is ...
Call valid_call(FuzzedDataProvider& bytes) {
  Call call;
  auto small = [&](std::int64_t least) { return bytes.ConsumeIntegralInRange<std::int64_t>(least, 4); };
  const std::int64_t batch = small(0), queries = small(0), keys = small(0), heads_kv = small(1), group = small(1),
                     dim = small(1), dim_v = small(1), heads = heads_kv * group;
  const DType types[] = {f32, bf16, f16};
  const DType type = types[bytes.ConsumeIntegralInRange(0, 2)], out_type = bytes.ConsumeBool() ? type : f32;
  std::uintptr_t address = bytes.ConsumeBool() ? 1 << 20 : ~std::uintptr_t{0} - (1 << 20) + 1;
  auto next = [&] { return address += 1 << 13; };
  if (bytes.ConsumeBool()) {
    call.in.q = dense(next(), type, {queries, heads, dim}), call.in.k = dense(next(), type, {keys, heads_kv, dim});
    call.in.v = dense(next(), type, {keys, heads_kv, dim_v}),
    call.out.o = dense(next(), out_type, {queries, heads, dim_v});
    call.out.lse = dense(next(), f32, {heads, queries});
    call.in.packed = {dense(next(), i32, {batch + 1}), dense(next(), i64, {batch + 1})};
  } else {
    call.in.q = dense(next(), type, {batch, queries, heads, dim});
    call.in.k = dense(next(), type, {batch, keys, heads_kv, dim});
    call.in.v = dense(next(), type, {batch, keys, heads_kv, dim_v});
    call.out.o = dense(next(), out_type, {batch, queries, heads, dim_v});
    call.out.lse = dense(next(), f32, {batch, heads, queries});
  }
  if (bytes.ConsumeBool()) call.out.lse = {};
  if (bytes.ConsumeBool()) call.in.q_offset = dense(next(), i64, {batch});
  return call;
}

// ... and what may be odd about it.
void make_odd(Call& call, FuzzedDataProvider& bytes) {
  const auto all = call.all();
  Tensor& t = *all[bytes.ConsumeIntegralInRange<std::size_t>(0, all.size() - 1)].tensor;
  const Tensor& other = *all[bytes.ConsumeIntegralInRange<std::size_t>(0, all.size() - 1)].tensor;
  const int axis = bytes.ConsumeIntegralInRange(0, max_rank - 1),
            second = bytes.ConsumeIntegralInRange(0, max_rank - 1);
  const auto shift = static_cast<std::uintptr_t>(bytes.ConsumeIntegralInRange(-260, 260));
  switch (bytes.ConsumeIntegralInRange(0, 17)) {
    case 0:
      t.shape[axis] = odd_number(bytes);
      break;
    case 1:
      t.stride[axis] = odd_number(bytes);
      break;
    case 2:
      t.stride[axis] = bytes.ConsumeIntegralInRange<std::int64_t>(-1, 40);
      break;
    case 3:
      std::swap(t.stride[axis], t.stride[second]);
      break;
    case 4:
      std::swap(t.shape[axis], t.shape[second]), std::swap(t.stride[axis], t.stride[second]);
      break;
    case 5:
      t.data = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(other.data) + shift);
      break;
    case 6:
      t.data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(odd_number(bytes)));
      break;
    case 7:
      t.dtype = static_cast<DType>(bytes.ConsumeIntegralInRange(0, 12));
      break;
    case 8:
      t.rank = bytes.ConsumeIntegralInRange(-2, max_rank + 2);
      break;
    case 9:
      t.read_only = bytes.ConsumeBool();
      break;
    case 10:
      t.device = {bytes.ConsumeBool() ? DeviceType::cpu : DeviceType::cuda, bytes.ConsumeIntegral<int>()};
      break;
    case 11:
      t = other;
      break;
    case 12:
      t = {};
      break;
    case 13:
      call.options.scale = bytes.ConsumeFloatingPoint<float>();
      break;
    case 14:
      call.options.scale = std::numeric_limits<float>::quiet_NaN();
      break;
    case 15:
      call.options.q_offset = bytes.ConsumeIntegral<std::int64_t>();
      break;
    case 16:
      for (const Named& each : all) each.tensor->device = {DeviceType::cuda, 1};
      break;
    default:  // slices of one buffer, or nearly so
      if (t.rank != other.rank) break;
      t.stride = other.stride;
      t.data = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(other.data) + shift);
  }
}

bool has_elements(const Tensor& t) {
  if (!t.defined()) return false;
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.shape[axis] == 0) return false;
  return true;
}

// First byte and the one behind the last.
struct Bounds {
  Wide begin, end;
};
Bounds bounds(const Tensor& t) {
  const Wide size = size_bytes(t.dtype);
  Wide low = 0, high = 0, count = 1;
  for (int axis = 0; axis < t.rank; ++axis) {
    const Wide last = Wide{t.shape[axis] - 1} * t.stride[axis];
    REQUIRE(t.shape[axis] >= 1);
    REQUIRE(last < (Wide{1} << 63) && last > -(Wide{1} << 63));
    (last < 0 ? low : high) += last;
    count *= t.shape[axis];
    REQUIRE(count * size < (Wide{1} << 63));
  }
  const auto address = static_cast<Wide>(reinterpret_cast<std::uintptr_t>(t.data));
  return {address + low * size, address + (high + 1) * size};
}

std::vector<Wide> places(const Tensor& t) {
  std::vector<Wide> list{static_cast<Wide>(reinterpret_cast<std::uintptr_t>(t.data))};
  for (int axis = 0; axis < t.rank; ++axis) {
    std::vector<Wide> longer;
    for (const Wide at : list)
      for (std::int64_t i = 0; i < t.shape[axis]; ++i)
        longer.push_back(at + Wide{i} * t.stride[axis] * size_bytes(t.dtype));
    list = std::move(longer);
  }
  return list;
}

bool is_small(const Tensor& t) {
  Wide count = 1;
  for (int axis = 0; axis < t.rank; ++axis) count *= t.shape[axis];
  return count <= 4096;
}

void check_accepted(Call& call, const Problem& p) {
  REQUIRE(p.heads_q >= 1 && p.heads_kv >= 1 && p.dim >= 1 && p.dim_v >= 1);
  REQUIRE(p.heads_q % p.heads_kv == 0);
  REQUIRE(p.batch >= 0 && p.tokens_q >= 0 && p.tokens_kv >= 0);
  REQUIRE(std::isfinite(p.scale));
  REQUIRE(p.align_bytes() >= 1 && p.align_bytes() <= 64 && (p.align_bytes() & (p.align_bytes() - 1)) == 0);
  const Tensor& q = call.in.q;
  for (const Named& each : call.all()) {
    const Tensor& t = *each.tensor;
    if (!t.defined()) continue;
    REQUIRE(t.device == q.device);
    if (!has_elements(t)) continue;
    const Bounds b = bounds(t);
    const auto address = reinterpret_cast<std::uintptr_t>(t.data);
    REQUIRE(address != 0 && address % static_cast<std::uintptr_t>(size_bytes(t.dtype)) == 0);
    REQUIRE(b.begin == static_cast<Wide>(address) && b.end <= (Wide{1} << 64) && b.end - b.begin < (Wide{1} << 63));
  }
  for (const Tensor* t : {&call.in.q, &call.in.k, &call.in.v, &call.out.o}) {
    if (!has_elements(*t)) continue;
    REQUIRE(t->shape[t->rank - 1] == 1 || t->stride[t->rank - 1] == 1);
    REQUIRE(reinterpret_cast<std::uintptr_t>(t->data) % static_cast<std::uintptr_t>(p.align_bytes()) == 0);
    for (int axis = 0; axis + 1 < t->rank; ++axis)
      REQUIRE(t->shape[axis] <= 1 || t->stride[axis] * size_bytes(t->dtype) % p.align_bytes() == 0);
  }
  // Outputs, byte by byte where there are few.
  std::unordered_set<std::uint64_t> written;
  for (const Tensor* t : {&call.out.o, &call.out.lse}) {
    if (!has_elements(*t)) continue;
    REQUIRE(!t->read_only);
    if (!is_small(*t)) continue;
    for (const Wide at : places(*t))
      for (std::int64_t i = 0; i < size_bytes(t->dtype); ++i)
        REQUIRE(written.insert(static_cast<std::uint64_t>(at + i)).second);
  }
  for (const Tensor* t :
       {&call.in.q, &call.in.k, &call.in.v, &call.in.packed.cu_q, &call.in.packed.cu_k, &call.in.q_offset}) {
    if (!has_elements(*t) || !is_small(*t)) continue;
    for (const Wide at : places(*t))
      for (std::int64_t i = 0; i < size_bytes(t->dtype); ++i)
        REQUIRE(!written.contains(static_cast<std::uint64_t>(at + i)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider bytes(data, size);
  Call call = valid_call(bytes);
  const int oddities = bytes.ConsumeIntegralInRange(0, 4);
  for (int i = 0; i < oddities; ++i) make_odd(call, bytes);
  try {
    const Problem p = describe(call.in, call.out, call.options);
    check_accepted(call, p);
    REQUIRE(p == describe(call.in, call.out, call.options));
    problem::check_tensors(p, call.in, call.out);
    std::ostringstream text;
    text << p << hash(p);
    REQUIRE(!text.str().empty());
  } catch (const Error& error) {
    REQUIRE(oddities > 0 && error.code() != Code::ok && error.code() != Code::plan_mismatch);
    REQUIRE(error.what()[0] != '\0');
  }
  return 0;
}
