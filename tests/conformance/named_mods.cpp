// What masks and score changes owe by name: ready-made ones on every kind of call, rows that a mask empties, and what
// is not finite in a tensor that a mod reads.
#include <cmath>
#include <limits>
#include <set>

#include "check.hpp"
#include "named.hpp"

namespace tessera::conformance {
namespace {

// A mod on: grouped heads, packed sequences (one without queries), positions by call and by sequence, dim_v != dim,
// one query for many keys.
std::vector<std::string> on_every_call(const std::string& mod) {
  return {"b=2 sq=67 sk=67 hq=6 hkv=2 d=32 " + mod,
          "packed=40/70,1/33,0/5,17/17,20/9 hq=4 hkv=2 d=24 invariant=1 threads=2 " + mod,
          "b=1 sq=33 sk=150 hq=4 hkv=1 d=16 offset=70 threads=3 workspace=exact " + mod,
          "b=3 sq=9 sk=140 hq=4 hkv=2 d=16 offsets=0,131,-4 " + mod,
          "b=1 sq=70 sk=90 hq=2 hkv=1 d=48 dv=80 out=f32 " + mod,
          "b=1 sq=70 sk=90 hq=2 hkv=1 d=80 dv=24 layout=sliced " + mod,
          "b=2 sq=1 sk=700 hq=14 hkv=2 d=64 " + mod,
          "b=1 sq=2 sk=5000 hq=4 hkv=1 d=16 threads=2 " + mod};
}

double judged(const CaseSpec& spec, const CaseData& data, const OutputSet& got) {
  const Verdict verdict =
      judge(expect(data.inputs, data.options, spec.out, all_rows(data.inputs, data.options)), got.outputs);
  require(static_cast<bool>(verdict), verdict.first);
  return verdict.worst;
}

// The only tensor that the case reads.
Tensor captured(const CaseData& data) {
  require(data.inputs.bind.end() - data.inputs.bind.begin() == 1, "the case reads another number of tensors");
  return data.inputs.bind.begin()->tensor;
}

double not_finite_in_a_bias(const Subject& subject, DType dtype) {
  const CaseSpec spec =
      spec_of("b=1 sq=150 sk=150 hq=4 hkv=2 d=32 mask=causal score=\"s + bias[q][k]\" threads=2", dtype);
  const CaseData data = make_data(spec);
  const OutputSet clean = run_once(subject, spec, data);
  const Tensor bias = captured(data);
  const auto set = [&](std::int64_t q, std::int64_t k, double value) {
    set_element(bias, q * bias.stride[0] + k * bias.stride[1], value);
  };
  set(80, 100, std::nan("")), set(81, 149, infinity);  // masked: nobody attends to them
  set(40, 10, -infinity);                              // one key less
  for (std::int64_t k = 0; k <= 60; ++k) set(60, k, -infinity);
  set(90, 20, std::nan("")), set(120, 119, infinity);
  for (const auto& buffer : data.buffers) buffer->remember();
  const OutputSet got = run_once(subject, spec, data);
  const Sequence& s = data.sequences[0];
  const std::set<std::int64_t> touched{40, 60, 90, 120};
  for (std::int64_t q = 0; q < 150; ++q) {
    const std::string text = first_difference(clean.outputs, s, got.outputs, s, q, q, 1);
    require(text.empty() || touched.count(q), "a row that does not attend to the change changed: " + text);
    require(!text.empty() || !touched.count(q), "query " + std::to_string(q) + " does not show its bias");
  }
  for (std::int64_t h = 0; h < spec.heads_q; ++h) {
    const auto o = [&](std::int64_t q) { return element(got.outputs.o, q_row_offset(got.outputs.o, s, q, h) + 5); };
    const auto lse = [&](std::int64_t q) { return element(got.outputs.lse, lse_offset(got.outputs.lse, s, q, h)); };
    require(o(60) == 0 && lse(60) == -infinity, "a row whose scores are all -inf is not empty");
    require(std::isnan(o(90)) && std::isnan(lse(90)), "a NaN in the bias does not show in its row");
    require(std::isnan(o(120)), "an infinite score does not show in its row");
  }
  return judged(spec, data, got);
}

// The same along the keys, under a window: rows before it and past it keep their bits.
double one_nan_weight_reaches_its_rows_only(const Subject& subject, DType dtype) {
  const CaseSpec spec =
      spec_of("b=1 sq=300 sk=300 hq=2 hkv=1 d=32 mask=\"causal & window(40, 0)\" score=\"s + weight[k]\"", dtype);
  const CaseData data = make_data(spec);
  const OutputSet clean = run_once(subject, spec, data);
  const Tensor weight = captured(data);
  set_element(weight, 200 * weight.stride[0], std::nan(""));
  for (const auto& buffer : data.buffers) buffer->remember();
  const OutputSet got = run_once(subject, spec, data);
  const Sequence& s = data.sequences[0];
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 200}, {241, 59}}) {
    const std::string text = first_difference(clean.outputs, s, got.outputs, s, first, first, count);
    require(text.empty(), "a row that does not attend to the NaN changed: " + text);
  }
  for (std::int64_t q = 200; q <= 240; ++q)
    require(std::isnan(element(got.outputs.o, q_row_offset(got.outputs.o, s, q, 1))) &&
                std::isnan(element(got.outputs.lse, lse_offset(got.outputs.lse, s, q, 1))),
            "query " + std::to_string(q) + " attends to a NaN and does not show it");
  return judged(spec, data, got);
}

// A layout of single pairs made for many tokens serves fewer; one of fewer is clamped: its last row and key serve the
// rest. Of a mask tensor, which is read at the positions themselves, only the queries may be more.
double mask_tensor_of_another_size(const Subject& subject, DType dtype) {
  double worst = 0;
  const auto judge_mask = [&](const std::string& mask, std::int64_t rows, std::int64_t columns) {
    const CaseSpec spec = spec_of("b=1 sq=100 sk=100 hq=2 hkv=1 d=16 mask=\"" + mask + "\"", dtype);
    CaseData data = make_data(spec);
    Buffer seen(b8, rows * columns, 0, Poison::input);
    for (std::int64_t i = 0; i < rows * columns; ++i)
      static_cast<std::uint8_t*>(seen.data())[i] = (i / columns * 7 + i % columns * 5) % 11 < 6;
    data.inputs.bind = {{"seen", tensor(seen.data(), b8, {rows, columns})}};
    worst = std::max(worst, judged(spec, data, run_once(subject, spec, data)));
  };
  for (const std::int64_t size : {64, 300}) judge_mask("block_sparse(seen, 1, 1)", size, size);
  judge_mask("mask_tensor(seen)", 300, 100);
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{99, 100}, {100, 99}, {100, 101}}) {
    bool refused = false;
    try {
      judge_mask("mask_tensor(seen)", rows, columns);
    } catch (const Failed& failed) {
      refused = failed.text.find("entries, there are 100") != std::string::npos;
    }
    require(refused, "a mask tensor of " + std::to_string(rows) + " x " + std::to_string(columns) + " was taken");
  }
  return worst;
}

}  // namespace

std::vector<NamedCase> mod_cases() {
  return {
      of_lines("masks.window_on_every_call", "grouped heads, packed, positions, dim_v != dim",
               on_every_call("mask=\"window(20, 3)\"")),
      of_lines("masks.causal_window_on_every_call", "grouped heads, packed, positions, dim_v != dim",
               on_every_call("mask=\"causal & window(20, 0)\"")),
      of_lines("masks.documents_on_every_call", "grouped heads, packed, positions, dim_v != dim",
               on_every_call("mask=\"documents(ids) & causal\"")),
      of_lines("masks.documents_from_offsets_on_every_call", "grouped heads, packed, positions, dim_v != dim",
               on_every_call("mask=\"documents_from_offsets(cu) & causal\"")),
      of_lines("masks.documents_from_offsets_by_sequence", "each sequence has its own",
               {"b=3 sq=130 sk=130 hq=4 hkv=2 d=16 mask=\"documents_from_offsets(cu, 2) & causal\" threads=2",
                "b=3 sq=5 sk=300 hq=4 hkv=2 d=16 mask=\"documents_from_offsets(cu, 2)\" offsets=0,131,-4",
                "packed=40/70,1/33,0/5,17/17 hq=4 hkv=2 d=24 mask=\"documents_from_offsets(cu, 2)\""}),
      of_lines("masks.many_documents", "no memory of tokens x tokens",
               {"b=1 sq=4096 sk=4096 hq=1 hkv=1 d=16 mask=\"documents(ids) & causal\" rows=64 threads=2"}),
      of_lines("masks.rows_emptied", "O 0 and LSE -inf, whatever the values hold",
               {"b=1 sq=70 sk=90 hq=4 hkv=2 d=16 mask=\"(k <= q) & (k > q)\"",
                "b=1 sq=70 sk=90 hq=4 hkv=2 d=16 mask=\"(q % 2 == 0) & causal\" family=nan_masked",
                "b=2 sq=150 sk=150 hq=2 hkv=1 d=16 mask=\"(q // 16 % 2 == 0) & window(30, 4)\" threads=2",
                "b=2 sq=40 sk=50 hq=4 hkv=2 d=16 mask=\"h != 1\" score=\"s + slope[h] * (k - q)\"",
                "b=3 sq=40 sk=50 hq=2 hkv=2 d=16 mask=\"b == 1\" score=\"softcap(20.0)\" invariant=0",
                "packed=20/30,0/9,33/5 hq=4 hkv=2 d=16 mask=\"!causal\" score=\"s + bias[q][k]\"",
                "b=1 sq=50 sk=60 hq=2 hkv=1 d=16 mask=\"window(5, 5)\" offset=58 score=\"alibi(slope)\"",
                "b=1 sq=9 sk=3300 hq=2 hkv=1 d=16 mask=\"(q % 3 == 0) & causal\" score=\"softcap(9.0)\" threads=3"}),
      of_body("masks.mask_tensor_of_another_size", "a layout: its part, or clamped; a mask tensor: refused",
              mask_tensor_of_another_size),

      of_lines("scores.softcap_on_every_call", "grouped heads, packed, positions, dim_v != dim",
               on_every_call("mask=causal score=\"softcap(5.0)\"")),
      of_lines(
          "scores.softcap_that_saturates",
          "1.8 times the error of standard attention, in six of 300 seeds over the rule: a tanh that was off by 5 "
          "units",
          {"b=1 sq=191 sk=34 hq=2 hkv=1 d=8 dtype=f32 mask=\"window(2, 107)\" score=\"-(21.25 * tanh(s / 21.25))\" "
           "offset=-7 family=huge lse=0 seed=410367886",
           "b=1 sq=191 sk=34 hq=2 hkv=1 d=8 dtype=f32 mask=\"window(2, 107)\" score=\"-(21.25 * tanh(s / 21.25))\" "
           "offset=-7 family=huge lse=0 seed=1204"}),
      of_lines("scores.alibi_on_every_call", "grouped heads, packed, positions, dim_v != dim",
               on_every_call("mask=causal score=\"alibi(slope)\"")),
      of_lines("scores.alibi_without_a_mask", "both directions", on_every_call("score=\"alibi(slope)\"")),
      of_lines("scores.softcap_then_alibi_in_a_window", "one after the other",
               on_every_call("mask=\"causal & window(30, 0)\" score=\"9.0 * tanh(s / 9.0) + slope[h] * (k - q)\"")),
      of_lines("scores.table_on_every_call", "a distance beyond the table is its nearest",
               on_every_call("mask=causal score=\"s + table[h][k - q + 20]\"")),
      of_lines("scores.bias_on_every_call", "grouped heads, packed, positions, dim_v != dim",
               on_every_call("mask=causal score=\"s + bias[h][q][k]\"")),
      of_lines("masks.integers_beyond_floats", "compared exactly, whichever heads share an item",
               {"b=1 sq=1 sk=1 hq=2 hkv=1 d=1 mask=\"q - k <= k + h * 134217728\" offset=134217730",
                "b=1 sq=3 sk=40 hq=4 hkv=1 d=8 mask=\"q - k <= k + h * 134217728\" offset=134217730"}),
      of_lines("scores.integers_past_2_22", "the same bits under any cut, on both sides of what floats hold",
               {"b=1 sq=300 sk=700 hq=2 hkv=1 d=16 offset=4194200 invariant=1 threads=3 "
                "score=\"s + tanh(0.003 * real(abs(q - k) + k))\"",
                "b=1 sq=2 sk=7000 hq=4 hkv=1 d=16 offset=4197304 invariant=1 threads=2 "
                "score=\"where(min(q - k, q) < 4194304 + h, s / 3.0, sigmoid(s) + 0.1 * real(min(q - k, k)))\""}),
      of_lines(
          "masks.near_ties", "reals are compared in fp64, whichever tile a pair lies in",
          {"b=1 sq=200 sk=300 hq=2 hkv=1 d=16 invariant=1 threads=2 mask=\"real(k) / 3.0 <= real(q) * 0.3333333333\"",
           "b=1 sq=200 sk=300 hq=2 hkv=1 d=16 invariant=1 mask=\"exp(0.01 * q) * 0.5 <= exp(0.01 * k)\""}),
      of_lines("scores.of_zeros", "no zero has a sign that the interpreter does not see",
               {"b=1 sq=1 sk=1 hq=1 hkv=1 d=1 score=\"s + tanh(1.0 / real(-(q + k)))\"",
                "b=1 sq=1 sk=1 hq=1 hkv=1 d=1 score=\"tanh(1.0 / abs(-0.0 * exp(s)))\""}),
      of_lines("scores.that_ignore_the_score", "the weights of the tensor alone",
               on_every_call("mask=causal score=\"weight[k] + 0.1 * h\"")),
      of_lines("scores.that_divide_by_the_score", "what a masked pair would become never shows",
               {"b=1 sq=70 sk=90 hq=4 hkv=2 d=16 mask=causal family=constant score=\"8.0 / s\"",
                "b=1 sq=150 sk=150 hq=4 hkv=2 d=16 mask=causal score=\"where(k <= q, 4.0 / (1.0 + abs(s)), 1.0 / (s - "
                "s))\"",
                "b=1 sq=3 sk=4000 hq=4 hkv=2 d=16 mask=\"causal & window(900, 0)\" score=\"where(q - k <= 900, s, 1.0 "
                "/ (s - s))\" threads=2"}),
      of_lines("scores.of_huge_scores", "finite where the capped score is",
               {"b=1 sq=70 sk=90 hq=4 hkv=2 d=16 mask=causal family=huge score=\"softcap(30.0)\""}),
      of_body("scores.not_finite_in_a_bias", "reaches the rows that attend to it, and no other", not_finite_in_a_bias),
      of_body("scores.one_nan_weight", "rows before and past its window keep their bits",
              one_nan_weight_reaches_its_rows_only),
  };
}

}  // namespace tessera::conformance
