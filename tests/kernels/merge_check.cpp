#include "kernels/merge_check.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "conformance/oracle.hpp"
#include "gpu/merge.hpp"

namespace tessera::tests {
namespace {

using conformance::element;
using conformance::set_element;
using sim::Content;
using sim::Memory;

constexpr double infinity = std::numeric_limits<double>::infinity();

// O and LSE in memory of their own; what lies between the rows is NaN, whatever the type.
struct Part {
  std::unique_ptr<Memory> o_memory, lse_memory;
  Outputs view;

  Part(const MergeShape& s, DType dtype, Content content) {
    const std::int64_t row = s.dim + s.gap, rows = s.batch * s.tokens * s.heads;
    const auto o_bytes = static_cast<std::size_t>(((rows > 0 ? rows * row - s.gap : 0) + s.shift) * size_bytes(dtype));
    o_memory = std::make_unique<Memory>("o", o_bytes, content);
    lse_memory = std::make_unique<Memory>("lse", static_cast<std::size_t>(rows) * 2 * sizeof(float), content);
    void* const o = o_memory->as<char>() + s.shift * size_bytes(dtype);
    void* const lse = lse_memory->as<char>();
    const Device on{DeviceType::cuda, 0};
    if (s.packed) {  // heads apart, and every second number of an LSE
      view.o = tensor(o, dtype, {s.tokens, s.heads, s.dim}, {row, s.tokens * row, 1}, on);
      view.lse = tensor(lse, f32, {s.heads, s.tokens}, {2 * s.tokens, 2}, on);
    } else {
      view.o =
          tensor(o, dtype, {s.batch, s.tokens, s.heads, s.dim}, {s.tokens * s.heads * row, s.heads * row, row, 1}, on);
      view.lse = tensor(lse, f32, {s.batch, s.heads, s.tokens}, {s.heads * s.tokens, s.tokens, 1}, on);
    }
  }
  std::vector<char> bytes() const {
    std::vector<char> all(o_memory->as<char>(), o_memory->as<char>() + o_memory->bytes());
    all.insert(all.end(), lse_memory->as<char>(), lse_memory->as<char>() + lse_memory->bytes());
    return all;
  }
  void set_bytes(const std::vector<char>& all) const {
    std::memcpy(o_memory->as<char>(), all.data(), o_memory->bytes());
    std::memcpy(lse_memory->as<char>(), all.data() + o_memory->bytes(), lse_memory->bytes());
  }
};

struct Row {
  std::int64_t b, t, h;
};
std::int64_t o_at(const Part& p, const Row& r) {
  const auto& s = p.view.o.stride;
  return p.view.o.rank == 3 ? r.t * s[0] + r.h * s[1] : r.b * s[0] + r.t * s[1] + r.h * s[2];
}
std::int64_t lse_at(const Part& p, const Row& r) {
  const auto& s = p.view.lse.stride;
  return p.view.lse.rank == 2 ? r.h * s[0] + r.t * s[1] : r.b * s[0] + r.h * s[1] + r.t * s[2];
}
template <class Visit>
void for_rows(const MergeShape& s, Visit visit) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (std::int64_t h = 0; h < s.heads; ++h) visit(Row{b, t, h});
}

void fill(const MergeShape& s, const Part& a, const Part& b, std::mt19937& random) {
  std::normal_distribution<double> normal;
  const auto lse_of_a = [&](int kind) {
    return kind == 2 || kind == 4 ? -infinity : kind == 5 ? 3e38 : 30 * normal(random);
  };
  const auto lse_of_b = [&](int kind, double lse_a) {
    if (kind == 3 || kind == 4) return -infinity;
    if (kind == 5) return -3e38;
    if (kind == 7) return static_cast<double>(NAN);
    return kind == 6 ? lse_a : kind == 1 ? lse_a + normal(random) : 30 * normal(random);
  };
  int kind = 0;
  for_rows(s, [&](const Row& row) {
    const double lse_a = lse_of_a(kind), lse_b = lse_of_b(kind, lse_a);
    kind = (kind + 1) % 8;
    for (auto [part, lse] : {std::pair{&a, lse_a}, {&b, lse_b}}) {
      set_element(part->view.lse, lse_at(*part, row), lse);
      for (std::int64_t j = 0; lse != -infinity && j < s.dim; ++j)  // an empty part's O stays NaN
        set_element(part->view.o, o_at(*part, row) + j, j % 5 == 4 ? -0.0 : normal(random));
    }
  });
}

double half_a_step(DType dtype, double value) {
  const double size = std::max(std::abs(value), 0x1p-14);
  return size * (dtype == f32 ? 0x1p-24 : dtype == bf16 ? 0x1p-8 : 0x1p-11);
}
bool near(double got, double want, double allowed) {
  return std::isnan(want) ? std::isnan(got) : got == want || std::abs(got - want) <= allowed;
}

template <class... Parts>
[[noreturn]] void wrong(const MergeShape& s, const Row& r, const Parts&... parts) {
  std::ostringstream text;
  text << "dim " << s.dim << ", gap " << s.gap << ", shift " << s.shift << (s.packed ? ", packed" : "") << ", row ("
       << r.b << ", " << r.t << ", " << r.h << "): ";
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

void check_row(const MergeShape& s, const Row& r, const Part& a, const Part& b, const Part& out, bool with_lse) {
  const double lse_a = element(a.view.lse, lse_at(a, r)), lse_b = element(b.view.lse, lse_at(b, r));
  const bool has_a = lse_a != -infinity, has_b = lse_b != -infinity, both = has_a && has_b;
  const double top = std::fmax(lse_a, lse_b), sum = std::exp(lse_a - top) + std::exp(lse_b - top);
  const double lse = !has_a ? lse_b : !has_b ? lse_a : top + std::log(sum);
  const double got_lse = element(out.view.lse, lse_at(out, r));
  if (with_lse && !near(got_lse, lse, both ? 0x1p-21 * std::max(1.0, std::abs(lse)) : 0))
    wrong(s, r, "LSE ", got_lse, " instead of ", lse, ", of ", lse_a, " and ", lse_b);
  for (std::int64_t j = 0; j < s.dim; ++j) {
    const double x = has_a ? element(a.view.o, o_at(a, r) + j) : 0, y = has_b ? element(b.view.o, o_at(b, r) + j) : 0;
    const double wx = both ? x * std::exp(lse_a - top) / sum : x, wy = both ? y * std::exp(lse_b - top) / sum : y;
    const double want = both ? wx + wy : has_a ? x : y, got = element(out.view.o, o_at(out, r) + j);
    const double allowed = (both ? 0x1p-21 * (std::abs(wx) + std::abs(wy)) : 0) + half_a_step(out.view.o.dtype, want);
    if (!near(got, want, allowed) || (!both && std::signbit(got) != std::signbit(want)))
      wrong(s, r, "O[", j, "] ", got, " instead of ", want, ", of ", x, " and ", y, ", LSE ", lse_a, " and ", lse_b);
  }
}

// What is no element of the result must still be what it was.
void check_gaps(const MergeShape& s, const Part& out, const std::vector<char>& before, bool with_lse) {
  std::vector<char> after = out.bytes();
  const auto size = size_bytes(out.view.o.dtype);
  for_rows(s, [&](const Row& r) {
    const auto o = static_cast<std::size_t>((s.shift + o_at(out, r)) * size);
    std::memcpy(&after[o], &before[o], static_cast<std::size_t>(s.dim * size));
    const auto lse = out.o_memory->bytes() + static_cast<std::size_t>(lse_at(out, r)) * sizeof(float);
    if (with_lse) std::memcpy(&after[lse], &before[lse], sizeof(float));
  });
  if (after != before || !out.o_memory->intact() || !out.lse_memory->intact())
    wrong(s, {}, "memory beside the result was written");
}

bool same_bits(const Tensor& x, std::int64_t at_x, const Tensor& y, std::int64_t at_y, std::int64_t count) {
  const auto size = size_bytes(x.dtype);
  return std::memcmp(x.as<char>() + at_x * size, y.as<char>() + at_y * size, static_cast<std::size_t>(count * size)) ==
         0;
}

void check(sim::Engine& engine, const MergeShape& s, const MergeTypes& types, std::uint64_t seed, bool with_lse) {
  engine.schedule = {seed, seed % 2 ? sim::Timing::random : sim::Timing::late, 1 + static_cast<int>(seed % 3)};
  const gpu::Merge merge(engine);
  std::mt19937 random(static_cast<unsigned>(seed));
  const Part a(s, types.a, Content::given), b(s, types.b, Content::given), out(s, types.out, Content::nothing);
  fill(s, a, b, random);
  const std::vector<char> before = out.bytes(), of_a = a.bytes(), of_b = b.bytes();
  merge.run(a.view, b.view, {out.view.o, with_lse ? out.view.lse : Tensor{}}, {});
  for_rows(s, [&](const Row& r) { check_row(s, r, a, b, out, with_lse); });
  check_gaps(s, out, before, with_lse);
  if (a.bytes() != of_a || b.bytes() != of_b) wrong(s, {}, "a part was written");
  for (const auto& [part, restored] : {std::pair{&a, &of_a}, {&b, &of_b}}) {
    if (!with_lse || part->view.o.dtype != types.out) continue;
    merge.run(a.view, b.view, part->view, {});
    for_rows(s, [&](const Row& r) {
      if (!same_bits(part->view.o, o_at(*part, r), out.view.o, o_at(out, r), s.dim) ||
          !same_bits(part->view.lse, lse_at(*part, r), out.view.lse, lse_at(out, r), 1))
        wrong(s, r, "other bits in place, into ", part == &a ? "a" : "b");
    });
    part->set_bytes(*restored);
  }
}

}  // namespace

std::string merge_fault(sim::Engine& engine, const MergeShape& shape, const MergeTypes& types, std::uint64_t seed,
                        bool with_lse) {
  try {
    check(engine, shape, types, seed, with_lse);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace tessera::tests
