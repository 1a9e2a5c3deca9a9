// The calls in Python: arrays in, arrays out.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <sstream>

#include "arrays.hpp"
#include "conformance/runner.hpp"
#include "mods.hpp"
#include "tessera/attention.hpp"

namespace tessera::python {
namespace {

// Everything of one call, alive until it returns.
struct Call {
  Array q;
  void* stream;  // where the framework of q works
  Array k, v, cu_q, cu_k, q_offset, sinks, block_table, lengths;
  std::vector<Array> bound;
  Bound names;
  Inputs inputs;
  Options options;
  std::string backend;

  Call(nb::handle q_, nb::handle k_, nb::handle v_, nb::handle mask, nb::handle score, nb::handle bind,
       std::optional<double> scale, nb::handle offset, nb::handle sinks_, nb::handle cu_q_, nb::handle cu_k_,
       nb::handle block_table_, nb::handle lengths_, bool batch_invariant, std::optional<std::string> backend_,
       bool heads_first = false, std::optional<std::uintptr_t> stream_ = {})
      : q(q_, "q"),
        stream(stream_ ? reinterpret_cast<void*>(*stream_) : stream_of(q_, q.view().device)),
        k(k_, "k", stream),
        v(v_, "v", stream),
        cu_q(cu_q_, "cu_q", stream),
        cu_k(cu_k_, "cu_k", stream),
        sinks(sinks_, "sinks", stream),
        block_table(block_table_, "block_table", stream),
        lengths(lengths_, "lengths", stream) {
    if (records_gradients(q_) || records_gradients(k_) || records_gradients(v_) || records_gradients(sinks_))
      refuse_gradients();
    inputs.q = q.view(), inputs.k = k.view(), inputs.v = v.view();
    if (heads_first) {
      if (inputs.q.rank != 4 || inputs.k.rank != 4 || inputs.v.rank != 4)
        throw Error(Code::invalid_shape, "heads_first: q, k and v have ranks " + std::to_string(inputs.q.rank) + ", " +
                                             std::to_string(inputs.k.rank) + " and " + std::to_string(inputs.v.rank) +
                                             ": [batch, heads, tokens, dim] is allowed");
      inputs.q = exchanged(inputs.q), inputs.k = exchanged(inputs.k), inputs.v = exchanged(inputs.v);
    }
    inputs.packed = {cu_q.view(), cu_k.view()}, inputs.sinks = sinks.view();
    inputs.pages = {block_table.view(), lengths.view()};
    if (PyLong_Check(offset.ptr())) options.q_offset = nb::cast<std::int64_t>(offset);
    else q_offset = Array(offset, "q_offset", stream), inputs.q_offset = q_offset.view();
    if (!mask.is_none()) {
      BoundMask made = mask_of(mask);
      options.mask = std::move(made.mask), join(names, made.bound);
    }
    if (!score.is_none()) {
      BoundScore made = score_of(score);
      options.score = std::move(made.score), join(names, made.bound);
    }
    if (!bind.is_none())
      for (auto [name, array] : nb::cast<nb::dict>(bind))
        join(names, {{nb::cast<std::string>(name), nb::borrow(array)}});
    for (const auto& [name, array] : names) {
      if (records_gradients(array)) refuse_gradients();
      bound.emplace_back(array, name.c_str(), stream);
      inputs.bind.add({name, bound.back().view()});
    }
    if (scale) options.scale = static_cast<float>(*scale);
    options.batch_invariant = batch_invariant;
    if (backend_) backend = *backend_, options.backend = backend;
  }
  Call(const Call&) = delete;

  static void refuse_gradients() {
    static const nb::object* const enabled = new nb::object(nb::module_::import_("torch").attr("is_grad_enabled"));
    if (nb::cast<bool>((*enabled)()))
      throw Error(Code::unsupported,
                  "an input requires gradients and autograd is recording: there is no backward pass yet; "
                  "call it under torch.no_grad() or torch.inference_mode(), or detach() the inputs");
  }
  void refuse_groups() const {
    if (inputs.q.rank < 3 || inputs.k.rank != inputs.q.rank) return;  // said by describe()
    const auto at = static_cast<std::size_t>(inputs.q.rank - 2);
    const std::int64_t heads = inputs.q.shape[at], shared = inputs.k.shape[at];
    if (shared != heads && shared != 1)
      throw Error(Code::invalid_shape, "q has " + std::to_string(heads) + " heads, k " + std::to_string(shared) +
                                           ": as many or 1 are allowed with grouped=False");
  }
  // What o and lse are, where the caller gave none.
  std::vector<std::int64_t> o_shape() const {
    const Tensor& t = inputs.q;
    std::vector<std::int64_t> shape(t.shape.begin(), t.shape.begin() + t.rank);
    if (t.rank > 0 && inputs.v.rank > 0) shape.back() = inputs.v.shape[static_cast<std::size_t>(inputs.v.rank - 1)];
    return shape;
  }
  // With heads_first, o lies in memory as q does.
  Layout layout(bool heads_first) const {
    if (!heads_first) return Layout::tokens_first;
    return inputs.q.stride[2] >= inputs.q.stride[1] ? Layout::heads_first : Layout::heads_first_of_tokens_first;
  }
  std::vector<std::int64_t> lse_shape() const {
    const Tensor& t = inputs.q;
    if (t.rank == 4) return {t.shape[0], t.shape[2], t.shape[1]};
    return {t.rank > 1 ? t.shape[1] : 0, t.shape[0]};
  }
};

// An output: the caller's, or a fresh one.
struct Out {
  nb::object given;
  std::optional<Array> array;
  std::optional<Fresh> fresh;
  bool heads_first;
  Out(nb::handle given_, const char* name, nb::handle like, const Device& device, void* stream, DType dtype,
      const std::vector<std::int64_t>& shape, Layout layout = Layout::tokens_first)
      : heads_first(layout != Layout::tokens_first) {
    if (!given_.is_none()) given = nb::borrow(given_), array.emplace(given_, name, stream, true);
    else fresh.emplace(like, device, dtype, shape, layout);
  }
  Tensor view() const {
    if (!array) return fresh->view();
    return heads_first ? exchanged(array->view()) : array->view();
  }
  nb::object finish() { return array ? given : fresh->finish(); }
};

#define TESSERA_CALL_ARGUMENTS                                                                         \
  nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::kw_only(),                                             \
      nb::arg("mask") = nb::none(), nb::arg("score") = nb::none(), nb::arg("bind") = nb::none(),       \
      nb::arg("scale") = nb::none(), nb::arg("q_offset") = nb::none(), nb::arg("sinks") = nb::none(),  \
      nb::arg("cu_q") = nb::none(), nb::arg("cu_k") = nb::none(), nb::arg("block_table") = nb::none(), \
      nb::arg("lengths") = nb::none(), nb::arg("batch_invariant") = false, nb::arg("backend") = nb::none()

nb::object attention_of(nb::handle q, nb::handle k, nb::handle v, nb::handle mask, nb::handle score, nb::handle bind,
                        std::optional<double> scale, nb::handle q_offset, nb::handle sinks, nb::handle cu_q,
                        nb::handle cu_k, nb::handle block_table, nb::handle lengths, bool batch_invariant,
                        std::optional<std::string> backend, bool return_lse, nb::handle out, nb::handle lse,
                        int threads, nb::handle out_dtype, bool heads_first, bool grouped,
                        std::optional<std::uintptr_t> stream, nb::handle errors) {
  Call call(q, k, v, mask, score, bind, scale, q_offset, sinks, cu_q, cu_k, block_table, lengths, batch_invariant,
            std::move(backend), heads_first, stream);
  if (!grouped) call.refuse_groups();
  const DType dtype = out_dtype.is_none() ? call.inputs.q.dtype : dtype_of(out_dtype, "out_dtype");
  const Device& device = call.inputs.q.device;
  Out o(out, "out", q, device, call.stream, dtype, call.o_shape(), call.layout(heads_first));
  std::optional<Out> sums;
  if (return_lse || !lse.is_none()) sums.emplace(lse, "lse", q, device, call.stream, f32, call.lse_shape());
  const Array word(errors, "errors", call.stream, true);
  const Outputs outputs{o.view(), sums ? sums->view() : Tensor{}, word.view()};
  {
    const nb::gil_scoped_release released;
    attention(call.inputs, outputs, call.options, {.threads = threads, .stream = {call.stream}});
  }
  if (!sums) return o.finish();
  return nb::make_tuple(o.finish(), sums->finish());
}

nb::object merge_of(nb::handle o_a, nb::handle lse_a, nb::handle o_b, nb::handle lse_b, nb::handle out, nb::handle lse,
                    std::optional<std::uintptr_t> stream_) {
  const Array a(o_a, "o_a");
  const Device& device = a.view().device;
  void* const stream = stream_ ? reinterpret_cast<void*>(*stream_) : stream_of(o_a, device);
  const Array al(lse_a, "lse_a", stream), b(o_b, "o_b", stream), bl(lse_b, "lse_b", stream);
  const auto shape = [](const Tensor& t) {
    return std::vector<std::int64_t>(t.shape.begin(), t.shape.begin() + t.rank);
  };
  Out o(out, "out", o_a, device, stream, a.view().dtype, shape(a.view()));
  Out sums(lse, "lse", lse_a, device, stream, f32, shape(al.view()));
  const Outputs into{o.view(), sums.view()};
  {
    const nb::gil_scoped_release released;
    merge({a.view(), al.view()}, {b.view(), bl.view()}, into, {.stream = {stream}});
  }
  return nb::make_tuple(o.finish(), sums.finish());
}

std::string text_of(const auto& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

void define_plans(nb::module_& m) {
  nb::class_<Problem>(m, "Problem", "What is asked: shapes, types, options.")
      .def("__repr__", [](const Problem& p) { return text_of(p); })
      .def(
          "__eq__", [](const Problem& a, const Problem& b) { return a == b; }, nb::is_operator())
      .def("__hash__", [](const Problem& p) { return static_cast<std::size_t>(hash(p)); });
  nb::class_<TileMap>(m, "TileMap", "Which tiles of queries and keys matter.")
      .def(
          "__init__", [](TileMap* self, nb::handle mask) { new (self) TileMap(mask_of(mask).mask); }, nb::arg("mask"))
      .def("__repr__", [](const TileMap& t) { return text_of(t); })
      .def_prop_ro(
          "bands",
          [](const TileMap& t) -> nb::object {
            if (!t.decided()) return nb::none();
            nb::list all;
            for (const Band& band : t.bands()) all.append(nb::make_tuple(band.lo, band.hi));
            return all;
          },
          "[(lo, hi), ..]: attended to where lo <= k - q <= hi of one of them. None where bands do not describe the "
          "mask.");
  nb::class_<Plan>(m, "Plan",
                   "How it is done: backend, tiles, splits, workspace, cost. Decided once, run for every layer.")
      .def("__repr__", [](const Plan& p) { return text_of(p); })
      .def(
          "__eq__", [](const Plan& a, const Plan& b) { return a == b; }, nb::is_operator())
      .def("__hash__", [](const Plan& p) { return static_cast<std::size_t>(hash(p)); })
      .def_prop_ro("problem", [](const Plan& p) { return p->problem; })
      .def_prop_ro("tiles", [](const Plan& p) { return p->tiles; })
      .def_prop_ro("backend", [](const Plan& p) { return p->backend + ":" + p->isa; })
      .def_prop_ro("flops", [](const Plan& p) { return p->cost.flops; })
      .def_prop_ro("bytes", [](const Plan& p) { return p->cost.bytes; })
      .def("workspace_bytes", &Plan::workspace_bytes, nb::arg("threads") = 0, "Bytes of scratch on so many threads.");
}

nb::object check_of(std::optional<std::string> backend, std::int64_t cases, std::uint64_t seed, bool named) {
  conformance::RunOptions options;
  options.cases = cases, options.seed = seed, options.named = named;
  std::vector<conformance::Subject> subjects =
      backend ? std::vector{conformance::subject(*backend)} : conformance::subjects();
  conformance::Report report;
  {
    const nb::gil_scoped_release released;
    report = conformance::run(subjects, options);
  }
  nb::list failures;
  for (const auto& failure : report.failures) failures.append(text_of(failure));
  nb::dict result;
  result["cases"] = report.cases, result["failures"] = failures, result["seconds"] = report.seconds;
  return result;
}

}  // namespace

void define_calls(nb::module_& m) {
  m.def("attention", attention_of, TESSERA_CALL_ARGUMENTS, nb::arg("return_lse") = false, nb::arg("out") = nb::none(),
        nb::arg("lse") = nb::none(), nb::arg("threads") = 0, nb::arg("out_dtype") = nb::none(),
        nb::arg("heads_first") = false, nb::arg("grouped") = true, nb::arg("stream") = nb::none(),
        nb::arg("errors") = nb::none(),
        R"doc(O = softmax(scale * Q K^T, masked) V, exactly, without ever writing the N x N matrix.

q [batch, tokens_q, heads_q, dim], k [batch, tokens_kv, heads_kv, dim], v [batch, tokens_kv, heads_kv, dim_v]; heads_q is a
multiple of heads_kv. float32, bfloat16 or float16, any strides with the last 1. Packed sequences: [total, heads, dim] with
cu_q and cu_k, int32 or int64 prefix sums [batch + 1]. torch, NumPy, JAX, CuPy or anything with DLPack; nothing is copied.

A cache: lengths, int32 or int64 [batch], says how many keys each sequence has, of those that k and v have room for. With
block_table, int32 [batch, width], k and v are pages, [pages, page_size, heads_kv, dim]: key n of sequence b lies in page
block_table[b, n // page_size]. In a packed call, lengths take the place of cu_k.

CUDA arrays of torch and CuPy run on the framework's current stream (or on `stream`, the number of a CUstream), and nothing
waits. cu_q, cu_k, lengths, block_table, q_offset and what mask and score read may be there or on the CPU. What of them is
there cannot be refused: it is clamped, and errors, an int32 array of one element beside q, says so in bits that are or-ed
into it (metadata_error_text has them in words; set it to 0 before, and read it when you synchronise anyway).

mask: a Mask, its text ("causal & window(1023, 0)") or a function of (b, h, q, k), called once with expressions, for example
  lambda b, h, q, k: (q >= k) & (q - k <= 1024). q and k are logical positions: the last query stands on the last key unless
  q_offset says otherwise (an int, or an int array [batch]).
score: a ScoreMod, its text, or a function of (s, b, h, q, k): what the scaled score s becomes, before the mask.
bind: arrays for the names in mask and score. scale: 1 / sqrt(dim) where left out. sinks: learned logits [heads_q].
return_lse: also the natural logarithm of the softmax denominator, float32 [batch, heads_q, tokens_q] (packed: [heads, total]).
out, lse: where to write; out is of q's type or float32 (out_dtype where it is made here). threads: 0 is all.
heads_first: q, k, v and o are [batch, heads, tokens, dim], as torch has them; o lies in memory as q does.
grouped: heads_kv may be any divisor of heads_q; False: heads_q or 1, as torch's SDPA has it without enable_gqa.
backend: pins one ("cpu:avx2"); it fails rather than fall back.

Returns o like q with dim_v, in the framework of q; with return_lse (o, lse). Rows that attend to nothing are 0 (lse -inf).
Raises tessera.Error (with .code) that says what was given and what is allowed, before anything is written.)doc");
  m.def("merge", merge_of, nb::arg("o_a"), nb::arg("lse_a"), nb::arg("o_b"), nb::arg("lse_b"), nb::kw_only(),
        nb::arg("out") = nb::none(), nb::arg("lse") = nb::none(), nb::arg("stream") = nb::none(),
        "Joins partial results over disjoint keys: o as attention() returns them, lse float32. Returns (o, lse). CUDA "
        "arrays "
        "as attention() takes them; out and lse may be a part's own.");
  m.def(
      "plan",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle mask, nb::handle score, nb::handle bind,
         std::optional<double> scale, nb::handle q_offset, nb::handle sinks, nb::handle cu_q, nb::handle cu_k,
         nb::handle block_table, nb::handle lengths, bool batch_invariant, std::optional<std::string> backend) {
        const Call call(q, k, v, mask, score, bind, scale, q_offset, sinks, cu_q, cu_k, block_table, lengths,
                        batch_invariant, std::move(backend));
        return plan(describe(call.inputs, call.options));
      },
      TESSERA_CALL_ARGUMENTS, "What attention() would do with these arguments, as a value that prints. Reads no data.");
  m.def("metadata_error_text", metadata_error_text, nb::arg("bits"),
        "What the bits in `errors` of attention() say: '' for 0.");
  m.def(
      "backends",
      [] {
        nb::dict all;
        for (const BackendInfo& info : backends()) all[info.name.c_str()] = nb::make_tuple(info.available, info.detail);
        return all;
      },
      "What could run here, best first: name -> (available, what it is or what is missing).");
  m.def("check", check_of, nb::arg("backend") = nb::none(), nb::arg("cases") = 200, nb::arg("seed") = 1,
        nb::arg("named") = true, "Runs the conformance suite on this machine: {'cases', 'failures', 'seconds'}.");
  define_plans(m);
}

}  // namespace tessera::python
