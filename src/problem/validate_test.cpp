// Bad input: a valid call, one thing about it changed, and the error that is owed: its code, both values, nothing
// written.
#include "problem/validate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tessera/attention.hpp"
#include "unit/failure_of.hpp"

namespace tessera::problem {
namespace {

constexpr std::int64_t huge = std::int64_t{1} << 40;

// Memory of a call and a valid call in it. Room is left for the views that the table moves and stretches.
struct Call {
  static constexpr std::size_t room_bytes = 4096;
  struct alignas(64) Block {
    unsigned char bytes[room_bytes];
    Block() { std::fill(bytes, bytes + room_bytes, static_cast<unsigned char>(0xa5)); }
  };
  Block q, k, v, o, lse;
  std::int32_t cu_q[3] = {0, 3, 10}, cu_k[3] = {0, 9, 14};
  std::int64_t offsets[2] = {0, -3};
  std::int32_t errors = 0;
  float sinks[4] = {0, 1, -2, 3};
  Inputs in;
  Outputs out;
  Options options;

  explicit Call(bool packed) {
    if (packed) {
      in.q = tensor(floats(q), {10, 4, 8}), in.k = tensor(floats(k), {14, 2, 8}), in.v = tensor(floats(v), {14, 2, 6});
      in.packed = {tensor(cu_q, {3}), tensor(cu_k, {3})};
      out = {tensor(floats(o), {10, 4, 6}), tensor(floats(lse), {4, 10})};
    } else {
      in.q = tensor(floats(q), {2, 5, 4, 8}), in.k = tensor(floats(k), {2, 7, 2, 8});
      in.v = tensor(floats(v), {2, 7, 2, 6});
      out = {tensor(floats(o), {2, 5, 4, 6}), tensor(floats(lse), {2, 4, 5})};
    }
  }
  Call(const Call&) = delete;

  static float* floats(Block& block) { return reinterpret_cast<float*>(block.bytes); }
  // Whatever the outputs point at, it is memory of the call.
  std::vector<unsigned char> contents() const {
    std::vector<unsigned char> all;
    for (const Block* block : {&q, &k, &v, &o, &lse}) all.insert(all.end(), block->bytes, block->bytes + room_bytes);
    const auto* small = reinterpret_cast<const unsigned char*>(cu_q);
    all.insert(all.end(), small, small + sizeof(cu_q));
    small = reinterpret_cast<const unsigned char*>(offsets);
    all.insert(all.end(), small, small + sizeof(offsets));
    small = reinterpret_cast<const unsigned char*>(sinks);
    all.insert(all.end(), small, small + sizeof(sinks));
    return all;
  }
};

struct Row {
  const char* name;
  bool packed;
  void (*change)(Call&);
  Code code;
  std::vector<const char*> parts;  // of the text
};

constexpr bool dense = false, packed = true;

// clang-format off
const Row rows[] = {
    // Ranks.
    {"q_rank_2", dense, [](Call& c) { c.in.q.rank = 2; }, Code::invalid_shape, {"q has rank 2", "rank 4", "[batch, tokens, heads, dim]"}},
    {"q_rank_3_without_prefix_sums", dense, [](Call& c) { c.in.q.rank = 3; }, Code::invalid_shape, {"q has rank 3", "[batch, tokens, heads, dim]", "[total tokens, heads, dim]", "packed.cu_q"}},
    {"k_rank_5", dense, [](Call& c) { c.in.k.rank = 5; }, Code::invalid_shape, {"k has rank 5", "rank 4"}},
    {"k_rank_3_q_rank_4", dense, [](Call& c) { c.in.k.rank = 3; }, Code::invalid_shape, {"k has rank 3", "rank 4"}},
    {"v_rank_0", dense, [](Call& c) { c.in.v.rank = 0; }, Code::invalid_shape, {"v has rank 0", "rank 4"}},
    {"rank_negative", dense, [](Call& c) { c.in.q.rank = -7; }, Code::invalid_shape, {"q has rank -7", "rank 4"}},
    {"rank_enormous", dense, [](Call& c) { c.in.q.rank = 1 << 30; }, Code::invalid_shape, {"1073741824", "rank 4"}},
    {"o_rank_3", dense, [](Call& c) { c.out.o.rank = 3; }, Code::invalid_shape, {"o has rank 3", "rank 4"}},
    {"lse_rank_4", dense, [](Call& c) { c.out.lse.rank = 4; }, Code::invalid_shape, {"lse has rank 4", "rank 3", "[batch, heads, tokens]"}},
    {"lse_rank_3_packed", packed, [](Call& c) { c.out.lse.rank = 3; }, Code::invalid_shape, {"lse has rank 3", "rank 2", "[heads, total tokens]"}},
    {"q_rank_4_with_prefix_sums", packed, [](Call& c) { c.in.q = tensor(Call::floats(c.q), {1, 10, 4, 8}); }, Code::invalid_shape, {"q has rank 4", "rank 3", "prefix sums"}},
    {"o_rank_4_with_prefix_sums", packed, [](Call& c) { c.out.o = tensor(Call::floats(c.o), {1, 10, 4, 6}); }, Code::invalid_shape, {"o has rank 4", "rank 3"}},
    {"errors_rank_2", dense, [](Call& c) { c.out.errors = tensor(&c.errors, {1, 1}); }, Code::invalid_shape, {"errors is i32[1, 1]", "rank 0 or [1]"}},
    {"errors_of_two", packed, [](Call& c) { c.out.errors = tensor(&c.errors, {2}); }, Code::invalid_shape, {"errors is i32[2]"}},
    {"errors_rank_negative", dense, [](Call& c) { c.out.errors = tensor(&c.errors, {1}); c.out.errors.rank = -1; }, Code::invalid_shape, {"one i32"}},
    {"errors_float", dense, [](Call& c) { c.out.errors = tensor(Call::floats(c.lse), {1}); }, Code::invalid_dtype, {"errors is f32", "one i32"}},
    {"errors_on_another_device", dense, [](Call& c) { c.out.errors = tensor(&c.errors, {1}, {}, {DeviceType::cuda, 0}); }, Code::invalid_device, {"errors is on cuda:0", "q on cpu"}},
    {"errors_read_only", dense, [](Call& c) { c.out.errors = tensor(static_cast<const std::int32_t*>(&c.errors), {}); }, Code::invalid_dtype, {"errors", "read only"}},
    {"errors_null", dense, [](Call& c) { c.out.errors = tensor(static_cast<std::int32_t*>(nullptr), {}); }, Code::null_pointer, {"errors has elements"}},
    {"errors_in_o", dense, [](Call& c) { c.out.errors = tensor(reinterpret_cast<std::int32_t*>(Call::floats(c.o) + 7), {}); }, Code::overlap, {"o", "shares memory with errors"}},
    {"errors_in_k", dense, [](Call& c) { c.out.errors = tensor(reinterpret_cast<std::int32_t*>(Call::floats(c.k)), {1}); }, Code::overlap, {"errors", "shares memory with k"}},
    {"errors_in_cu_q", packed, [](Call& c) { c.out.errors = tensor(&c.cu_q[2], {1}); }, Code::overlap, {"errors", "shares memory with packed.cu_q"}},
    // Missing tensors, null pointers.
    {"q_missing", dense, [](Call& c) { c.in.q = {}; }, Code::null_pointer, {"q is missing"}},
    {"v_missing", dense, [](Call& c) { c.in.v = {}; }, Code::null_pointer, {"v is missing"}},
    {"o_missing", dense, [](Call& c) { c.out.o = {}; }, Code::null_pointer, {"o is missing"}},
    {"q_null", dense, [](Call& c) { c.in.q.data = nullptr; }, Code::null_pointer, {"q has elements", "f32[2, 5, 4, 8]", "null"}},
    {"k_null", dense, [](Call& c) { c.in.k.data = nullptr; }, Code::null_pointer, {"k has elements"}},
    {"v_null", packed, [](Call& c) { c.in.v.data = nullptr; }, Code::null_pointer, {"v has elements"}},
    {"o_null", dense, [](Call& c) { c.out.o.data = nullptr; }, Code::null_pointer, {"o has elements", "f32[2, 5, 4, 6]"}},
    {"lse_null", dense, [](Call& c) { c.out.lse.data = nullptr; }, Code::null_pointer, {"lse has elements"}},
    {"cu_q_null", packed, [](Call& c) { c.in.packed.cu_q.data = nullptr; }, Code::null_pointer, {"packed.cu_q", "i32[3]"}},
    {"q_offset_null", dense, [](Call& c) { c.in.q_offset = tensor(static_cast<std::int64_t*>(nullptr), {2}); }, Code::null_pointer, {"q_offset", "i64[2]"}},
    // Types.
    {"q_integer", dense, [](Call& c) { c.in.q.dtype = i32; }, Code::invalid_dtype, {"q is i32", "f32, bf16 and f16"}},
    {"q_unknown_type", dense, [](Call& c) { c.in.q.dtype = static_cast<DType>(99); }, Code::invalid_dtype, {"q is unknown"}},
    {"q_without_type", dense, [](Call& c) { c.in.q.dtype = DType::none; }, Code::invalid_dtype, {"q has an address or a shape but no type"}},
    {"lse_without_type", dense, [](Call& c) { c.out.lse.dtype = DType::none; }, Code::invalid_dtype, {"lse has an address or a shape but no type"}},
    {"k_other_type", dense, [](Call& c) { c.in.k.dtype = bf16; }, Code::invalid_dtype, {"k is bf16", "q is f32", "one type"}},
    {"v_other_type", packed, [](Call& c) { c.in.v.dtype = f16; }, Code::invalid_dtype, {"v is f16", "q is f32"}},
    {"o_other_type", dense, [](Call& c) { c.out.o.dtype = bf16; }, Code::invalid_dtype, {"o is bf16", "q is f32", "q's type or f32"}},
    {"o_f16_of_bf16", dense, [](Call& c) { c.in.q.dtype = c.in.k.dtype = c.in.v.dtype = bf16; c.out.o.dtype = f16; }, Code::invalid_dtype, {"o is f16", "q is bf16"}},
    {"lse_f16", dense, [](Call& c) { c.out.lse.dtype = f16; }, Code::invalid_dtype, {"lse is f16", "f32"}},
    {"cu_q_float", packed, [](Call& c) { c.in.packed.cu_q.dtype = f32; }, Code::invalid_dtype, {"packed.cu_q is f32", "i32 and i64"}},
    {"cu_k_u8", packed, [](Call& c) { c.in.packed.cu_k.dtype = u8; }, Code::invalid_dtype, {"packed.cu_k is u8", "i32 and i64"}},
    {"q_offset_float", dense, [](Call& c) { c.in.q_offset = tensor(Call::floats(c.q), {2}); }, Code::invalid_dtype, {"q_offset is f32", "i32 and i64"}},
    {"o_read_only", dense, [](Call& c) { c.out.o.read_only = true; }, Code::invalid_dtype, {"o (f32[2, 5, 4, 6]) is read only"}},
    {"lse_read_only", packed, [](Call& c) { c.out.lse.read_only = true; }, Code::invalid_dtype, {"lse (f32[4, 10]) is read only"}},
    // Extents.
    {"q_heads_0", dense, [](Call& c) { c.in.q.shape[2] = 0; }, Code::invalid_shape, {"q has heads 0", "1 or more"}},
    {"k_heads_0", packed, [](Call& c) { c.in.k.shape[1] = 0; }, Code::invalid_shape, {"k has heads 0", "1 or more"}},
    {"dim_0", dense, [](Call& c) { c.in.q.shape[3] = 0; }, Code::invalid_shape, {"q has dim 0", "1 or more"}},
    {"dim_v_0", dense, [](Call& c) { c.in.v.shape[3] = 0; }, Code::invalid_shape, {"v has dim 0", "1 or more"}},
    {"tokens_negative", dense, [](Call& c) { c.in.q.shape[1] = -5; }, Code::invalid_shape, {"q has tokens -5", "0 or more"}},
    {"batch_negative", dense, [](Call& c) { c.in.q.shape[0] = c.in.k.shape[0] = -1; }, Code::invalid_shape, {"q has batch -1", "0 or more"}},
    {"heads_negative", dense, [](Call& c) { c.in.k.shape[2] = -2; }, Code::invalid_shape, {"k has heads -2", "1 or more"}},
    {"lse_negative", dense, [](Call& c) { c.out.lse.shape[2] = -5; }, Code::invalid_shape, {"lse has tokens -5"}},
    {"heads_do_not_divide", dense, [](Call& c) { c.in.q = tensor(Call::floats(c.q), {2, 5, 32, 1}); c.in.k = tensor(Call::floats(c.k), {2, 7, 6, 1}); c.in.v = tensor(Call::floats(c.v), {2, 7, 6, 1}); }, Code::invalid_shape, {"q has 32 heads, k has 6: q heads must be a multiple of k heads"}},
    {"more_k_heads_than_q_heads", packed, [](Call& c) { c.in.q.shape[1] = 1; }, Code::invalid_shape, {"q has 1 heads, k has 2"}},
    {"k_batch", dense, [](Call& c) { c.in.k.shape[0] = 3; }, Code::invalid_shape, {"k has batch 3", "q has batch 2"}},
    {"v_batch", dense, [](Call& c) { c.in.v.shape[0] = 1; }, Code::invalid_shape, {"v has batch 1", "q has batch 2"}},
    {"v_tokens", dense, [](Call& c) { c.in.v.shape[1] = 6; }, Code::invalid_shape, {"v has tokens 6", "k has tokens 7"}},
    {"v_tokens_packed", packed, [](Call& c) { c.in.v.shape[0] = 13; }, Code::invalid_shape, {"v has total tokens 13", "k has total tokens 14"}},
    {"v_heads", dense, [](Call& c) { c.in.v.shape[2] = 1; }, Code::invalid_shape, {"v has heads 1", "k has heads 2"}},
    {"k_dim", dense, [](Call& c) { c.in.k.shape[3] = 7; }, Code::invalid_shape, {"k has dim 7", "q has dim 8"}},
    {"o_batch", dense, [](Call& c) { c.out.o.shape[0] = 1; }, Code::invalid_shape, {"o has batch 1", "q has batch 2"}},
    {"o_tokens", dense, [](Call& c) { c.out.o.shape[1] = 4; }, Code::invalid_shape, {"o has tokens 4", "q has tokens 5"}},
    {"o_heads", dense, [](Call& c) { c.out.o.shape[2] = 2; }, Code::invalid_shape, {"o has heads 2", "q has heads 4"}},
    {"o_dim", dense, [](Call& c) { c.out.o.shape[3] = 8; }, Code::invalid_shape, {"o has dim 8", "v has dim 6"}},
    {"o_tokens_packed", packed, [](Call& c) { c.out.o.shape[0] = 9; }, Code::invalid_shape, {"o has total tokens 9", "q has total tokens 10"}},
    {"lse_batch", dense, [](Call& c) { c.out.lse.shape[0] = 1; }, Code::invalid_shape, {"lse has batch 1", "o has batch 2"}},
    {"lse_transposed", dense, [](Call& c) { c.out.lse = tensor(Call::floats(c.lse), {2, 5, 4}); }, Code::invalid_shape, {"lse has heads 5", "o has heads 4"}},
    {"lse_tokens", packed, [](Call& c) { c.out.lse.shape[1] = 14; }, Code::invalid_shape, {"lse has total tokens 14", "o has total tokens 10"}},
    // Prefix sums and offsets.
    {"cu_k_missing", packed, [](Call& c) { c.in.packed.cu_k = {}; }, Code::invalid_packing, {"packed.cu_q is given, packed.cu_k is not"}},
    {"cu_q_missing", packed, [](Call& c) { c.in.packed.cu_q = {}; }, Code::invalid_packing, {"packed.cu_k is given, packed.cu_q is not"}},
    {"prefix_sums_of_a_dense_call", dense, [](Call& c) { c.in.packed = {tensor(c.cu_q, {3}), tensor(c.cu_k, {3})}; }, Code::invalid_shape, {"q has rank 4", "prefix sums", "rank 3"}},
    {"cu_q_rank_2", packed, [](Call& c) { c.in.packed.cu_q = tensor(c.cu_q, {3, 1}); }, Code::invalid_shape, {"packed.cu_q is i32[3, 1]", "[batch + 1]"}},
    {"cu_q_empty", packed, [](Call& c) { c.in.packed.cu_q = tensor(c.cu_q, {0}); }, Code::invalid_shape, {"packed.cu_q is i32[0]", "at least one"}},
    {"cu_k_longer", packed, [](Call& c) { c.in.packed.cu_k = tensor(c.cu_k, {4}); }, Code::invalid_shape, {"packed.cu_k is i32[4]", "[3]"}},
    {"cu_q_misaligned", packed, [](Call& c) { c.in.packed.cu_q.data = reinterpret_cast<char*>(c.cu_q) + 1; }, Code::invalid_stride, {"packed.cu_q lies at address", "4 bytes of i32"}},
    {"sinks_rank", dense, [](Call& c) { c.in.sinks = tensor(c.sinks, {1, 4}); }, Code::invalid_shape, {"sinks is f32[1, 4]", "[4]"}},
    {"sinks_of_key_heads", packed, [](Call& c) { c.in.sinks = tensor(c.sinks, {2}); }, Code::invalid_shape, {"sinks is f32[2]", "one logit for each head of q", "[4]"}},
    {"sinks_of_integers", dense, [](Call& c) { c.in.sinks = tensor(c.offsets, {4}); }, Code::invalid_dtype, {"sinks is i64", "f32, bf16 and f16"}},
    {"sinks_null", dense, [](Call& c) { c.in.sinks = tensor(static_cast<float*>(nullptr), {4}); }, Code::null_pointer, {"sinks has elements"}},
    {"o_on_sinks", dense, [](Call& c) { c.in.sinks = tensor(c.sinks, {4}); c.out.o.data = c.sinks; }, Code::overlap, {"shares memory with sinks"}},
    {"sinks_on_another_device", dense, [](Call& c) { c.in.sinks = tensor(c.sinks, {4}, {}, {DeviceType::cuda, 0}); }, Code::invalid_device, {"sinks is on cuda:0"}},
    {"q_offset_rank", dense, [](Call& c) { c.in.q_offset = tensor(c.offsets, {1, 2}); }, Code::invalid_shape, {"q_offset is i64[1, 2]", "[batch]"}},
    {"q_offset_length", dense, [](Call& c) { c.in.q_offset = tensor(c.offsets, {1}); }, Code::invalid_shape, {"q_offset is i64[1]", "[2]"}},
    {"q_offset_twice", dense, [](Call& c) { c.in.q_offset = tensor(c.offsets, {2}); c.options.q_offset = 41; }, Code::invalid_option, {"q_offset is given twice", "41", "i64[2]"}},
    {"q_offset_negative_stride", dense, [](Call& c) { c.in.q_offset = tensor(c.offsets + 1, {2}, {-1}); }, Code::invalid_stride, {"q_offset has stride -1"}},
    // Values of prefix sums, found before anything is written.
    {"cu_q_starts_off_0", packed, [](Call& c) { c.cu_q[0] = 1; }, Code::invalid_packing, {"packed.cu_q[0] is 1", "start at 0"}},
    {"cu_k_starts_negative", packed, [](Call& c) { c.cu_k[0] = -1; }, Code::invalid_packing, {"packed.cu_k[0] is -1", "start at 0"}},
    {"cu_q_decreases", packed, [](Call& c) { c.cu_q[1] = 11; }, Code::invalid_packing, {"packed.cu_q[2] is 10", "packed.cu_q[1] is 11", "never decrease"}},
    {"cu_k_passes_the_end", packed, [](Call& c) { c.cu_k[2] = 15; }, Code::invalid_packing, {"packed.cu_k[2] is 15", "k has 14 tokens"}},
    {"cu_q_passes_the_end", packed, [](Call& c) { c.cu_q[2] = 2147483647; }, Code::invalid_packing, {"packed.cu_q[2] is 2147483647", "q has 10 tokens"}},
    // Strides and addresses.
    {"q_last_stride", dense, [](Call& c) { c.in.q.stride[3] = 2; }, Code::invalid_stride, {"q has stride 2 over its dim", "must be 1"}},
    {"k_last_stride_0", dense, [](Call& c) { c.in.k.stride[3] = 0; }, Code::invalid_stride, {"k has stride 0 over its dim", "must be 1"}},
    {"o_last_stride", packed, [](Call& c) { c.out.o.stride[2] = 3; }, Code::invalid_stride, {"o has stride 3 over its dim", "must be 1"}},
    {"k_backwards", dense, [](Call& c) { c.in.k.stride[1] = -16; }, Code::invalid_stride, {"k has stride -16 over its tokens", "0 or more"}},
    {"lse_backwards", dense, [](Call& c) { c.out.lse.stride[2] = -1; }, Code::invalid_stride, {"lse has stride -1 over its tokens", "0 or more"}},
    {"q_misaligned", dense, [](Call& c) { c.in.q.data = c.q.bytes + 2; }, Code::invalid_stride, {"q lies at address", "4 bytes of f32"}},
    {"o_misaligned", dense, [](Call& c) { c.out.o.data = c.o.bytes + 1; }, Code::invalid_stride, {"o lies at address", "4 bytes of f32"}},
    {"o_one_batch_for_all", dense, [](Call& c) { c.out.o.stride[0] = 0; }, Code::invalid_stride, {"o has stride 0 over its batch", "a stride of 120 or more"}},
    {"o_rows_overlap", dense, [](Call& c) { c.out.o.stride[2] = 5; }, Code::invalid_stride, {"o has stride 5 over its heads", "cover 6", "a stride of 6 or more"}},
    {"o_heads_over_tokens", packed, [](Call& c) { c.out.o.stride[0] = 6; c.out.o.stride[1] = 54; }, Code::invalid_stride, {"stride 54 over its heads", "a stride of 60 or more"}},
    {"lse_one_place_twice", dense, [](Call& c) { c.out.lse.stride[2] = 0; }, Code::invalid_stride, {"lse has stride 0 over its tokens", "one place twice"}},
    {"lse_heads_collide", packed, [](Call& c) { c.out.lse.stride[0] = 9; }, Code::invalid_stride, {"lse has stride 9 over its heads", "a stride of 10 or more"}},
    // Sizes.
    {"q_too_large", dense, [](Call& c) { c.in.q = tensor(Call::floats(c.q), {2, huge, huge, 8}, {1, 1, 1, 1}); c.in.k.shape[2] = c.in.v.shape[2] = 1; }, Code::size_overflow, {"q is f32[2, 1099511627776, 1099511627776, 8]", "2^63 - 1"}},
    {"k_reaches_too_far", dense, [](Call& c) { c.in.k.stride[1] = std::numeric_limits<std::int64_t>::max() / 8; }, Code::size_overflow, {"k is f32[2, 7, 2, 8]", "1152921504606846975", "2^63 - 1"}},
    {"k_many_on_one_place", dense, [](Call& c) { for (Tensor* t : {&c.in.k, &c.in.v}) t->shape[1] = std::numeric_limits<std::int64_t>::max(), t->stride[1] = 0; }, Code::size_overflow, {"9223372036854775807", "2^63 - 1"}},
    {"o_reaches_too_far", dense, [](Call& c) { c.out.o.stride[0] = std::numeric_limits<std::int64_t>::max(); }, Code::size_overflow, {"o is f32", "9223372036854775807"}},
    {"v_passes_the_end_of_memory", dense, [](Call& c) { c.in.v.data = reinterpret_cast<void*>(~std::uintptr_t{0} - 63); }, Code::size_overflow, {"v (f32[2, 7, 2, 6])", "passes the end of memory"}},
    {"lse_reaches_too_far", dense, [](Call& c) { c.out.lse.stride[0] = huge << 22; }, Code::size_overflow, {"lse is f32", "4611686018427387904"}},
    // Overlap.
    {"o_is_q", dense, [](Call& c) { c.out.o.data = c.q.bytes; }, Code::overlap, {"o (f32[2, 5, 4, 6]", "shares memory with q", "960 bytes", "1280 bytes"}},
    {"o_on_the_end_of_k", dense, [](Call& c) { c.out.o.data = c.k.bytes + 4 * (2 * 7 * 2 * 8 - 1); }, Code::overlap, {"shares memory with k"}},
    {"o_on_v", packed, [](Call& c) { c.in.v.data = c.o.bytes + 4; }, Code::overlap, {"shares memory with v"}},
    {"o_on_cu_q", packed, [](Call& c) { std::memcpy(c.o.bytes + 64, c.cu_q, 12); c.in.packed.cu_q.data = c.o.bytes + 64; }, Code::overlap, {"shares memory with packed.cu_q"}},
    {"o_on_q_offset", dense, [](Call& c) { c.in.q_offset = tensor(c.offsets, {2}); c.out.o.data = c.offsets; }, Code::overlap, {"shares memory with q_offset"}},
    {"o_on_lse", dense, [](Call& c) { c.out.lse.data = c.o.bytes + 956; }, Code::overlap, {"o (", "shares memory with lse"}},
    {"lse_on_k", dense, [](Call& c) { c.out.lse.data = c.k.bytes; }, Code::overlap, {"lse (", "shares memory with k"}},
    {"lse_on_cu_k", packed, [](Call& c) { c.out.lse.data = c.cu_k; }, Code::overlap, {"lse (", "shares memory with packed.cu_k"}},
    {"o_in_the_gaps_of_q_but_too_wide", dense, [](Call& c) { c.in.q.stride = {5 * 64, 64, 14, 1}; c.out.o.stride = {5 * 64, 64, 14, 1}; c.out.o.data = c.q.bytes + 7 * 4; }, Code::overlap, {"shares memory with q"}},
    // Devices.
    {"k_on_another_device", dense, [](Call& c) { c.in.k.device = {DeviceType::cuda, 1}; }, Code::invalid_device, {"k is on cuda:1", "q on cpu"}},
    {"o_on_another_device", dense, [](Call& c) { c.out.o.device = {DeviceType::cuda, 0}; }, Code::invalid_device, {"o is on cuda:0", "q on cpu"}},
    {"lse_on_another_device", packed, [](Call& c) { c.out.lse.device = {DeviceType::cuda, 0}; }, Code::invalid_device, {"lse is on cuda:0"}},
    {"two_gpus", dense, [](Call& c) { for (Tensor* t : {&c.in.q, &c.in.k, &c.out.o, &c.out.lse}) t->device = {DeviceType::cuda, 0}; c.in.v.device = {DeviceType::cuda, 1}; }, Code::invalid_device, {"v is on cuda:1", "q on cuda:0"}},
    {"cu_q_on_another_device", packed, [](Call& c) { c.in.packed.cu_q.device = {DeviceType::cuda, 0}; }, Code::invalid_device, {"packed.cu_q is on cuda:0", "q on cpu"}},
    {"q_offset_on_another_device", dense, [](Call& c) { c.in.q_offset = tensor(c.offsets, {2}, {}, {DeviceType::cuda, 0}); }, Code::invalid_device, {"q_offset is on cuda:0"}},
    // Options.
    {"scale_nan", dense, [](Call& c) { c.options.scale = std::nanf(""); }, Code::invalid_option, {"scale is nan", "finite"}},
    {"scale_infinite", dense, [](Call& c) { c.options.scale = -std::numeric_limits<float>::infinity(); }, Code::invalid_option, {"scale is -inf", "finite"}},
};
// clang-format on

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class BadInput : public testing::TestWithParam<Row> {};

TEST_P(BadInput, IsRefusedBeforeAnythingIsWritten) {
  const Row& row = GetParam();
  Call call(row.packed);
  row.change(call);
  const auto before = call.contents();
  const Failure described = failure_of([&] {
    const Problem problem = describe(call.in, call.out, call.options);
    check_values(problem, call.in);
  });
  EXPECT_EQ(name(described.code), name(row.code)) << described.text;
  for (const char* part : row.parts)
    EXPECT_NE(described.text.find(part), std::string::npos) << "lacks: " << part << "\ntext: " << described.text;
  const Status status = try_attention(call.in, call.out, call.options);
  EXPECT_EQ(name(status.code), name(row.code)) << status.text;
  EXPECT_EQ(status.text, described.text) << "the call and describe() must say the same";
  EXPECT_TRUE(call.contents() == before) << "something was written";
}
INSTANTIATE_TEST_SUITE_P(Table, BadInput, testing::ValuesIn(rows),
                         [](const testing::TestParamInfo<Row>& row) { return std::string(row.param.name); });

// Without outputs the inputs are held to the same rules.
TEST(BadInputWithoutOutputs, IsRefused) {
  for (const Row& row : rows) {
    Call intact(row.packed), changed(row.packed);
    row.change(changed);
    changed.out = intact.out;
    const Failure with = failure_of([&] { describe(changed.in, intact.out, changed.options); });
    const Failure without = failure_of([&] { describe(changed.in, changed.options); });
    // What disagrees with these outputs alone is fine without them.
    if (with.text.starts_with("o ") || with.text.starts_with("lse ")) continue;
    EXPECT_EQ(with.text, without.text) << row.name;
  }
}

// ------------------------------------------------------------------------------------------------ what is allowed

struct Allowed {
  const char* name;
  bool packed;
  void (*change)(Call&);
};

// clang-format off
const Allowed allowed[] = {
    {"as_it_is", dense, [](Call&) {}},
    {"packed_as_it_is", packed, [](Call&) {}},
    {"no_lse", dense, [](Call& c) { c.out.lse = {}; }},
    {"no_queries", dense, [](Call& c) { c.in.q.shape[1] = c.out.o.shape[1] = c.out.lse.shape[2] = 0; }},
    {"no_keys", dense, [](Call& c) { c.in.k.shape[1] = c.in.v.shape[1] = 0; }},
    {"no_keys_no_pointer", dense, [](Call& c) { c.in.k.shape[1] = c.in.v.shape[1] = 0; c.in.k.data = c.in.v.data = nullptr; }},
    {"no_sequences", dense, [](Call& c) { for (Tensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.out.o, &c.out.lse}) t->shape[0] = 0, t->data = nullptr; }},
    {"no_packed_sequences", packed, [](Call& c) { c.in.packed.cu_q.shape[0] = c.in.packed.cu_k.shape[0] = 1; }},
    {"prefix_sums_of_int64", packed, [](Call& c) { static std::int64_t sums[] = {0, 4, 4}; c.in.packed.cu_q = c.in.packed.cu_k = tensor(sums, {3}); }},
    {"empty_sequences", packed, [](Call& c) { c.cu_q[1] = 0; c.cu_k[1] = 14; }},
    {"offsets_of_each", packed, [](Call& c) { c.in.q_offset = tensor(c.offsets, {2}); }},
    {"sinks", packed, [](Call& c) { c.in.sinks = tensor(c.sinks, {4}); }},
    {"one_offset_for_all", dense, [](Call& c) { c.in.q_offset = tensor(c.offsets, {2}, {0}); }},
    {"one_cache_for_all", dense, [](Call& c) { c.in.k.stride[0] = c.in.v.stride[0] = 0; }},
    {"strides_that_lead_nowhere", dense, [](Call& c) { for (Tensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.out.o, &c.out.lse}) t->shape[0] = 1, t->stride[0] = -huge; }},
    {"last_stride_of_dim_1", dense, [](Call& c) { c.in.v.shape[3] = c.out.o.shape[3] = 1; c.in.v.stride[3] = c.out.o.stride[3] = 77; }},
    {"lse_by_tokens", dense, [](Call& c) { c.out.lse = tensor(Call::floats(c.lse), {2, 4, 5}, {20, 1, 4}); }},
    {"scale_0", dense, [](Call& c) { c.options.scale = 0.0f; }},
    {"scale_negative", dense, [](Call& c) { c.options.scale = -1.0f; }},
    {"o_of_f32", dense, [](Call& c) { c.in.q.dtype = c.in.k.dtype = c.in.v.dtype = bf16; }},
    {"k_is_v", dense, [](Call& c) { c.in.v = c.in.k; c.out.o = tensor(Call::floats(c.o), {2, 5, 4, 8}); }},
    {"o_right_behind_q", dense, [](Call& c) { c.out.o.data = c.q.bytes + 1280; }},
    // o in the gaps between the rows of q.
    {"o_between_rows_of_q", dense, [](Call& c) { c.in.q.stride = {5 * 64, 64, 14, 1}; c.out.o.stride = {5 * 64, 64, 14, 1}; c.out.o.data = c.q.bytes + 8 * 4; }},
    // q | k | v | o in one [batch, tokens, 4, heads, dim].
    {"slices_of_one_buffer", dense, [](Call& c) {
       Tensor* slices[] = {&c.in.q, &c.in.k, &c.in.v, &c.out.o};
       for (int i = 0; i < 4; ++i) *slices[i] = tensor(Call::floats(c.o) + i * 8, {2, 3, 2, 4}, {3 * 32, 32, 4, 1});
       c.out.lse = tensor(Call::floats(c.lse), {2, 2, 3}); }},
};
// clang-format on

void PrintTo(const Allowed& row, std::ostream* out) { *out << row.name; }

class Allows : public testing::TestWithParam<Allowed> {};

TEST_P(Allows, Describes) {
  const Allowed& row = GetParam();
  Call call(row.packed);
  row.change(call);
  const Failure failure = failure_of([&] {
    const Problem problem = describe(call.in, call.out, call.options);
    check_values(problem, call.in);
    check_tensors(problem, call.in, call.out);
  });
  EXPECT_EQ(name(failure.code), "ok") << failure.text;
}
INSTANTIATE_TEST_SUITE_P(Table, Allows, testing::ValuesIn(allowed),
                         [](const testing::TestParamInfo<Allowed>& row) { return std::string(row.param.name); });

TEST(CheckValuesTest, LooksAtTheHostOnly) {
  Call call(packed);
  const Device gpu{DeviceType::cuda, 0};
  for (Tensor* t :
       {&call.in.q, &call.in.k, &call.in.v, &call.in.packed.cu_q, &call.in.packed.cu_k, &call.out.o, &call.out.lse})
    t->device = gpu;
  call.in.packed.cu_q.data = call.in.packed.cu_k.data = reinterpret_cast<void*>(64);  // would fault when read
  const Problem problem = describe(call.in, call.out);
  check_values(problem, call.in);
  EXPECT_EQ(problem.device, gpu);
  EXPECT_EQ(problem.batch, 2);
}

TEST(IntegerAtTest, FollowsTypeAndStride) {
  const std::int32_t narrow[] = {1, -2, 3, -4};
  const std::int64_t wide[] = {huge, -huge};
  EXPECT_EQ(integer_at(tensor(narrow, {4}), 3), -4);
  EXPECT_EQ(integer_at(tensor(narrow, {2}, {2}), 1), 3);
  EXPECT_EQ(integer_at(tensor(wide, {2}), 1), -huge);
}

// ------------------------------------------------------------------------------------------------ a plan's tensors

struct Mismatch {
  const char* name;
  bool packed;
  void (*change)(Call&);
  Code code;
  std::vector<const char*> parts;
};

// clang-format off
const Mismatch mismatches[] = {
    {"batch", dense, [](Call& c) { for (Tensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.out.o, &c.out.lse}) t->shape[0] = 1; }, Code::plan_mismatch, {"batch 2", "have 1"}},
    {"queries", dense, [](Call& c) { c.in.q.shape[1] = c.out.o.shape[1] = c.out.lse.shape[2] = 4; }, Code::plan_mismatch, {"tokens of q 5", "have 4"}},
    {"keys", packed, [](Call& c) { c.in.k.shape[0] = c.in.v.shape[0] = 13; }, Code::plan_mismatch, {"tokens of k 14", "have 13"}},
    {"query_heads", dense, [](Call& c) { c.in.q.shape[2] = c.out.o.shape[2] = c.out.lse.shape[1] = 2; }, Code::plan_mismatch, {"heads of q 4", "have 2"}},
    {"key_heads", dense, [](Call& c) { c.in.k.shape[2] = c.in.v.shape[2] = 1; }, Code::plan_mismatch, {"heads of k 2", "have 1"}},
    {"dim", dense, [](Call& c) { c.in.q.shape[3] = c.in.k.shape[3] = 4; }, Code::plan_mismatch, {"dim 8", "have 4"}},
    {"dim_v", dense, [](Call& c) { c.in.v.shape[3] = c.out.o.shape[3] = 2; }, Code::plan_mismatch, {"dim of v 6", "have 2"}},
    {"type", dense, [](Call& c) { for (Tensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.out.o}) t->dtype = f16; }, Code::plan_mismatch, {"type f32", "have f16"}},
    {"output_type", dense, [](Call& c) { for (Tensor* t : {&c.in.q, &c.in.k, &c.in.v}) t->dtype = f16; }, Code::plan_mismatch, {"type f32", "have f16"}},
    {"device", dense, [](Call& c) { for (Tensor* t : {&c.in.q, &c.in.k, &c.in.v, &c.out.o, &c.out.lse}) t->device = {DeviceType::cuda, 3}; }, Code::plan_mismatch, {"device cpu", "have cuda:3"}},
    {"lse", dense, [](Call& c) { c.out.lse = {}; }, Code::plan_mismatch, {"made with lse", "without"}},
    {"sinks", dense, [](Call& c) { c.in.sinks = tensor(c.sinks, {4}); }, Code::plan_mismatch, {"made without sinks"}},
    {"offsets", dense, [](Call& c) { c.in.q_offset = tensor(c.offsets, {2}); }, Code::plan_mismatch, {"made without a tensor q_offset"}},
    {"packing", packed, [](Call& c) { static Call other(dense); c.in = other.in, c.out = other.out; }, Code::plan_mismatch, {"made with prefix sums", "without"}},
    {"alignment", dense, [](Call& c) { c.in.q.data = c.q.bytes + 4; }, Code::plan_mismatch, {"strides of q", "multiples of 32", "multiples of 4"}},
    {"shared_rows", dense, [](Call& c) { c.in.k.stride[1] = 0; }, Code::plan_mismatch, {"rows of their own", "stride of 0"}},
    {"bad_input", dense, [](Call& c) { c.in.q.data = nullptr; }, Code::null_pointer, {"q has elements"}},
    {"bad_output", dense, [](Call& c) { c.out.o.data = c.q.bytes; }, Code::overlap, {"shares memory with q"}},
};
// clang-format on

TEST(CheckTensorsTest, NamesWhatDiffers) {
  for (const Mismatch& row : mismatches) {
    Call planned(row.packed), given(row.packed);
    const Problem problem = describe(planned.in, planned.out);
    row.change(given);
    const Failure failure = failure_of([&] { check_tensors(problem, given.in, given.out); });
    EXPECT_EQ(name(failure.code), name(row.code)) << row.name << ": " << failure.text;
    for (const char* part : row.parts)
      EXPECT_NE(failure.text.find(part), std::string::npos) << row.name << " lacks: " << part << "\n" << failure.text;
  }
}

TEST(CheckTensorsTest, HigherAlignmentIsWelcome) {
  Call call(dense);
  call.in.q.data = call.q.bytes + 4;
  const Problem problem = describe(call.in, call.out);
  EXPECT_EQ(problem.align_bytes(), 4);
  call.in.q.data = call.q.bytes;
  EXPECT_EQ(describe(call.in, call.out).align_bytes(), 8);
  check_tensors(problem, call.in, call.out);
}

// ------------------------------------------------------------------------------------------------ merge

struct MergeCall {
  Call first{false}, second{false}, result{false};
  Outputs a = first.out, b = second.out, out = result.out;
};

struct MergeRow {
  const char* name;
  void (*change)(MergeCall&);
  Code code;
  std::vector<const char*> parts;
};

// clang-format off
const MergeRow merge_rows[] = {
    {"as_it_is", [](MergeCall&) {}, Code::ok, {}},
    {"without_lse", [](MergeCall& m) { m.out.lse = {}; }, Code::ok, {}},
    {"onto_a", [](MergeCall& m) { m.out = m.a; }, Code::ok, {}},
    {"onto_b_and_both_the_same", [](MergeCall& m) { m.a = m.b; m.out = m.b; }, Code::ok, {}},
    {"packed", [](MergeCall& m) { for (Outputs* x : {&m.a, &m.b, &m.out}) x->o.rank = 3, x->o.shape = {40, 1, 6}, x->o.stride = {6, 6, 1}, x->lse.rank = 2, x->lse.shape = {1, 40}, x->lse.stride = {40, 1}; }, Code::ok, {}},
    {"other_types", [](MergeCall& m) { m.a.o.dtype = bf16; m.out.o.dtype = f16; }, Code::ok, {}},
    {"a_missing", [](MergeCall& m) { m.a.o = {}; }, Code::null_pointer, {"a.o is missing"}},
    {"lse_missing", [](MergeCall& m) { m.b.lse = {}; }, Code::null_pointer, {"b.lse is missing"}},
    {"rank", [](MergeCall& m) { m.a.o.rank = 2; }, Code::invalid_shape, {"a.o has rank 2", "rank 4", "rank 3"}},
    {"ranks_differ", [](MergeCall& m) { m.b.o.rank = 3; }, Code::invalid_shape, {"b.o has rank 3", "a.o has rank 4"}},
    {"tokens", [](MergeCall& m) { m.b.o.shape[1] = 4; }, Code::invalid_shape, {"b.o has tokens 4", "a.o has tokens 5"}},
    {"out_dim", [](MergeCall& m) { m.out.o.shape[3] = 5; }, Code::invalid_shape, {"out.o has dim 5", "a.o has dim 6"}},
    {"lse_tokens", [](MergeCall& m) { m.b.lse.shape[2] = 4; }, Code::invalid_shape, {"b.lse has tokens 4", "b.o has tokens 5"}},
    {"lse_type", [](MergeCall& m) { m.a.lse.dtype = f16; }, Code::invalid_dtype, {"a.lse is f16"}},
    {"integers", [](MergeCall& m) { m.out.o.dtype = i64; }, Code::invalid_dtype, {"out.o is i64"}},
    {"read_only", [](MergeCall& m) { m.out.o.read_only = true; }, Code::invalid_dtype, {"out.o", "read only"}},
    {"last_stride", [](MergeCall& m) { m.b.o.stride[3] = 2; }, Code::invalid_stride, {"b.o has stride 2"}},
    {"out_twice", [](MergeCall& m) { m.out.o.stride[0] = 0; }, Code::invalid_stride, {"out.o has stride 0"}},
    {"null", [](MergeCall& m) { m.a.o.data = nullptr; }, Code::null_pointer, {"a.o has elements"}},
    {"devices", [](MergeCall& m) { m.out.lse.device = {DeviceType::cuda, 0}; }, Code::invalid_device, {"out.lse is on cuda:0", "a.o on cpu"}},
    {"two_gpus", [](MergeCall& m) { for (Outputs* x : {&m.a, &m.b, &m.out}) x->o.device = x->lse.device = {DeviceType::cuda, x == &m.b}; }, Code::invalid_device, {"b.o is on cuda:1", "a.o on cuda:0"}},
    {"all_on_a_gpu", [](MergeCall& m) { for (Outputs* x : {&m.a, &m.b, &m.out}) x->o.device = x->lse.device = {DeviceType::cuda, 1}; }, Code::ok, {}},
    {"onto_a_shifted", [](MergeCall& m) { m.out.o.data = m.first.o.bytes + 4; }, Code::overlap, {"out.o", "shares memory with a.o"}},
    {"onto_a_transposed", [](MergeCall& m) { m.out.o.data = m.first.o.bytes; m.out.o.stride = {120, 6, 30, 1}; }, Code::overlap, {"shares memory with a.o"}},
    {"onto_an_lse", [](MergeCall& m) { m.out.o.data = m.second.lse.bytes; }, Code::overlap, {"out.o", "shares memory with b.lse"}},
    {"lse_onto_o", [](MergeCall& m) { m.out.lse.data = m.first.o.bytes; }, Code::overlap, {"out.lse", "shares memory with a.o"}},
    {"out_onto_itself", [](MergeCall& m) { m.out.lse.data = m.result.o.bytes + 64; }, Code::overlap, {"out.o", "shares memory with out.lse"}},
};
// clang-format on

TEST(CheckMergeTest, Table) {
  for (const MergeRow& row : merge_rows) {
    MergeCall m;
    row.change(m);
    const Failure failure = failure_of([&] { check_merge(m.a, m.b, m.out); });
    EXPECT_EQ(name(failure.code), name(row.code)) << row.name << ": " << failure.text;
    for (const char* part : row.parts)
      EXPECT_NE(failure.text.find(part), std::string::npos) << row.name << " lacks: " << part << "\n" << failure.text;
  }
}

}  // namespace
}  // namespace tessera::problem
