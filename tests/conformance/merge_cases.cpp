// What merge() owes: empty partial results, order, the whole from its parts.
#include <cmath>
#include <cstring>
#include <limits>

#include "check.hpp"
#include "named.hpp"

namespace tessera::conformance {
namespace {

// A partial result: o [b, tokens, heads, dim] and lse [b, heads, tokens], or packed.
struct Partial {
  std::unique_ptr<Buffer> o_buffer, lse_buffer;
  Outputs view{};
};

struct Shape {
  std::int64_t batch, tokens, heads, dim;
  bool packed;
  std::int64_t rows() const { return batch * tokens * heads; }
};

Partial make_partial(const Shape& s, DType dtype, std::int64_t shift) {
  Partial p;
  p.o_buffer = std::make_unique<Buffer>(dtype, s.rows() * s.dim, shift, Poison::output);
  p.lse_buffer = std::make_unique<Buffer>(f32, s.rows(), shift, Poison::output);
  if (s.packed) {
    p.view.o = tensor(p.o_buffer->data(), dtype, {s.tokens, s.heads, s.dim});
    p.view.lse = tensor(p.lse_buffer->data(), f32, {s.heads, s.tokens});
  } else {
    p.view.o = tensor(p.o_buffer->data(), dtype, {s.batch, s.tokens, s.heads, s.dim});
    p.view.lse = tensor(p.lse_buffer->data(), f32, {s.batch, s.heads, s.tokens});
  }
  return p;
}

// Random values; `empty` of the rows are empty, their o NaN.
Partial random_partial(const Shape& s, DType dtype, Random& r, double empty, float spread) {
  Partial p = make_partial(s, dtype, r.below(3));
  for (std::int64_t i = 0; i < s.rows() * s.dim; ++i) set_element(p.view.o, i, static_cast<double>(r.normal()));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const Sequence at{.index = b};
        const bool is_empty = r.chance(empty);
        set_element(p.view.lse, lse_offset(p.view.lse, at, t, h),
                    is_empty ? -infinity : static_cast<double>(spread * r.normal()));
        for (std::int64_t j = 0; is_empty && j < s.dim; ++j)
          set_element(p.view.o, q_row_offset(p.view.o, at, t, h) + j, std::nan(""));
      }
  return p;
}

void run_merge(const Subject& subject, const Outputs& a, const Outputs& b, const Partial& out) {
  try {
    subject.merge(a, b, out.view, {});
  } catch (const std::exception& error) {
    throw Failed{std::string("merge threw: ") + error.what()};
  }
  require(out.o_buffer->guards_intact() && out.lse_buffer->guards_intact(), "merge wrote beyond its output");
}

// The merge of several partial results in fp64, and how far `got` may be from it: the rule with E = 0, for one rounding
// per merge of an intermediate result that is rounded to `dtype`.
double judge_merge(const Shape& s, std::vector<const Partial*> parts, const Partial& got) {
  double worst = 0;
  const double merges = static_cast<double>(parts.size() - 1);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const Sequence at{.index = b};
        double top = -infinity, sum = 0;
        const auto lse_of = [&](const Partial& p) { return element(p.view.lse, lse_offset(p.view.lse, at, t, h)); };
        for (const Partial* p : parts) top = std::max(top, lse_of(*p));
        for (const Partial* p : parts)
          if (lse_of(*p) != -infinity) sum += std::exp(lse_of(*p) - top);
        const std::string where =
            " of batch " + std::to_string(b) + ", head " + std::to_string(h) + ", query " + std::to_string(t);
        const double lse = top == -infinity ? -infinity : top + std::log(sum), got_lse = lse_of(got);
        const double lse_allowed = top == -infinity ? 0 : merges * allowed_lse(lse, 0);
        require(lse == got_lse || std::abs(lse - got_lse) <= lse_allowed,
                "LSE" + where + ": got " + std::to_string(got_lse) + ", expected " + std::to_string(lse));
        for (std::int64_t j = 0; j < s.dim; ++j) {
          double o = 0, pv = 0, rounding = 0;
          for (const Partial* p : parts) {
            if (lse_of(*p) == -infinity) continue;
            const double share = std::exp(lse_of(*p) - top) / sum;
            const double value = element(p->view.o, q_row_offset(p->view.o, at, t, h) + j);
            o += share * value, pv += share * std::abs(value);
            rounding = std::max(rounding, one_rounding(value, got.view.o.dtype));
          }
          const double value = element(got.view.o, q_row_offset(got.view.o, at, t, h) + j);
          const double allowed =
              top == -infinity ? 0 : merges * allowed_o(o, 0, pv, got.view.o.dtype) + (merges - 1) * rounding;
          require(value == o || std::abs(value - o) <= allowed,
                  "O[" + std::to_string(j) + "]" + where + ": got " + std::to_string(value) + ", expected " +
                      std::to_string(o) + ", allowed " + std::to_string(allowed));
          if (allowed > 0) worst = std::max(worst, std::abs(value - o) / allowed);
        }
      }
  return worst;
}

bool same_bits(const Partial& a, const Partial& b) {
  const auto same = [](const Buffer& x, const Buffer& y) {
    return std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.elements() * size_bytes(x.dtype()))) == 0;
  };
  return same(*a.o_buffer, *b.o_buffer) && same(*a.lse_buffer, *b.lse_buffer);
}

constexpr Shape shapes[] = {{2, 5, 3, 33, false}, {1, 17, 4, 64, true}, {1, 1, 1, 1, false}, {3, 2, 7, 128, false}};

double two_empty(const Subject& subject, DType dtype) {
  Random r(5);
  for (const Shape& s : shapes) {
    const Partial a = random_partial(s, dtype, r, 1, 1), b = random_partial(s, dtype, r, 1, 1),
                  out = make_partial(s, dtype, 0);
    run_merge(subject, a.view, b.view, out);
    judge_merge(s, {&a, &b}, out);
  }
  return 0;
}

double empty_and_real(const Subject& subject, DType dtype) {
  Random r(6);
  for (const Shape& s : shapes) {
    const Partial none = random_partial(s, dtype, r, 1, 1), real = random_partial(s, dtype, r, 0, 5);
    const Partial left = make_partial(s, dtype, 0), right = make_partial(s, dtype, 0);
    run_merge(subject, none.view, real.view, left);
    run_merge(subject, real.view, none.view, right);
    require(same_bits(left, real), "an empty result merged with a real one is not the real one, bit for bit");
    require(same_bits(right, real), "a real result merged with an empty one is not the real one, bit for bit");
  }
  return 0;
}

double random_ones(const Subject& subject, DType dtype) {
  Random r(7);
  double worst = 0;
  for (const Shape& s : shapes)
    for (float spread : {0.0f, 1.0f, 30.0f, 1000.0f}) {
      const Partial a = random_partial(s, dtype, r, 0.2, spread), b = random_partial(s, dtype, r, 0.2, spread);
      const Partial out = make_partial(s, dtype, 1);
      run_merge(subject, a.view, b.view, out);
      worst = std::max(worst, judge_merge(s, {&a, &b}, out));
    }
  return worst;
}

double in_place(const Subject& subject, DType dtype) {
  Random r(8);
  for (const Shape& s : shapes) {
    const Partial a = random_partial(s, dtype, r, 0.2, 3), b = random_partial(s, dtype, r, 0.2, 3),
                  out = make_partial(s, dtype, 0);
    run_merge(subject, a.view, b.view, out);
    run_merge(subject, a.view, b.view, b);
    require(same_bits(out, b), "merging into b itself changes bits");
    const Partial again = random_partial(s, dtype, r, 0.2, 3), out2 = make_partial(s, dtype, 0);
    run_merge(subject, a.view, again.view, out2);
    run_merge(subject, a.view, again.view, a);
    require(same_bits(out2, a), "merging into a itself changes bits");
  }
  return 0;
}

// (a + b) + c and a + (b + c) are both the merge of three.
double associative(const Subject& subject, DType dtype) {
  Random r(9);
  double worst = 0;
  for (const Shape& s : shapes) {
    const Partial a = random_partial(s, dtype, r, 0.3, 4), b = random_partial(s, dtype, r, 0.3, 4),
                  c = random_partial(s, dtype, r, 0.3, 4);
    const Partial ab = make_partial(s, dtype, 0), bc = make_partial(s, dtype, 0), left = make_partial(s, dtype, 0),
                  right = make_partial(s, dtype, 0);
    run_merge(subject, a.view, b.view, ab);
    run_merge(subject, ab.view, c.view, left);
    run_merge(subject, b.view, c.view, bc);
    run_merge(subject, a.view, bc.view, right);
    worst = std::max({worst, judge_merge(s, {&a, &b, &c}, left), judge_merge(s, {&a, &b, &c}, right)});
  }
  return worst;
}

double nan_is_not_empty(const Subject& subject, DType dtype) {
  Random r(10);
  const Shape s{1, 2, 1, 8, false};
  const Partial a = random_partial(s, dtype, r, 0, 1), b = random_partial(s, dtype, r, 0, 1),
                out = make_partial(s, dtype, 0);
  set_element(a.view.lse, 0, std::nan(""));
  run_merge(subject, a.view, b.view, out);
  require(std::isnan(element(out.view.lse, 0)) && std::isnan(element(out.view.o, 0)), "a NaN partial result was lost");
  require(!std::isnan(element(out.view.lse, 1)) && !std::isnan(element(out.view.o, 8)),
          "a NaN row reached another row");
  return 0;
}

// Keys [0, a) and [a, n) computed apart and merged are the whole, by the rule.
double split_sum(const Subject& subject, DType dtype) {
  double worst = 0;
  const char* lines[] = {"b=2 sq=33 sk=290 hq=4 hkv=2 d=40",
                         "b=1 sq=70 sk=150 hq=2 hkv=1 d=64 mask=causal family=growing",
                         "b=1 sq=20 sk=500 hq=2 hkv=2 d=16 mask=\"window(100, 5)\" family=falling",
                         "b=1 sq=9 sk=300 hq=4 hkv=2 d=16 mask=causal sinks=1 seed=4"};
  for (const char* text : lines) {
    CaseSpec spec = parse_case(text);
    spec.dtype = dtype, spec.out = f32;
    const CaseData data = make_data(spec);
    const Expectation whole = expect(data.inputs, data.options, f32, all_rows(data.inputs, data.options));
    for (std::int64_t cut : {std::int64_t{0}, std::int64_t{1}, spec.tokens_k / 3, std::int64_t{128}, spec.tokens_k}) {
      OutputSet parts[2] = {data.make_outputs(spec), data.make_outputs(spec)};
      for (int side = 0; side < 2; ++side) {
        Inputs in = data.inputs;
        if (side == 1) in.sinks = {};  // they join once
        Options options = data.options;
        const std::int64_t first = side == 0 ? 0 : cut, count = side == 0 ? cut : spec.tokens_k - cut;
        for (Tensor* t : {&in.k, &in.v}) {
          t->data = static_cast<char*>(t->data) + first * t->stride[1] * size_bytes(t->dtype);
          t->shape[1] = count;
        }
        options.q_offset = data.sequences[0].q_offset - first;  // positions count from the part's first key
        call(subject, data, in, parts[side], options, 1 + side, Scratch::arena, "a part");
      }
      const OutputSet merged = data.make_outputs(spec);
      subject.merge(parts[0].outputs, parts[1].outputs, merged.outputs, {});
      const Verdict verdict = judge(whole, merged.outputs);
      require(static_cast<bool>(verdict), line(spec) + " cut at key " + std::to_string(cut) + ": " + verdict.first);
      worst = std::max(worst, verdict.worst);
    }
  }
  return worst;
}

NamedCase of_merge(std::string name, std::string owed, double (*body)(const Subject&, DType)) {
  return {std::move(name), std::move(owed), true, [body](const Subject& subject, DType dtype) {
            return outcome_of([&] { return subject.merge ? body(subject, dtype) : 0.0; });
          }};
}

}  // namespace

std::vector<NamedCase> merge_cases() {
  return {of_merge("merge.two_empty", "empty", two_empty),
          of_merge("merge.empty_and_real", "the real one unchanged, bit for bit", empty_and_real),
          of_merge("merge.random", "the sums of the definition", random_ones),
          of_merge("merge.in_place", "the output may be an input", in_place),
          of_merge("merge.associative", "by the rule", associative),
          of_merge("merge.nan_is_not_empty", "NaN reaches its row, and only its row", nan_is_not_empty),
          of_merge("merge.split_sum", "parts over keys [0, a) and [a, n) merge to the whole", split_sum)};
}

}  // namespace tessera::conformance
