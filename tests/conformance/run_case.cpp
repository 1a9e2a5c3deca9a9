// Runs one case on one subject and says what is wrong, if anything.
#include <algorithm>
#include <exception>
#include <optional>
#include <string>

#include "check.hpp"
#include "mods.hpp"

namespace tessera::conformance {
void call(const Subject& subject, const CaseData& data, const Inputs& inputs, const OutputSet& set,
          const Options& options, int threads, Scratch scratch, const std::string& which) {
  Exec exec{.threads = threads};
  std::optional<GuardedWorkspace> workspace;
  try {
    if (scratch == Scratch::exact && subject.workspace_bytes) {
      workspace.emplace(subject.workspace_bytes(inputs, set.outputs, options, threads));
      exec.workspace = {workspace->data(), workspace->bytes()};
    }
    subject.run(inputs, set.outputs, options, exec);
  } catch (const std::exception& error) {
    throw Failed{which + " threw: " + error.what()};
  }
  if (workspace && !workspace->guards_intact()) throw Failed{which + ": the guards around the workspace were written"};
  if (std::string stray = set.stray_write(); !stray.empty()) throw Failed{which + ": " + stray};
  if (!data.inputs_intact()) throw Failed{which + ": an input, or its guards, were written"};
}

namespace {

bool names_batch(const Graph& graph) {
  const auto& nodes = graph.nodes;
  return std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.op == Op::batch; });
}

// The tensors that the case reads, for a call whose queries end at position `positions` and that has `keys` keys.
Bindings cut(const CaseData& data, std::int64_t positions, std::int64_t keys) {
  Bindings bind;
  for (Binding binding : data.inputs.bind) {
    for (int axis = 0; axis < binding.tensor.rank; ++axis) {
      std::int64_t& extent = binding.tensor.shape[axis];
      PlainIndices by;
      for (const Graph* graph : {&data.options.mask.graph(), &data.options.score.graph()}) {
        const PlainIndices here = plain_indices(*graph, binding.name, axis);
        by.q |= here.q, by.k |= here.k;
      }
      if (extent > 1 && by.k) extent = std::max<std::int64_t>(by.q ? std::max(positions, keys) : keys, 1);
    }
    bind.add(binding);
  }
  return bind;
}

Scratch other(Scratch s) { return s == Scratch::arena ? Scratch::exact : Scratch::arena; }

// Computes queries [first, first + count) of one sequence alone, as a dense or packed batch of one, and compares bits.
// Keys in a cache are copied out of it, or stay in their pages (`cached`).
void compare_alone(const Subject& subject, const CaseSpec& c, const CaseData& data, const Outputs& whole,
                   const Sequence& s, std::int64_t first, std::int64_t count, bool packed, const std::string& which,
                   bool cached = false) {
  CaseSpec alone = c;
  alone.layout = Layout::bshd, alone.batch = 1, alone.packed.clear(), alone.slack = {}, alone.offsets.clear();
  alone.tokens_q = count, alone.tokens_k = s.k_count;
  alone.used.clear(), alone.room = alone.page = alone.prefix = 0;
  CaseData one;
  one.options = data.options;
  one.options.q_offset = s.q_offset + first;
  one.inputs.bind = cut(data, s.q_offset + first + count, s.k_count), one.inputs.sinks = data.inputs.sinks;
  one.inputs.q = rows_of(data.inputs.q, s, true, first, count);
  Contiguous keys;
  if (cached) {
    one.inputs.k = data.inputs.k, one.inputs.v = data.inputs.v, one.inputs.pages = data.inputs.pages;
    Tensor &lengths = one.inputs.pages.lengths, &table = one.inputs.pages.block_table;
    lengths.data = lengths.as<char>() + s.index * size_bytes(lengths.dtype), lengths.shape[0] = 1;
    table.data = table.as<std::int32_t>() + s.index * table.stride[0], table.shape[0] = 1;
  } else if (s.pages) {
    keys = contiguous_keys(data.inputs, s);
    one.inputs.k = keys.k, one.inputs.v = keys.v;
  } else {
    one.inputs.k = rows_of(data.inputs.k, s, false, 0, s.k_count);
    one.inputs.v = rows_of(data.inputs.v, s, false, 0, s.k_count);
  }
  std::int32_t cu_q[2] = {0, static_cast<std::int32_t>(count)}, cu_k[2] = {0, static_cast<std::int32_t>(s.k_count)};
  if (packed) {
    alone.packed = {{count, s.k_count}};
    const auto flat = [](Tensor& t) {
      t = tensor(t.data, t.dtype, {t.shape[1], t.shape[2], t.shape[3]}, {t.stride[1], t.stride[2], 1});
    };
    flat(one.inputs.q), one.inputs.packed.cu_q = tensor(cu_q, {2});
    if (!cached) flat(one.inputs.k), flat(one.inputs.v), one.inputs.packed.cu_k = tensor(cu_k, {2});
  }
  one.sequences = sequences(one.inputs, one.options);
  const OutputSet set = one.make_outputs(alone);
  call(subject, data, one.inputs, set, one.options, 1, Scratch::arena, which);
  if (std::string text = first_difference(whole, s, set.outputs, one.sequences[0], first, 0, count); !text.empty())
    throw Failed{which + " has other bits than in its batch: " + text};
}

void check_invariance(const Subject& subject, const CaseSpec& c, const CaseData& data, const Outputs& whole) {
  if (data.sequences.empty() || names_batch(data.options.mask.graph()) || names_batch(data.options.score.graph()))
    return;
  Random random(c.seed ^ 0x5eed);
  const Sequence& s = data.sequences[random.below(std::ssize(data.sequences))];
  if (s.q_count == 0) return;
  const bool was_packed = !c.packed.empty();
  compare_alone(subject, c, data, whole, s, 0, s.q_count, !was_packed,
                "sequence " + std::to_string(s.index) + " alone");
  const std::int64_t cut = random.below(s.q_count), length = random.between(1, s.q_count - cut);
  compare_alone(subject, c, data, whole, s, cut, length, false,
                "the chunk of queries [" + std::to_string(cut) + ", " + std::to_string(cut + length) +
                    ") of sequence " + std::to_string(s.index));
  compare_alone(subject, c, data, whole, s, s.q_count - 1, 1, was_packed,
                "the last query of sequence " + std::to_string(s.index) + " alone", s.pages != nullptr);
}

}  // namespace

Outcome run_case(const Subject& subject, const CaseSpec& spec) {
  double worst = 0;
  Outcome outcome = outcome_of([&] {
    const CaseData data = make_data(spec);
    const OutputSet first = data.make_outputs(spec);
    call(subject, data, data.inputs, first, data.options, spec.threads, spec.workspace, "the call");
    std::vector<Row> rows = spec.rows > 0 ? sample_rows(data.inputs, data.options, spec.rows, spec.seed)
                                          : all_rows(data.inputs, data.options);
    const Verdict verdict = judge(expect(data.inputs, data.options, spec.out, std::move(rows)), first.outputs);
    worst = verdict.worst;
    require(static_cast<bool>(verdict), verdict.first);
    const int threads = spec.threads == 1 ? 2 + static_cast<int>(spec.seed % 3) : 1;
    const OutputSet second = data.make_outputs(spec);
    call(subject, data, data.inputs, second, data.options, threads, other(spec.workspace),
         "the call with " + std::to_string(threads) + " threads");
    for (const Sequence& s : data.sequences) {
      const std::string text = first_difference(first.outputs, s, second.outputs, s, 0, 0, s.q_count);
      require(text.empty(), "not repeatable: with " + std::to_string(spec.threads) + " and " + std::to_string(threads) +
                                " threads: " + text);
    }
    if (spec.invariant) check_invariance(subject, spec, data, first.outputs);
    return worst;
  });
  outcome.worst = worst;
  return outcome;
}

}  // namespace tessera::conformance
