// What can only be refused with the numbers in hand. What lies on a device is not copied back to be looked at; the
// kernels clamp it.
// Must not know: devices' abilities, tile sizes, backends.
#include "problem/fail.hpp"
#include "problem/validate.hpp"

namespace tessera::problem {

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

bool on_host(const Tensor& t) { return t.device.type == DeviceType::cpu; }

void check_length(const Problem& p, std::int64_t sequence, std::int64_t length) {
  if (length >= 0 && length <= p.tokens_kv) return;
  if (p.paged)
    fail(Code::invalid_pages, "pages.lengths[", sequence, "] is ", length, ", the block table has room for ",
         p.tokens_kv / p.page_size, " pages of ", p.page_size, " tokens: 0 to ", p.tokens_kv, " is allowed");
  fail(Code::invalid_pages, "pages.lengths[", sequence, "] is ", length, ", k has ", p.tokens_kv, " tokens: 0 to ",
       p.tokens_kv, " is allowed");
}

// The entries that a sequence uses; what stands behind them is never looked at.
void check_entries(const Tensor& table, std::int64_t sequence, std::int64_t length, std::int64_t page_size,
                   std::int64_t pages) {
  const std::int32_t* row = table.as<const std::int32_t>() + sequence * table.stride[0];
  const std::int64_t used = length / page_size + (length % page_size != 0);
  for (std::int64_t i = 0; i < used; ++i)
    if (row[i] < 0 || row[i] >= pages)
      fail(Code::invalid_pages, "pages.block_table[", sequence, "][", i, "] is ", row[i], ", and the sequence's ",
           length, " tokens use its first ", used, " entries; k has ", pages, " pages: 0 to ", pages - 1,
           " is allowed");
}

}  // namespace

void check_values(const Problem& problem, const Inputs& inputs) {
  const Packed& packed = inputs.packed;
  const PagedKv& pages = inputs.pages;
  if (problem.packed && on_host(packed.cu_q))
    check_prefix_sums("packed.cu_q", packed.cu_q, problem.batch, "q", problem.tokens_q);
  if (problem.packed_keys() && on_host(packed.cu_k))
    check_prefix_sums("packed.cu_k", packed.cu_k, problem.batch, "k", problem.tokens_kv);
  if (!problem.lengths || !on_host(pages.lengths)) return;
  const bool table_too = problem.paged && on_host(pages.block_table);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t length = integer_at(pages.lengths, b);
    check_length(problem, b, length);
    if (table_too) check_entries(pages.block_table, b, length, problem.page_size, inputs.k.shape[0]);
  }
}

}  // namespace tessera::problem
