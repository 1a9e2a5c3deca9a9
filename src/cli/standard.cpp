#include "cli/standard.hpp"

#include <cblas.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "cli/crew.hpp"
#include "cli/memory.hpp"
#include "cli/standard_rows.hpp"
#include "conformance/oracle.hpp"

namespace tessera::cli {
namespace {

using conformance::Sequence;

// The widest that this machine has: a user's compiler would make the same of -march=native.
const StandardRows& widest_rows() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return standard_rows_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return standard_rows_avx2;
#endif
  return standard_rows_scalar;
}

int row_type(DType dtype) { return dtype == DType::bf16 ? 1 : dtype == DType::f16 ? 2 : 0; }

// Floats of each buffer; reused for every head.
struct Sizes {
  std::size_t scores = 0, q = 0, k = 0, v = 0, o = 0;
  std::size_t total() const { return scores + q + k + v + o; }
};

Sizes sizes(const Inputs& in, DType out, const std::vector<Sequence>& sequences) {
  std::size_t scores = 0, queries = 0, keys = 0;
  for (const Sequence& s : sequences) {
    scores = std::max(scores, static_cast<std::size_t>(s.q_count) * static_cast<std::size_t>(s.k_count));
    queries = std::max(queries, static_cast<std::size_t>(s.q_count));
    keys = std::max(keys, static_cast<std::size_t>(s.k_count));
  }
  const auto dim = static_cast<std::size_t>(conformance::dim_of(in.q));
  const auto dim_v = static_cast<std::size_t>(conformance::dim_of(in.v));
  Sizes made{scores, 0, 0, 0, 0};
  if (in.q.dtype != DType::f32) made.q = queries * dim, made.k = keys * dim, made.v = keys * dim_v;
  if (out != DType::f32) made.o = queries * dim_v;
  return made;
}

std::int64_t clamped_sum(std::int64_t a, std::int64_t b, std::int64_t most) {
  std::int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) sum = b < 0 ? 0 : most;
  return std::clamp<std::int64_t>(sum, 0, most);
}

}  // namespace

struct StandardAttention::State {
  Inputs in;
  Outputs out;
  Options options;
  int threads;
  Crew crew;
  TileMap tiles;
  std::vector<Sequence> sequences;
  Block scores, q, k, v, o;
  const StandardRows& rows = widest_rows();

  State(const Inputs& inputs, const Outputs& outputs, const Options& asked, int thread_count)
      : in(inputs),
        out(outputs),
        options(asked),
        threads(thread_count),
        crew(thread_count),
        tiles(asked.mask),
        sequences(conformance::sequences(inputs, asked)) {
    const Sizes floats = sizes(in, out.o.dtype, sequences);
    const auto block = [](std::size_t count) { return count == 0 ? Block() : Block(count * sizeof(float)); };
    scores = block(floats.scores);
    q = block(floats.q), k = block(floats.k), v = block(floats.v), o = block(floats.o);
  }

  // One operand as sgemm wants it: rows of floats and the stride between them.
  struct Matrix {
    float* data;
    int row_stride;
  };
  Matrix floats_of(const Tensor& t, std::int64_t offset, std::int64_t count, const Block& room) {
    const std::int64_t row = t.stride[t.rank - 3], dim = conformance::dim_of(t);
    if (t.dtype == DType::f32) return {t.as<float>() + offset, static_cast<int>(std::max(row, dim))};
    float* const floats = static_cast<float*>(room.data());
    for (std::int64_t i = 0; i < count; ++i)
      rows.widen(t.as<std::uint16_t>() + offset + i * row, row_type(t.dtype), floats + i * dim, dim);
    return {floats, static_cast<int>(dim)};
  }

  void run_head(const Sequence& s, std::int64_t head, std::int64_t head_kv, bool new_kv) {
    const int queries = static_cast<int>(s.q_count), keys = static_cast<int>(s.k_count);
    const int dim = static_cast<int>(conformance::dim_of(in.q)), dim_v = static_cast<int>(conformance::dim_of(in.v));
    const Matrix mq = floats_of(in.q, q_row_offset(in.q, s, 0, head), queries, q);
    // Widened once for the heads of a group.
    const std::int64_t kv_rows = new_kv ? keys : 0;
    const Matrix mk = floats_of(in.k, k_row_offset(in.k, s, 0, head_kv), kv_rows, k);
    const Matrix mv = floats_of(in.v, k_row_offset(in.v, s, 0, head_kv), kv_rows, v);
    const std::int64_t o_row = out.o.stride[out.o.rank - 3], o_offset = q_row_offset(out.o, s, 0, head);
    const bool narrow = out.o.dtype != DType::f32;
    const Matrix mo =
        narrow ? Matrix{static_cast<float*>(o.data()), dim_v}
               : Matrix{out.o.as<float>() + o_offset, static_cast<int>(std::max<std::int64_t>(o_row, dim_v))};

    constexpr float log2_e = 1.44269504f;
    float* const s_values = static_cast<float*>(scores.data());
    const float scale = conformance::scale_of(in, options) * log2_e;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, queries, keys, dim, scale, mq.data, mq.row_stride, mk.data,
                mk.row_stride, 0.0f, s_values, keys);

    std::vector<float> inverse(static_cast<std::size_t>(queries));
    auto softmax = [&](int worker) {
      const int begin = static_cast<int>(std::int64_t{queries} * worker / threads);
      const int end = static_cast<int>(std::int64_t{queries} * (worker + 1) / threads);
      for (int row = begin; row < end; ++row) {
        KeyRange ranges[TileMap::max_bands];
        int count = 0;
        const std::int64_t position = s.q_offset + row;
        for (const Band& band : tiles.bands()) {
          const std::int64_t first = clamped_sum(position, band.lo, keys);
          const std::int64_t last = band.hi == unbounded ? keys : clamped_sum(position, band.hi + 1, keys);
          if (first < last) ranges[count++] = {first, last};
        }
        const float sum = rows.softmax(s_values + std::int64_t{row} * keys, keys, ranges, count);
        inverse[static_cast<std::size_t>(row)] = sum > 0 ? 1 / sum : 0;
      }
    };
    crew.run(softmax);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, queries, dim_v, keys, 1.0f, s_values, keys, mv.data,
                mv.row_stride, 0.0f, mo.data, mo.row_stride);
    // Normalised last: dim_v products a row instead of `keys`.
    for (int row = 0; row < queries; ++row) {
      float* const o_values = mo.data + std::int64_t{row} * mo.row_stride;
      rows.scale(o_values, dim_v, inverse[static_cast<std::size_t>(row)]);
      if (narrow)
        rows.narrow(o_values, row_type(out.o.dtype), out.o.as<std::uint16_t>() + o_offset + row * o_row, dim_v);
    }
  }
};

StandardAttention::StandardAttention(const Inputs& inputs, const Outputs& outputs, const Options& options, int threads)
    : state_(std::make_unique<State>(inputs, outputs, options, threads)) {}
StandardAttention::~StandardAttention() = default;
StandardAttention::StandardAttention(StandardAttention&&) noexcept = default;
StandardAttention& StandardAttention::operator=(StandardAttention&&) noexcept = default;

std::string StandardAttention::library() {
  return std::string(openblas_get_config()) + ", kernels for " + openblas_get_corename();
}

std::size_t StandardAttention::bytes(const Inputs& inputs, const Options& options) {
  const auto sequences = conformance::sequences(inputs, options);
  return sizes(inputs, inputs.q.dtype, sequences).total() * sizeof(float);
}

std::string StandardAttention::why_not(const Inputs& inputs, const Options& options) {
  if (!options.score.is_identity()) return "it has no score changes";
  if (!TileMap(options.mask).decided()) return "the mask is not made of bands";
  for (const Tensor* t : {&inputs.q, &inputs.k, &inputs.v})
    for (int i = 0; i < t->rank; ++i)
      if (t->shape[i] > 0x7fffffff || t->stride[i] > 0x7fffffff) return "OpenBLAS counts in 32 bits";
  const double needed = static_cast<double>(bytes(inputs, options)), free = available_bytes();
  constexpr double gib = 1024.0 * 1024 * 1024;
  if (needed > 0.9 * free) {
    char text[96];
    std::snprintf(text, sizeof text, "it needs %.1f GiB, %.1f GiB are free", needed / gib, free / gib);
    return text;
  }
  return {};
}

void StandardAttention::run() {
  openblas_set_num_threads(state_->threads);
  const Inputs& in = state_->in;
  const std::int64_t heads = conformance::heads_of(in.q), heads_kv = conformance::heads_of(in.k);
  for (const Sequence& s : state_->sequences) {
    if (s.q_count == 0) continue;
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t group = heads / heads_kv;
      state_->run_head(s, h, h / group, h % group == 0);
    }
  }
}

// Their time-out is counted in ticks of a clock whose rate depends on the machine, so it is watched, not known: they
// sleep once the process has used no processor time for a while.
void StandardAttention::settle() const {
  if (state_->threads == 1) return;
  const auto used_s = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  constexpr int step_ms = 10, most_steps = 100, quiet_steps = 3;
  for (int step = 0, quiet = 0; step < most_steps && quiet < quiet_steps; ++step) {
    const double before = used_s();
    std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));
    quiet = used_s() - before < 0.05e-3 * step_ms ? quiet + 1 : 0;
  }
}

}  // namespace tessera::cli
