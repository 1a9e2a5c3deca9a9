#include "data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "mods.hpp"

namespace tessera::conformance {
namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// ----------------------------------------------------------------------------------------------------------------
// layout Extents of [batch, tokens, heads, dim]; packed tensors have batch 1 and drop it at the end.
struct Extents {
  std::int64_t batch, tokens, heads, dim;
};

Tensor view(Buffer& buffer, std::int64_t first, const Extents& e, std::array<std::int64_t, 3> stride, bool packed) {
  void* data = static_cast<char*>(buffer.data()) + first * size_bytes(buffer.dtype());
  if (packed) return tensor(data, buffer.dtype(), {e.tokens, e.heads, e.dim}, {stride[1], stride[2], 1});
  return tensor(data, buffer.dtype(), {e.batch, e.tokens, e.heads, e.dim}, {stride[0], stride[1], stride[2], 1});
}

Tensor place(std::vector<std::unique_ptr<Buffer>>& buffers, const CaseSpec& c, DType dtype, Extents e, Layout layout,
             Poison poison, bool packed) {
  std::array<std::int64_t, 3> stride{e.tokens * e.heads * e.dim, e.heads * e.dim, e.dim};
  std::int64_t first = 0, elements = e.batch * e.tokens * e.heads * e.dim;
  if (layout == Layout::bhsd) {
    stride = {e.tokens * e.heads * e.dim, e.dim, e.tokens * e.dim};
  } else if (layout == Layout::sliced) {  // margins on every axis, no power of two anywhere
    const std::int64_t row = e.dim + 3, token = (e.heads + 1) * row, sequence = (e.tokens + 2) * token;
    stride = {sequence, token, row};
    first = token + row + 1, elements = (e.batch + 1) * sequence;
  } else if (layout == Layout::shared) {
    stride[0] = 0, elements = e.tokens * e.heads * e.dim;
  }
  buffers.push_back(std::make_unique<Buffer>(dtype, elements, c.shift, poison));
  return view(*buffers.back(), first, e, stride, packed);
}

// Keys of each sequence, where lengths say it.
std::vector<std::int64_t> lengths_of(const CaseSpec& c) {
  std::vector<std::int64_t> lengths = c.used;
  for (const Lengths& l : c.packed) lengths.push_back(l.k);
  return lengths;
}

// Which page of the pool each page of each sequence is: all different but for those of a shared prefix, in random
// order, a few left over. Behind the last page in use, and between the rows of the table, stand numbers that are no
// page.
std::int64_t place_table(CaseData& data, const CaseSpec& c) {
  constexpr std::int32_t garbage = 2147480000;
  Random r(c.seed ^ 0x9a9e5);
  const std::vector<std::int64_t> lengths = lengths_of(c);
  const std::int64_t width = (room_of(c) + c.page - 1) / c.page + r.below(2), stride = width + r.below(3);
  const auto used = [&](std::int64_t length) { return (length + c.page - 1) / c.page; };
  std::int64_t shared = 0, pages = r.below(4);
  for (const std::int64_t length : lengths) {
    shared = std::max(shared, std::min(used(length), c.prefix / c.page));
    pages += used(length);
  }
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages + shared));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(r.below(static_cast<std::int64_t>(i)))]);
  const std::int64_t batch = std::ssize(lengths);
  data.buffers.push_back(std::make_unique<Buffer>(i32, batch * stride, 0, Poison::input));
  auto* entries = static_cast<std::int32_t*>(data.buffers.back()->data());
  std::fill(entries, entries + batch * stride, garbage);
  auto next = static_cast<std::size_t>(shared);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < used(lengths[static_cast<std::size_t>(b)]); ++i)
      entries[b * stride + i] = i < shared ? order[static_cast<std::size_t>(i)] : order[next++];
  data.inputs.pages.block_table = tensor(entries, {batch, width}, {stride, 1});
  return std::ssize(order);
}

void place_inputs(CaseData& data, const CaseSpec& c, std::int64_t pages) {
  const bool packed = !c.packed.empty(), packed_keys = packed && !has_lengths(c);
  const std::int64_t batch = packed ? 1 : c.batch;
  const Extents q{batch, c.tokens_q + c.slack.q, c.heads_q, c.dim};
  Extents k{batch, c.tokens_k + c.slack.k, c.heads_kv, c.dim};
  if (c.page > 0) k.batch = pages, k.tokens = c.page;
  else if (has_lengths(c)) k.batch = c.batch, k.tokens = room_of(c);
  const Extents v{k.batch, k.tokens, c.heads_kv, c.dim_v};
  Inputs& in = data.inputs;
  if (c.layout == Layout::qkv) {  // one buffer, a row of q, k and v for each token
    const bool all = q.tokens == k.tokens && !has_lengths(c);
    const std::int64_t q_row = all ? q.heads * q.dim : 0, k_row = k.heads * k.dim,
                       row = q_row + k_row + v.heads * v.dim;
    data.buffers.push_back(std::make_unique<Buffer>(c.dtype, k.batch * k.tokens * row, c.shift, Poison::input));
    Buffer& buffer = *data.buffers.back();
    const std::int64_t sequence = k.tokens * row;
    if (all) in.q = view(buffer, 0, q, {sequence, row, q.dim}, packed);
    in.k = view(buffer, q_row, k, {sequence, row, k.dim}, packed_keys);
    in.v = view(buffer, q_row + k_row, v, {sequence, row, v.dim}, packed_keys);
    if (!all) in.q = place(data.buffers, c, c.dtype, q, Layout::bshd, Poison::input, packed);
    return;
  }
  const Layout q_layout = c.layout == Layout::shared ? Layout::bshd : c.layout;
  in.q = place(data.buffers, c, c.dtype, q, q_layout, Poison::input, packed);
  in.k = place(data.buffers, c, c.dtype, k, c.layout, Poison::input, packed_keys);
  in.v = place(data.buffers, c, c.dtype, v, c.layout, Poison::input, packed_keys);
}

Tensor integers(CaseData& data, const CaseSpec& c, const std::vector<std::int64_t>& values) {
  const DType dtype = c.wide_index ? i64 : i32;
  data.buffers.push_back(std::make_unique<Buffer>(dtype, std::ssize(values), 0, Poison::input));
  Tensor t = tensor(data.buffers.back()->data(), dtype, {std::ssize(values)});
  for (std::size_t i = 0; i < values.size(); ++i)
    set_element(t, static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return t;
}

// ----------------------------------------------------------------------------------------------------------------
// values Visits every row of q, or of k and v, that belongs to a sequence.
template <class Visit>
void for_rows(const CaseData& data, const Tensor& t, bool of_queries, Visit visit) {
  for (const Sequence& s : data.sequences)
    for (std::int64_t token = 0; token < (of_queries ? s.q_count : s.k_count); ++token)
      for (std::int64_t head = 0; head < heads_of(t); ++head)
        visit(s, token, head, of_queries ? q_row_offset(t, s, token, head) : k_row_offset(t, s, token, head));
}

float huge_value(DType dtype) { return dtype == f16 ? 20000.0f : 1e36f; }
float tiny_value(DType dtype) { return dtype == f16 ? 1e-4f : 1e-36f; }
float denormal_value(DType dtype) { return dtype == f16 ? 2e-6f : 3e-41f; }

void fill(const CaseData& data, const CaseSpec& c, Random& r) {
  const Inputs& in = data.inputs;
  const Family family = c.family;
  const bool along = family == Family::growing || family == Family::falling;
  std::vector<float> direction(static_cast<std::size_t>(c.dim));
  for (float& x : direction) x = r.chance(0.5) ? 1.0f : -1.0f;
  const float root = std::sqrt(static_cast<float>(c.dim));
  const float constant = r.pick({1000.0f, -3.0f, 0.5f, 1.0f});
  // Sharp scores, but not so sharp that one near tie in one row makes all of E: where P is rounded to 16 bits it hides
  // more.
  const float query_factor = c.dtype == f32 ? r.pick({1.0f, 2.0f, 4.0f}) : r.pick({1.0f, 4.0f, 16.0f});
  const float loud_key = c.dtype == f32 ? 2.0f : 6.0f;
  const float huge_factor = c.dtype == f32 ? 5.0f : c.dtype == f16 ? 10.0f : 30.0f;
  const float balance = std::sqrt(static_cast<float>(c.dim) / static_cast<float>(c.dim + 48));  // of the one loud dim
  const float slope = r.pick({4.0f, 12.0f, 40.0f});  // growing: what the scores rise by along the sequence
  const std::int64_t loud_dim = r.below(c.dim);
  for_rows(data, in.q, true, [&](const Sequence&, std::int64_t, std::int64_t, std::int64_t at) {
    for (std::int64_t i = 0; i < c.dim; ++i) {
      float x = r.normal();
      if (family == Family::outlier) x *= balance * query_factor * (i == loud_dim ? 4.0f : 1.0f);
      if (along) x = 0.1f * x + direction[i];
      if (family == Family::tiny) x *= tiny_value(c.dtype);
      if (family == Family::denormal && i % 2 == 0) x *= denormal_value(c.dtype);
      if (family == Family::constant) x = constant;
      if (family == Family::zeros) x = 0;
      if (family == Family::huge) x *= huge_factor;
      if (family == Family::neg_inf && i == loud_dim) x = std::abs(x) + 0.5f;
      set_element(in.q, at + i, static_cast<double>(x));
    }
  });
  for_rows(data, in.k, false, [&](const Sequence& s, std::int64_t token, std::int64_t, std::int64_t at) {
    const float place = static_cast<float>(token) / static_cast<float>(std::max<std::int64_t>(s.k_count, 1));
    const bool loud = r.chance(0.03), silent = r.chance(0.2);
    for (std::int64_t i = 0; i < c.dim; ++i) {
      float x = r.normal();
      if (family == Family::outlier) x *= (loud ? loud_key : 1.0f) * (i == loud_dim ? 3.0f : 1.0f);
      if (along) x = 0.3f * x + direction[i] * slope * (family == Family::growing ? place : 1 - place) / root;
      if (family == Family::tiny) x *= tiny_value(c.dtype);
      if (family == Family::constant) x = constant / 1000;
      if (family == Family::huge) x *= huge_factor;
      if (family == Family::neg_inf && silent && i == loud_dim) x = -infinite;
      set_element(in.k, at + i, static_cast<double>(x));
    }
  });
  for_rows(data, in.v, false, [&](const Sequence&, std::int64_t, std::int64_t, std::int64_t at) {
    for (std::int64_t i = 0; i < c.dim_v; ++i) {
      float x = r.normal();
      if (family == Family::outlier && r.chance(0.02)) x *= 60;
      if (family == Family::tiny) x *= tiny_value(c.dtype);
      if (family == Family::denormal) x *= denormal_value(c.dtype);
      if (family == Family::constant) x = constant;
      if (family == Family::huge)
        x = std::clamp(x * huge_value(c.dtype), -3 * huge_value(c.dtype), 3 * huge_value(c.dtype));
      set_element(in.v, at + i, static_cast<double>(x));
    }
  });
}

// NaN and Inf into keys and values. Masked: only where some row of the sequence does not attend to the key (all of
// them, or a few, so that tiles mix both). Attended: anywhere. Infinite values only where a probability cannot round to
// 0.
void spoil(const CaseData& data, const CaseSpec& c, Random& r) {
  const Inputs& in = data.inputs;
  Attended attended(data.inputs, data.options);
  for (const Sequence& s : data.sequences) {
    std::vector<std::int64_t> readers(static_cast<std::size_t>(s.k_count));
    for (std::int64_t q = 0; q < s.q_count; ++q)
      for (std::int64_t key : attended.keys(s, 0, q)) ++readers[key];
    for (std::int64_t key = 0; key < s.k_count; ++key) {
      if (c.family == Family::nan_masked) {
        if (key < c.prefix) continue;  // other sequences may attend to it
        if (readers[key] == s.q_count) continue;
        if (readers[key] > 0 && !r.chance(0.1)) continue;
      } else if (!r.chance(0.02)) {
        continue;
      }
      for (std::int64_t head = 0; head < c.heads_kv; ++head) {
        const float k_value = r.pick({not_a_number, infinite, -infinite});
        if (r.chance(0.7))
          set_element(in.k, k_row_offset(in.k, s, key, head) + r.below(c.dim), static_cast<double>(k_value));
        const float v_value = readers[key] == 0 ? r.pick({not_a_number, infinite, -infinite}) : not_a_number;
        if (r.chance(0.7))
          set_element(in.v, k_row_offset(in.v, s, key, head) + r.below(c.dim_v), static_cast<double>(v_value));
      }
    }
    if (c.family == Family::nan_attended)
      for (std::int64_t q = 0; q < s.q_count; ++q)
        if (r.chance(0.03))
          set_element(in.q, q_row_offset(in.q, s, q, r.below(c.heads_q)) + r.below(c.dim),
                      static_cast<double>(not_a_number));
  }
}

// A tensor for each name that the graph reads and that has none yet, as long as the coordinates that index it reach: no
// call takes another, and those of single sequences and chunks are cut from it (run_case.cpp). Where the reach is too
// far for a test, one entry serves all. Other axes are short: where an index asks for more, it gets the last.
void bind_captures(CaseData& data, const CaseSpec& c, const Graph& graph, Random& r) {
  std::int64_t tokens = std::max<std::int64_t>(c.tokens_k, c.tokens_q), positions = 0, keys = 0;
  for (const Lengths& l : c.packed) tokens = std::max({tokens, l.q, l.k});
  for (const Sequence& s : data.sequences)
    positions = std::max(positions, s.q_offset + s.q_count), keys = std::max(keys, s.k_count);
  for (const Capture& capture : graph.captures) {
    const std::string_view name = capture.name.data();
    const auto bound = [&](const Binding& binding) { return binding.name == name; };
    if (std::any_of(data.inputs.bind.begin(), data.inputs.bind.end(), bound)) continue;
    std::vector<std::int64_t> shape(capture.rank, 40);
    for (std::size_t a = 0; a < shape.size(); ++a) {
      constexpr std::int64_t far = 1 << 14;
      const PlainIndices by = plain_indices(graph, name, static_cast<int>(a));
      if (by.b) shape[a] = std::ssize(data.sequences);
      if (by.h) shape[a] = c.heads_q;
      if (by.q || by.k) shape[a] = std::max(by.q ? positions : 0, by.k ? keys : 0);
      if (shape[a] < 1 || shape[a] > far) shape[a] = 1;
    }
    const auto product = [&] {
      return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    };
    constexpr std::int64_t most = 1 << 21;  // elements; beyond, one entry serves the whole of the longest axis
    while (product() > most) *std::max_element(shape.begin(), shape.end()) = 1;
    const DType dtype = capture.type == Type::real      ? r.pick({f32, f32, bf16, f16})
                        : capture.type == Type::integer ? r.pick({i32, i64})
                                                        : b8;
    const std::int64_t count = product();
    data.buffers.push_back(std::make_unique<Buffer>(dtype, count, 0, Poison::input));
    Tensor t;
    t.data = data.buffers.back()->data(), t.dtype = dtype, t.rank = capture.rank;
    for (std::size_t a = shape.size(), step = 1; a-- > 0; step *= static_cast<std::size_t>(shape[a]))
      t.shape[a] = shape[a], t.stride[a] = static_cast<std::int64_t>(step);
    std::int64_t id = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (name == "len") id = r.below(tokens + 1);
      else if (name == "cu") id = i % shape.back() == 0 ? 0 : id + r.below(tokens / 10 + 2);
      else if (r.chance(0.04)) ++id;
      const double value = capture.type == Type::integer   ? static_cast<double>(id)
                           : capture.type == Type::boolean ? static_cast<double>(r.chance(0.7))
                                                           : 0.5 * static_cast<double>(r.normal());
      set_element(t, i, value);
    }
    data.captured_names.push_back(std::make_unique<std::string>(name));
    data.inputs.bind.add({*data.captured_names.back(), t});
  }
}

// One logit for each head: beside the scores, far above or below them, or none at all.
void bind_sinks(CaseData& data, const CaseSpec& c) {
  Random r(c.seed ^ 0x51a25);
  const DType dtype = r.chance(0.5) ? f32 : c.dtype;
  const std::int64_t step = r.between(1, 2);
  data.buffers.push_back(std::make_unique<Buffer>(dtype, c.heads_q * step, c.shift, Poison::input));
  data.inputs.sinks = tensor(data.buffers.back()->data(), dtype, {c.heads_q}, {step});
  for (std::int64_t head = 0; head < c.heads_q; ++head) {
    float sink = r.pick({3 * r.normal(), 3 * r.normal(), 25 + r.normal(), r.normal() - 25, 1000.0f, -infinite, 0.0f});
    if (c.family == Family::nan_attended && r.chance(0.1)) sink = not_a_number;
    set_element(data.inputs.sinks, head * step, static_cast<double>(sink));
  }
}

void own_rows(const CaseData& data, const Tensor& t, const Tensor& lse, std::vector<char>& o_owned,
              std::vector<char>& lse_owned, std::int64_t o_first, std::int64_t lse_first) {
  for_rows(data, t, true, [&](const Sequence& s, std::int64_t token, std::int64_t head, std::int64_t at) {
    for (std::int64_t i = 0; i < dim_of(t); ++i) o_owned[o_first + at + i] = 1;
    if (lse.defined()) lse_owned[lse_first + lse_offset(lse, s, token, head)] = 1;
  });
}

}  // namespace

CaseData make_data(const CaseSpec& c) {
  CaseData data;
  data.options.mask = parse_mask(c.mask), data.options.score = parse_score(c.score);
  data.options.scale = c.scale, data.options.q_offset = c.offset, data.options.batch_invariant = c.invariant;
  place_inputs(data, c, c.page > 0 ? place_table(data, c) : 0);
  if (!c.packed.empty()) {
    std::vector<std::int64_t> cu_q{0}, cu_k{0};
    for (const Lengths& l : c.packed) cu_q.push_back(cu_q.back() + l.q), cu_k.push_back(cu_k.back() + l.k);
    data.inputs.packed.cu_q = integers(data, c, cu_q);
    if (!has_lengths(c)) data.inputs.packed.cu_k = integers(data, c, cu_k);
  }
  if (has_lengths(c)) data.inputs.pages.lengths = integers(data, c, lengths_of(c));
  if (!c.offsets.empty()) data.inputs.q_offset = integers(data, c, c.offsets);
  data.sequences = sequences(data.inputs, data.options);
  Random random(c.seed);
  for (const Graph* graph : {&data.options.mask.graph(), &data.options.score.graph()})
    bind_captures(data, c, *graph, random);
  if (c.sinks) bind_sinks(data, c);
  fill(data, c, random);
  if (c.family == Family::nan_masked || c.family == Family::nan_attended) spoil(data, c, random);
  for (const auto& buffer : data.buffers) buffer->remember();
  return data;
}

bool CaseData::inputs_intact() const {
  return std::all_of(buffers.begin(), buffers.end(),
                     [](const auto& b) { return b->guards_intact() && b->unchanged(); });
}

OutputSet CaseData::make_outputs(const CaseSpec& c) const {
  OutputSet set;
  const bool packed = !c.packed.empty();
  const Layout layout = c.layout == Layout::bhsd || c.layout == Layout::sliced ? c.layout : Layout::bshd;
  const std::int64_t batch = packed ? 1 : c.batch, tokens = c.tokens_q + c.slack.q;
  std::vector<std::unique_ptr<Buffer>> made;
  set.outputs.o = place(made, c, c.out, {batch, tokens, c.heads_q, c.dim_v}, layout, Poison::output, packed);
  set.o_buffer = std::move(made.back());
  set.o_owned.resize(static_cast<std::size_t>(set.o_buffer->elements()));
  if (c.lse) {
    const std::int64_t pad = layout == Layout::sliced ? 3 : 0, head = tokens + pad, sequence = (c.heads_q + pad) * head;
    set.lse_buffer = std::make_unique<Buffer>(f32, batch * sequence + pad, c.shift, Poison::output);
    float* first = static_cast<float*>(set.lse_buffer->data()) + pad;
    set.outputs.lse = packed ? tensor(first, {c.heads_q, tokens}, {head, 1})
                             : tensor(first, {batch, c.heads_q, tokens}, {sequence, head, 1});
    set.lse_owned.resize(static_cast<std::size_t>(set.lse_buffer->elements()));
  }
  const auto first_of = [](const Tensor& t, const Buffer& b) {
    return (static_cast<char*>(t.data) - static_cast<char*>(b.data())) / size_bytes(t.dtype);
  };
  own_rows(*this, set.outputs.o, set.outputs.lse, set.o_owned, set.lse_owned, first_of(set.outputs.o, *set.o_buffer),
           c.lse ? first_of(set.outputs.lse, *set.lse_buffer) : 0);
  return set;
}

std::string OutputSet::stray_write() const {
  if (!o_buffer->guards_intact()) return "the guards around O were written";
  if (const std::int64_t at = o_buffer->first_stray_write(o_owned); at >= 0)
    return "element " + std::to_string(at) + " of O's buffer belongs to no row but was written";
  if (!lse_buffer) return {};
  if (!lse_buffer->guards_intact()) return "the guards around LSE were written";
  if (const std::int64_t at = lse_buffer->first_stray_write(lse_owned); at >= 0)
    return "element " + std::to_string(at) + " of LSE's buffer belongs to no row but was written";
  return {};
}

std::string first_difference(const Outputs& a, const Sequence& in_a, const Outputs& b, const Sequence& in_b,
                             std::int64_t query_in_a, std::int64_t query_in_b, std::int64_t count) {
  // Any NaN is as good as any other: its sign and payload depend on the order of an instruction's operands.
  const auto same = [](const Tensor& x, std::int64_t at_x, const Tensor& y, std::int64_t at_y) {
    const std::int64_t size = size_bytes(x.dtype);
    const char *p = static_cast<const char*>(x.data) + at_x * size, *q = static_cast<const char*>(y.data) + at_y * size;
    return std::memcmp(p, q, static_cast<std::size_t>(size)) == 0 ||
           (std::isnan(element(x, at_x)) && std::isnan(element(y, at_y)));
  };
  for (std::int64_t head = 0; head < heads_of(a.o); ++head)
    for (std::int64_t n = 0; n < count; ++n) {
      const auto where = [&] {
        return " of sequence " + std::to_string(in_a.index) + ", head " + std::to_string(head) + ", query " +
               std::to_string(query_in_a + n);
      };
      const std::int64_t at_a = q_row_offset(a.o, in_a, query_in_a + n, head);
      const std::int64_t at_b = q_row_offset(b.o, in_b, query_in_b + n, head);
      for (std::int64_t j = 0; j < dim_of(a.o); ++j)
        if (!same(a.o, at_a + j, b.o, at_b + j))
          return "O[" + std::to_string(j) + "]" + where() + ": " + std::to_string(element(a.o, at_a + j)) + " and " +
                 std::to_string(element(b.o, at_b + j));
      if (!a.lse.defined()) continue;
      const std::int64_t l_a = lse_offset(a.lse, in_a, query_in_a + n, head),
                         l_b = lse_offset(b.lse, in_b, query_in_b + n, head);
      if (!same(a.lse, l_a, b.lse, l_b))
        return "LSE" + where() + ": " + std::to_string(element(a.lse, l_a)) + " and " +
               std::to_string(element(b.lse, l_b));
    }
  return {};
}

Contiguous contiguous_keys(const Inputs& inputs, const Sequence& s) {
  Contiguous copy;
  const auto copied = [&](const Tensor& from) {
    const std::int64_t heads = heads_of(from), dim = dim_of(from);
    copy.buffers.push_back(
        std::make_unique<Buffer>(from.dtype, std::max<std::int64_t>(s.k_count, 1) * heads * dim, 0, Poison::input));
    const Tensor to = tensor(copy.buffers.back()->data(), from.dtype, {1, s.k_count, heads, dim});
    const std::int64_t size = size_bytes(from.dtype);
    for (std::int64_t token = 0; token < s.k_count; ++token)
      for (std::int64_t head = 0; head < heads; ++head)
        std::memcpy(to.as<char>() + (token * heads + head) * dim * size,
                    from.as<const char>() + k_row_offset(from, s, token, head) * size,
                    static_cast<std::size_t>(dim * size));
    return to;
  };
  copy.k = copied(inputs.k), copy.v = copied(inputs.v);
  return copy;
}

Tensor rows_of(const Tensor& t, const Sequence& s, bool of_queries, std::int64_t first, std::int64_t count) {
  const std::int64_t at = of_queries ? q_row_offset(t, s, first, 0) : k_row_offset(t, s, first, 0);
  const std::int64_t token = t.stride[t.rank - 3], head = t.stride[t.rank - 2];
  char* data = static_cast<char*>(t.data) + at * size_bytes(t.dtype);
  return tensor(static_cast<void*>(data), t.dtype, {1, count, heads_of(t), dim_of(t)},
                {token * std::max<std::int64_t>(count, 1), token, head, 1});
}

}  // namespace tessera::conformance
