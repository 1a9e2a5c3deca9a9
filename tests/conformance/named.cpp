#include "named.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "check.hpp"
#include "reservation.hpp"

namespace tessera::conformance {
NamedCase of_lines(std::string name, std::string owed, std::vector<std::string> lines, bool every_dtype) {
  auto run = [lines = std::move(lines)](const Subject& subject, DType dtype) {
    Outcome all;
    for (const std::string& text : lines) {
      CaseSpec spec = parse_case(text);
      spec.dtype = dtype;
      if (text.find("out=") == std::string::npos) spec.out = dtype;
      if (const std::string why = unfit(subject, spec); !why.empty()) {
        all.skipped.push_back(line(spec) + ": " + why);
        continue;
      }
      const Outcome one = run_case(subject, spec);
      all.worst = std::max(all.worst, one.worst);
      if (one.passed()) continue;
      all.failure = line(spec) + ": " + one.failure;
      break;
    }
    return all;
  };
  return {std::move(name), std::move(owed), every_dtype, std::move(run)};
}

NamedCase of_body(std::string name, std::string owed, std::function<double(const Subject&, DType)> body,
                  bool every_dtype) {
  auto run = [body = std::move(body)](const Subject& subject, DType dtype) {
    return outcome_of([&] { return body(subject, dtype); });
  };
  return {std::move(name), std::move(owed), every_dtype, std::move(run)};
}

CaseSpec spec_of(const std::string& text, DType dtype) {
  CaseSpec spec = parse_case(text);
  spec.dtype = dtype;
  if (text.find("out=") == std::string::npos) spec.out = dtype;
  return spec;
}

OutputSet run_once(const Subject& subject, const CaseSpec& spec, const CaseData& data) {
  OutputSet set = data.make_outputs(spec);
  call(subject, data, data.inputs, set, data.options, spec.threads, spec.workspace, "the call");
  return set;
}

void require_same_bits(const CaseData& data, const Outputs& a, const Outputs& b, const std::string& what) {
  for (const Sequence& s : data.sequences) {
    const std::string text = first_difference(a, s, b, s, 0, 0, s.q_count);
    require(text.empty(), what + ": " + text);
  }
}

namespace {

// --------------------------------------------------------------------------------------------------- rows and garbage
double constant_gives_exact_mean(const Subject& subject, DType dtype) {
  for (const char* text : {"b=2 sq=70 sk=333 hq=2 hkv=1 d=40", "b=1 sq=9 sk=1000 hq=1 hkv=1 d=16",
                           "b=1 sq=33 sk=33 hq=1 hkv=1 d=64 mask=causal", "b=1 sq=1 sk=7 hq=3 hkv=3 d=1"}) {
    const CaseSpec spec = spec_of(text, dtype);
    CaseData data = make_data(spec);
    for (const Tensor* t : {&data.inputs.q, &data.inputs.k, &data.inputs.v})
      for (std::int64_t i = 0; i < t->elements(); ++i) set_element(*t, i, 1000);
    for (const auto& buffer : data.buffers) buffer->remember();
    const OutputSet got = run_once(subject, spec, data);
    for (std::int64_t i = 0; i < got.outputs.o.elements(); ++i)
      require(element(got.outputs.o, i) == 1000, std::string(text) + ": the mean of values 1000 is " +
                                                     std::to_string(element(got.outputs.o, i)) + " at element " +
                                                     std::to_string(i));
  }
  return 0;
}

// Every score -inf, with NaN in the values: the rows are empty.
double all_scores_neg_inf(const Subject& subject, DType dtype) {
  const CaseSpec spec = spec_of("b=1 sq=37 sk=50 hq=2 hkv=2 d=24 mask=full", dtype);
  const CaseData data = make_data(spec);
  for (std::int64_t q = 0; q < spec.tokens_q; ++q)
    for (std::int64_t h = 0; h < spec.heads_q; ++h)
      set_element(data.inputs.q, q_row_offset(data.inputs.q, data.sequences[0], q, h) + 3, 0.75);
  for (std::int64_t k = 0; k < spec.tokens_k; ++k)
    for (std::int64_t h = 0; h < spec.heads_kv; ++h) {
      set_element(data.inputs.k, k_row_offset(data.inputs.k, data.sequences[0], k, h) + 3, -infinity);
      set_element(data.inputs.v, k_row_offset(data.inputs.v, data.sequences[0], k, h) + k % spec.dim_v, std::nan(""));
    }
  for (const auto& buffer : data.buffers) buffer->remember();
  const OutputSet got = run_once(subject, spec, data);
  const Verdict verdict =
      judge(expect(data.inputs, data.options, spec.out, all_rows(data.inputs, data.options)), got.outputs);
  require(static_cast<bool>(verdict), verdict.first);
  return verdict.worst;
}

// A NaN in key 200 under a causal mask: the rows before it are as if it were not there.
double one_nan_key_reaches_its_rows_only(const Subject& subject, DType dtype) {
  const CaseSpec spec = spec_of("b=1 sq=300 sk=300 hq=2 hkv=1 d=32 mask=causal", dtype);
  const CaseData data = make_data(spec);
  const OutputSet clean = run_once(subject, spec, data);
  set_element(data.inputs.k, k_row_offset(data.inputs.k, data.sequences[0], 200, 0) + 5, std::nan(""));
  set_element(data.inputs.v, k_row_offset(data.inputs.v, data.sequences[0], 200, 0) + 7, infinity);
  for (const auto& buffer : data.buffers) buffer->remember();
  const OutputSet got = run_once(subject, spec, data);
  const std::string text =
      first_difference(clean.outputs, data.sequences[0], got.outputs, data.sequences[0], 0, 0, 200);
  require(text.empty(), "a row that does not attend to the NaN changed: " + text);
  for (std::int64_t q = 200; q < 300; ++q)
    require(std::isnan(element(got.outputs.o, q_row_offset(got.outputs.o, data.sequences[0], q, 1))) &&
                std::isnan(element(got.outputs.lse, lse_offset(got.outputs.lse, data.sequences[0], q, 1))),
            "query " + std::to_string(q) + " attends to a NaN and does not show it");
  return 0;
}

// A cache of 128 tokens with NaN past the used lengths, each sequence a view of its used part.
double cache_with_nan_tail(const Subject& subject, DType dtype) {
  double worst = 0;
  const CaseSpec cache = spec_of("b=4 sq=3 sk=128 hq=4 hkv=2 d=64 mask=causal", dtype);
  const std::int64_t used[] = {32, 64, 96, 48};
  CaseData data = make_data(cache);
  for (std::int64_t b = 0; b < 4; ++b)
    for (std::int64_t k = used[b]; k < 128; ++k)
      for (std::int64_t h = 0; h < 2; ++h)
        for (const Tensor* t : {&data.inputs.k, &data.inputs.v})
          for (std::int64_t i = 0; i < 64; ++i)
            set_element(*t, k_row_offset(*t, data.sequences[b], k, h) + i, std::nan(""));
  for (const auto& buffer : data.buffers) buffer->remember();
  for (std::int64_t b = 0; b < 4; ++b) {
    CaseSpec spec = cache;
    spec.batch = 1, spec.tokens_k = used[b];
    CaseData one;
    one.inputs.q = rows_of(data.inputs.q, data.sequences[b], true, 0, 3);
    one.inputs.k = rows_of(data.inputs.k, data.sequences[b], false, 0, used[b]);
    one.inputs.v = rows_of(data.inputs.v, data.sequences[b], false, 0, used[b]);
    one.options = data.options;
    one.sequences = sequences(one.inputs, one.options);
    const OutputSet got = run_once(subject, spec, one);
    const Verdict verdict =
        judge(expect(one.inputs, one.options, spec.out, all_rows(one.inputs, one.options)), got.outputs);
    require(static_cast<bool>(verdict), verdict.first);
    worst = std::max(worst, verdict.worst);
  }
  return worst;
}

// ------------------------------------------------------------------------------------------------------------- masks
double window_of_everything_is_causal(const Subject& subject, DType dtype) {
  // 16 384 keys, 8 heads, dim 128; the first, middle and last queries stand for all.
  CaseSpec spec = spec_of("b=1 sq=8 sk=16384 hq=8 hkv=2 d=128 mask=causal rows=12", dtype);
  const CaseData data = make_data(spec);
  for (std::int64_t offset : {0, 8189, 16376}) {
    Options causal_options{.mask = causal(), .q_offset = offset}, window_options = causal_options;
    window_options.mask = window(16383, 0);
    const OutputSet a = data.make_outputs(spec), b = data.make_outputs(spec);
    call(subject, data, data.inputs, a, causal_options, 2, Scratch::arena, "causal");
    call(subject, data, data.inputs, b, window_options, 1, Scratch::arena, "window(16383, 0)");
    require_same_bits(data, a.outputs, b.outputs, "window(16383, 0) and causal differ");
  }
  return 0;
}

double negative_window_is_refused(const Subject&, DType) {
  for (auto [left, right] : {std::pair<std::int64_t, std::int64_t>{-1, 0}, {0, -1}, {-7, 12}}) {
    try {
      window(left, right);
    } catch (const Error& error) {
      require(error.code() == Code::invalid_option, std::string("window(-1, 0) has another code: ") + error.what());
      const std::int64_t bad = left < 0 ? left : right;
      require(std::string(error.what()).find(std::to_string(bad)) != std::string::npos,
              std::string("the error does not name the value: ") + error.what());
      continue;
    }
    throw Failed{"window(" + std::to_string(left) + ", " + std::to_string(right) + ") was taken"};
  }
  return 0;
}

double large_masks_are_cheap(const Subject&, DType) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const std::int64_t tokens = 96000;
  const TileMap map(causal() & window(1023, 0));
  require(map.decided(), "a window under a causal mask is not decided");
  double covered = 0;
  for (std::int64_t q = 0; q < tokens; q += 128) {
    const Cover cover = map.cover(q, q + 128, 0, tokens);
    covered += static_cast<double>(cover.k_end - cover.k_begin);
  }
  const double pairs = map.pairs(0, tokens, tokens);
  const double exact = 1024.0 * static_cast<double>(tokens) - 1023.0 * 1024.0 / 2;
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  require(pairs == exact, "pairs of a causal window of 1024 over 96000 tokens: got " + std::to_string(pairs) +
                              ", expected " + std::to_string(exact));
  require(covered * 128 < exact * 1.25, "the covered boxes are much larger than the mask");
  require(ms < 200, "96000 x 96000 took " + std::to_string(ms) + " ms");
  return 0;
}

// ------------------------------------------------------------------------------------------------------------- sizes
// One axis at a time gets a stride of 2^30 elements (or enough for its last row to lie beyond 2^31).
double strides_beyond_32_bits(const Subject& subject, DType dtype) {
  double worst = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const CaseSpec spec = spec_of("b=4 sq=5 sk=37 hq=4 hkv=4 d=16 mask=causal", dtype);
    const CaseData small = make_data(spec);
    CaseData data;
    data.options = small.options, data.sequences = small.sequences;
    std::vector<std::unique_ptr<Reservation>> memory;
    const auto spread = [&](const Tensor& from, bool of_queries) {
      Tensor to = from;
      to.stride = {0, 0, 0, 1};
      std::int64_t dense = from.shape[3];
      for (int a = 2; a >= 0; --a) {
        if (a == axis) continue;
        to.stride[a] = dense, dense *= from.shape[a];
      }
      to.stride[axis] = (std::int64_t{1} << 32) / from.shape[axis] / 64 * 64;
      memory.push_back(std::make_unique<Reservation>(
          static_cast<std::size_t>((to.stride[axis] * from.shape[axis] + dense) * size_bytes(from.dtype))));
      to.data = memory.back()->data();
      for (const Sequence& s : small.sequences)
        for (std::int64_t t = 0; t < from.shape[1]; ++t)
          for (std::int64_t h = 0; h < from.shape[2]; ++h)
            for (std::int64_t i = 0; i < from.shape[3]; ++i) {
              const auto at = of_queries ? q_row_offset : k_row_offset;
              set_element(to, at(to, s, t, h) + i, element(from, at(from, s, t, h) + i));
            }
      return to;
    };
    data.inputs.q = spread(small.inputs.q, true);
    data.inputs.k = spread(small.inputs.k, false);
    data.inputs.v = spread(small.inputs.v, false);
    const OutputSet dense = small.make_outputs(spec);
    OutputSet wide = small.make_outputs(spec);
    wide.outputs.o = spread(dense.outputs.o, true);
    call(subject, data, data.inputs, wide, data.options, 2, Scratch::arena, "the call");
    call(subject, small, small.inputs, dense, small.options, 2, Scratch::arena, "the dense call");
    const Verdict verdict =
        judge(expect(small.inputs, small.options, spec.out, all_rows(small.inputs, small.options)), wide.outputs);
    require(static_cast<bool>(verdict), "axis " + std::to_string(axis) + ": " + verdict.first);
    require_same_bits(small, dense.outputs, wide.outputs, "strides change bits");
    worst = std::max(worst, verdict.worst);
  }
  return worst;
}

double a_million_tokens_plan_in_milliseconds(const Subject& subject, DType dtype) {
  if (!subject.workspace_bytes) return 0;
  const std::int64_t tokens = 1 << 20, dim = 64;
  const Reservation memory(static_cast<std::size_t>(tokens * dim * 4 * 4));
  char* at = static_cast<char*>(memory.data());
  const auto next = [&] {
    const Tensor t = tensor(static_cast<void*>(at), dtype, {1, tokens, 1, dim});
    at += tokens * dim * 4;
    return t;
  };
  const Inputs inputs{.q = next(), .k = next(), .v = next()};
  const Outputs outputs{.o = next()};
  for (const Mask& mask : {full(), causal(), causal() & window(4095, 0)}) {
    const auto start = std::chrono::steady_clock::now();
    const std::size_t bytes = subject.workspace_bytes(inputs, outputs, {.mask = mask}, 2);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    require(ms < 100, "planning 1M tokens took " + std::to_string(ms) + " ms");
    require(bytes < (64u << 20), "1M tokens want a workspace of " + std::to_string(bytes) + " bytes");
  }
  return 0;
}

// ----------------------------------------------------------------------------------------------------------- serving
// The longest query of a batch goes from 9 to 10 tokens: nobody's bits change.
double longest_query_grows(const Subject& subject, DType dtype) {
  const CaseSpec ten =
      spec_of("packed=10/19802,5/700 hq=14 hkv=2 d=64 mask=causal invariant=1 threads=2 rows=16 seed=11", dtype);
  CaseSpec nine = ten;
  nine.packed[0].q = 9;
  nine = normalised(nine);
  CaseData data = make_data(ten);
  const OutputSet all = run_once(subject, ten, data);
  CaseData fewer;  // the same rows without the first query; the others keep their positions
  fewer.options = data.options, fewer.inputs = data.inputs;
  const Tensor& q = data.inputs.q;
  fewer.inputs.q = tensor(static_cast<void*>(static_cast<char*>(q.data) + q.stride[0] * size_bytes(q.dtype)), q.dtype,
                          {q.shape[0] - 1, q.shape[1], q.shape[2]}, {q.stride[0], q.stride[1], 1});
  const std::int32_t cu_q[] = {0, 9, 14};
  fewer.inputs.packed.cu_q = tensor(cu_q, {3});
  fewer.sequences = sequences(fewer.inputs, fewer.options);
  const OutputSet got = run_once(subject, nine, fewer);
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::int64_t skipped = i == 0 ? 1 : 0, count = fewer.sequences[i].q_count;
    const std::string text =
        first_difference(all.outputs, data.sequences[i], got.outputs, fewer.sequences[i], skipped, 0, count);
    require(text.empty(), "with 9 instead of 10 queries: " + text);
  }
  const Verdict verdict =
      judge(expect(data.inputs, data.options, ten.out, sample_rows(data.inputs, data.options, ten.rows, ten.seed)),
            all.outputs);
  require(static_cast<bool>(verdict), verdict.first);
  return verdict.worst;
}

std::vector<NamedCase> make_named_cases() {
  std::vector<NamedCase> all{
      of_lines("rows.causal_more_queries_than_keys", "the first 1024 rows are empty: O 0, LSE -inf",
               {"b=1 sq=2048 sk=1024 hq=2 hkv=1 d=32 mask=causal rows=96", "b=2 sq=40 sk=7 hq=2 hkv=2 d=32 mask=causal",
                "b=1 sq=33 sk=0 hq=1 hkv=1 d=16 mask=causal threads=3"}),
      of_lines("rows.packed_long_queries_short_keys", "finite; empty rows are empty",
               {"packed=76/1,34/1,146/1 hq=1 hkv=1 d=32 mask=causal scale=1.59"}),
      of_lines("rows.empty_sequence_inside", "as if each sequence ran alone",
               {"packed=150/100,0/100,150/100 hq=2 hkv=2 d=64 mask=causal invariant=1",
                "packed=150/100,0/100,150/100 hq=2 hkv=2 d=64 mask=full invariant=1 threads=3 index=i64"}),
      of_lines("rows.lengths_0_and_1", "right shapes and values",
               {"packed=0/0,1/3,0/0,1/5 hq=9 hkv=3 d=64", "packed=0/0,1/0 hq=9 hkv=3 d=64", "packed=0/5 hq=3 hkv=3 d=8",
                "packed=0/0 slack=3/2 hq=3 hkv=3 d=8"}),
      of_lines("rows.no_queries_but_keys", "ends; every sequence right",
               {"packed=0/1,0/0,1023/2045 hq=2 hkv=2 d=128 mask=causal rows=16"}),
      of_lines("rows.total_past_the_end", "rows past the last sequence are neither read nor written",
               {"packed=200/210,286/276 slack=212/212 hq=2 hkv=1 d=32 mask=causal",
                "packed=3/4 slack=5/6 hq=2 hkv=1 d=32 layout=sliced"}),
      of_body("rows.cache_with_nan_tail", "NaN past the used length never appears", cache_with_nan_tail),
      of_body("rows.constant_1000", "the exact mean of V", constant_gives_exact_mean),
      of_lines("rows.nan_attended", "NaN reaches the rows that attend to it, and no other",
               {"b=1 sq=150 sk=260 hq=4 hkv=2 d=48 mask=causal family=nan_attended seed=3",
                "b=2 sq=65 sk=65 hq=2 hkv=1 d=16 mask=\"window(7, 2)\" family=nan_attended seed=4"}),
      of_lines("rows.nan_masked", "NaN and Inf in masked keys never appear",
               {"b=1 sq=300 sk=400 hq=2 hkv=1 d=32 mask=\"window(17, 3)\" offset=60 family=nan_masked",
                "b=1 sq=130 sk=300 hq=2 hkv=2 d=33 mask=causal family=nan_masked layout=sliced",
                "b=1 sq=3 sk=4000 hq=4 hkv=2 d=16 mask=\"window(900, 0)\" family=nan_masked"}),
      of_body("rows.one_nan_key", "rows before it keep their bits", one_nan_key_reaches_its_rows_only),
      of_lines("rows.nan_masked_over_splits", "done again over several partial results, its neighbours untouched",
               {"b=1 sq=70 sk=3200 hq=32 hkv=4 d=8 mask=causal family=nan_masked rows=40"}),
      of_lines("rows.neg_inf_scores", "a score of -inf is a masked score",
               {"b=1 sq=70 sk=210 hq=2 hkv=2 d=40 mask=causal family=neg_inf",
                "b=1 sq=2 sk=3 hq=1 hkv=1 d=4 family=neg_inf"}),
      of_body("rows.all_scores_neg_inf", "an empty row, whatever V holds", all_scores_neg_inf),

      of_lines("masks.window_129", "no zero rows",
               {"b=1 sq=129 sk=129 hq=2 hkv=2 d=64 mask=\"window(32, 64)\"",
                "b=2 sq=129 sk=129 hq=2 hkv=2 d=64 mask=\"window(32, 64)\" invariant=1 threads=2"}),
      of_body("masks.window_of_everything_is_causal", "bitwise equal", window_of_everything_is_causal),
      of_lines("masks.window_of_zero", "width zero: only the key at the query's own position on that side",
               {"b=1 sq=70 sk=70 hq=1 hkv=1 d=16 mask=\"window(0, 0)\"",
                "b=1 sq=70 sk=90 hq=1 hkv=1 d=16 mask=\"window(0, 5)\"",
                "b=1 sq=70 sk=60 hq=1 hkv=1 d=16 mask=\"window(5, 0)\""}),
      of_lines("masks.gap_around_one_query", "keys on both sides of a gap",
               {"b=1 sq=1 sk=64 hq=2 hkv=1 d=16 mask=\"!window(5, 3)\" offset=30",
                "b=2 sq=3 sk=61 hq=4 hkv=2 d=8 mask=\"!window(6, 2)\" offset=29"}),
      of_body("masks.negative_window", "a clear error", negative_window_is_refused, false),
      of_lines("masks.one_mask_many_lengths", "right for every length",
               {"b=1 sq=130 sk=4096 hq=1 hkv=1 d=16 mask=\"causal & window(300, 0)\" rows=64",
                "b=1 sq=77 sk=77 hq=1 hkv=1 d=16 mask=\"causal & window(300, 0)\"",
                "b=1 sq=301 sk=400 hq=1 hkv=1 d=16 mask=\"causal & window(300, 0)\"",
                "b=1 sq=1 sk=302 hq=1 hkv=1 d=16 mask=\"causal & window(300, 0)\""}),
      of_lines("masks.custom_band_with_offset", "right at a distance from the diagonal",
               {"b=1 sq=1024 sk=1024 hq=1 hkv=1 d=16 mask=\"((q - k) <= 4) & ((k - q) <= 4)\" offset=4 rows=128"}),
      of_lines("masks.that_name_head_and_batch", "evaluated pair by pair",
               {"b=3 sq=40 sk=50 hq=4 hkv=2 d=16 mask=\"(k + h) <= (q + b)\""}),
      of_lines("masks.far_positions", "offsets far from the keys",
               {"b=1 sq=20 sk=40 hq=1 hkv=1 d=8 mask=causal offset=4611686018427387904",
                "b=1 sq=20 sk=40 hq=1 hkv=1 d=8 mask=\"window(5, 5)\" offset=-4611686018427387904",
                "b=1 sq=20 sk=40 hq=1 hkv=1 d=8 mask=\"!causal\" offset=-9007199254740993",
                "b=3 sq=9 sk=40 hq=1 hkv=1 d=8 mask=causal offsets=0,31,-4"}),
      of_body("masks.large_is_cheap", "96 000 x 96 000 in milliseconds", large_masks_are_cheap, false),

      of_lines("sizes.gqa_groups", "no power of two needed",
               {"b=1 sq=37 sk=70 hq=6 hkv=2 d=32 mask=causal", "b=1 sq=1 sk=300 hq=10 hkv=2 d=32 mask=causal",
                "b=2 sq=3 sk=90 hq=12 hkv=2 d=32", "b=1 sq=9 sk=90 hq=14 hkv=2 d=64 mask=causal",
                "b=1 sq=2 sk=65 hq=27 hkv=3 d=16", "b=1 sq=5 sk=200 hq=14 hkv=1 d=32 mask=\"window(50, 0)\"",
                "b=1 sq=33 sk=100 hq=16 hkv=1 d=32 mask=causal", "packed=1/40,5/33 hq=35 hkv=5 d=16 mask=causal"}),
      of_lines("sizes.batch_100000", "no launch-grid limit shows",
               {"b=100000 sq=1 sk=2 hq=1 hkv=1 d=2 mask=causal threads=2"}, false),
      of_lines("sizes.heads_71280", "no launch-grid limit shows",
               {"b=1 sq=2 sk=3 hq=71280 hkv=71280 d=2 threads=2", "b=1 sq=1 sk=3 hq=71280 hkv=3 d=2"}, false),
      of_body("sizes.strides_beyond_32_bits", "64-bit offsets on every axis", strides_beyond_32_bits),
      of_lines(
          "sizes.views", "transposed, sliced, interleaved and shared views",
          {"b=2 sq=40 sk=70 hq=4 hkv=2 d=32 layout=bhsd mask=causal", "b=2 sq=40 sk=70 hq=4 hkv=2 d=31 layout=sliced",
           "b=2 sq=50 sk=50 hq=4 hkv=2 d=24 layout=qkv mask=causal", "b=3 sq=50 sk=60 hq=4 hkv=2 d=24 layout=shared",
           "packed=40/40,30/30 hq=4 hkv=2 d=24 layout=qkv mask=causal shift=1"}),
      of_body("sizes.a_million_tokens_plan", "milliseconds, and a workspace of megabytes",
              a_million_tokens_plan_in_milliseconds),
      of_lines(
          "sizes.many_keys", "key splits and their merge",
          {"b=1 sq=1 sk=20000 hq=4 hkv=1 d=32", "b=1 sq=40 sk=7001 hq=1 hkv=1 d=16 mask=causal family=growing rows=32",
           "b=1 sq=2 sk=9217 hq=2 hkv=2 d=16 family=falling threads=4 workspace=exact",
           "packed=3/7000,2/12,1/3073 hq=2 hkv=1 d=16 mask=causal threads=3 workspace=exact"}),
      of_lines(
          "sinks.join_the_denominator_once", "over tiles, key splits, heads in a tile, packed rows, score changes",
          {"b=2 sq=150 sk=300 hq=6 hkv=2 d=32 mask=causal sinks=1", "b=2 sq=1 sk=7000 hq=16 hkv=2 d=32 sinks=1",
           "b=1 sq=3 sk=700 hq=64 hkv=8 d=64 mask=\"causal & window(127, 0)\" sinks=1 rows=64",
           "packed=40/40,1/300,0/9,30/0 hq=4 hkv=4 d=24 mask=causal sinks=1 index=i64",
           "b=1 sq=70 sk=90 hq=4 hkv=1 d=16 score=\"softcap(30)\" sinks=1 scale=0.5",
           "b=1 sq=70 sk=90 hq=4 hkv=1 d=16 score=\"s * 8\" sinks=1 family=growing",
           "b=1 sq=40 sk=90 hq=8 hkv=1 d=16 sinks=1 scale=0", "b=1 sq=40 sk=90 hq=8 hkv=1 d=16 sinks=1 scale=-0.25",
           "b=2 sq=70 sk=200 hq=4 hkv=2 d=40 mask=causal sinks=1 family=outlier",
           "b=1 sq=40 sk=90 hq=8 hkv=8 d=16 sinks=1 family=tiny"}),
      of_lines("sinks.rows_that_attend_to_nothing", "O = 0 and LSE = the sink",
               {"b=1 sq=90 sk=20 hq=8 hkv=2 d=16 mask=causal sinks=1", "b=1 sq=5 sk=0 hq=8 hkv=2 d=16 sinks=1",
                "b=1 sq=40 sk=70 hq=8 hkv=2 d=16 sinks=1 family=neg_inf"}),
      of_lines("sinks.not_finite", "a sink of NaN reaches its head, NaN keys their rows",
               {"b=2 sq=40 sk=70 hq=16 hkv=2 d=16 mask=causal sinks=1 family=nan_attended",
                "b=2 sq=1 sk=70 hq=16 hkv=2 d=16 mask=causal sinks=1 family=nan_attended seed=2",
                "b=2 sq=40 sk=70 hq=16 hkv=2 d=16 mask=causal sinks=1 family=nan_masked"}),

      of_body("serving.longest_query_grows", "batch_invariant: same bits", longest_query_grows),
      of_lines("serving.window_1023_decode", "right",
               {"b=1 sq=8 sk=1300 hq=32 hkv=16 d=256 mask=\"causal & window(1023, 0)\" rows=24"}),
  };
  std::vector<std::string> dims;
  for (int d : {1, 2, 15, 31, 56, 59, 72, 80, 96, 111, 224, 511, 512})
    dims.push_back("b=1 sq=35 sk=45 hq=2 hkv=1 d=" + std::to_string(d) + " mask=causal");
  for (const char* pair : {"d=128 dv=64", "d=192 dv=128", "d=1 dv=512", "d=512 dv=1", "d=3 dv=7", "d=65 dv=63"})
    dims.push_back("b=1 sq=35 sk=45 hq=2 hkv=1 " + std::string(pair) + " out=f32");
  all.push_back(of_lines("sizes.dims", "right for every dim, dv != d too", dims));
  for (NamedCase& c : page_cases()) all.push_back(std::move(c));
  for (NamedCase& c : mod_cases()) all.push_back(std::move(c));
  for (NamedCase& c : merge_cases()) all.push_back(std::move(c));
  return all;
}

}  // namespace

const std::vector<NamedCase>& named_cases() {
  static const std::vector<NamedCase> all = make_named_cases();
  return all;
}

}  // namespace tessera::conformance
