// Named cases of caches: keys in use given by lengths, keys in pages.
#include <algorithm>
#include <cstring>
#include <memory>

#include "check.hpp"
#include "named.hpp"
#include "reservation.hpp"

namespace tessera::conformance {
namespace {

double judged(const CaseData& data, const CaseSpec& spec, const OutputSet& got) {
  const Verdict verdict =
      judge(expect(data.inputs, data.options, spec.out, all_rows(data.inputs, data.options)), got.outputs);
  require(static_cast<bool>(verdict), verdict.first);
  return verdict.worst;
}

// The same keys in caches that lie side by side, with room for as many: what a plan knows of both is the same but for
// the pages.
struct SideBySide {
  std::vector<std::unique_ptr<Buffer>> buffers;
  CaseData data;
};
SideBySide side_by_side(const CaseData& paged) {
  SideBySide one;
  Inputs& in = one.data.inputs;
  one.data.options = paged.options, in = paged.inputs;
  const Tensor& table = paged.inputs.pages.block_table;
  const std::int64_t room = table.shape[1] * paged.inputs.k.shape[1];
  for (Tensor* t : {&in.k, &in.v}) {
    const Tensor from = *t;
    const std::int64_t heads = heads_of(from), dim = dim_of(from), size = size_bytes(from.dtype);
    one.buffers.push_back(std::make_unique<Buffer>(from.dtype, table.shape[0] * room * heads * dim, 0, Poison::input));
    *t = tensor(one.buffers.back()->data(), from.dtype, {table.shape[0], room, heads, dim});
    for (const Sequence& s : paged.sequences)
      for (std::int64_t token = 0; token < s.k_count; ++token)
        for (std::int64_t h = 0; h < heads; ++h)
          std::memcpy(t->as<char>() + (((s.index * room + token) * heads) + h) * dim * size,
                      from.as<const char>() + k_row_offset(from, s, token, h) * size,
                      static_cast<std::size_t>(dim * size));
  }
  in.pages.block_table = {};
  one.data.sequences = sequences(in, one.data.options);
  return one;
}

double paged_is_contiguous(const Subject& subject, DType dtype) {
  double worst = 0;
  for (const char* text :
       {"b=3 sq=70 sk=300 used=300,129,64 page=16 hq=4 hkv=2 d=64 mask=causal prefix=40",
        "b=2 sq=1 sk=1500 used=1500,777 page=64 hq=16 hkv=2 d=64 threads=2",
        "b=2 sq=5 sk=700 used=700,3 page=1 hq=4 hkv=2 d=40 mask=\"window(100, 0)\" layout=bhsd",
        "packed=3/500,90/90,1/0,40/257 page=3 hq=4 hkv=4 d=24 mask=causal score=\"softcap(20)\" layout=sliced",
        "packed=100/500,1/600 page=256 room=1024 hq=2 hkv=1 d=128 dv=64 sinks=1 mask=causal layout=qkv"}) {
    const CaseSpec spec = spec_of(text, dtype);
    const CaseData paged = make_data(spec);
    const SideBySide contiguous = side_by_side(paged);
    const OutputSet a = run_once(subject, spec, paged), b = run_once(subject, spec, contiguous.data);
    require_same_bits(paged, a.outputs, b.outputs, std::string(text) + ", in pages and side by side");
    worst = std::max(worst, judged(paged, spec, a));
  }
  return worst;
}

// A page that two sequences share is copied before the second one writes into it: what the first one sees stays.
double copy_on_write(const Subject& subject, DType dtype) {
  CaseSpec spec = spec_of("b=2 sq=2 sk=64 used=40,40 page=16 hq=4 hkv=2 d=32 mask=causal prefix=32", dtype);
  CaseData data = make_data(spec);
  Tensor& lengths = data.inputs.pages.lengths;
  const Tensor& table = data.inputs.pages.block_table;
  auto* entries = table.as<std::int32_t>();
  const std::int32_t own = entries[table.stride[0] + 2];
  entries[table.stride[0] + 2] = entries[2];  // all three pages shared
  for (const auto& buffer : data.buffers) buffer->remember();
  const OutputSet shared = run_once(subject, spec, data);
  double worst = judged(data, spec, shared);
  const Sequence &first = data.sequences[0], &second = data.sequences[1];
  std::vector<double> copied;
  for (const Tensor* t : {&data.inputs.k, &data.inputs.v})
    for (std::int64_t token = 32; token < 40; ++token)
      for (std::int64_t at = 0; at < heads_of(*t) * dim_of(*t); ++at)
        copied.push_back(element(*t, k_row_offset(*t, first, token, at / dim_of(*t)) + at % dim_of(*t)));
  entries[table.stride[0] + 2] = own;
  std::size_t next = 0;
  for (const Tensor* t : {&data.inputs.k, &data.inputs.v})
    for (std::int64_t token = 32; token < 40; ++token)
      for (std::int64_t at = 0; at < heads_of(*t) * dim_of(*t); ++at)
        set_element(*t, k_row_offset(*t, second, token, at / dim_of(*t)) + at % dim_of(*t), copied[next++]);
  for (const auto& buffer : data.buffers) buffer->remember();
  const OutputSet split = run_once(subject, spec, data);
  require_same_bits(data, shared.outputs, split.outputs, "a page copied for the second sequence");
  set_element(lengths, lengths.stride[0], 41);
  for (const Tensor* t : {&data.inputs.k, &data.inputs.v})
    for (std::int64_t at = 0; at < heads_of(*t) * dim_of(*t); ++at)
      set_element(*t, k_row_offset(*t, second, 40, at / dim_of(*t)) + at % dim_of(*t), 0.25);
  for (const auto& buffer : data.buffers) buffer->remember();
  const OutputSet grown = run_once(subject, spec, data);
  const std::string text = first_difference(shared.outputs, first, grown.outputs, first, 0, 0, first.q_count);
  require(text.empty(), "the first sequence, after the second one grew: " + text);
  return std::max(worst, judged(data, spec, grown));
}

// A plan knows how many keys there may be, not how many there are: they grow, and pages are dealt out, between calls.
double lengths_change_between_calls(const Subject& subject, DType dtype) {
  const CaseSpec spec = spec_of("b=3 sq=4 sk=96 used=96,90,70 page=8 hq=4 hkv=1 d=48 mask=causal", dtype);
  const CaseData data = make_data(spec);
  double worst = 0;
  const Tensor& lengths = data.inputs.pages.lengths;
  for (const auto& now : {std::array<int, 3>{96, 90, 70}, {3, 0, 70}, {0, 0, 0}, {41, 90, 1}, {96, 1, 64}}) {
    for (std::size_t b = 0; b < 3; ++b) set_element(lengths, static_cast<std::int64_t>(b) * lengths.stride[0], now[b]);
    for (const auto& buffer : data.buffers) buffer->remember();
    const OutputSet got = run_once(subject, spec, data);
    worst = std::max(worst, judged(data, spec, got));
  }
  return worst;
}

// The pages in use lie at both ends of a pool of more than 2^32 elements.
double pages_beyond_32_bits(const Subject& subject, DType dtype) {
  const CaseSpec spec = spec_of("b=2 sq=5 sk=75 used=75,33 page=16 hq=4 hkv=4 d=16 mask=causal prefix=16", dtype);
  const CaseData small = make_data(spec);
  CaseData data;
  data.options = small.options, data.inputs = small.inputs;
  const std::int64_t pages = small.inputs.k.shape[0], page = 16 * 4 * 16, many = (std::int64_t{1} << 32) / page + 7;
  const auto far = [&](std::int64_t n) { return n % 2 == 0 ? many - 1 - n : n; };
  std::vector<std::unique_ptr<Reservation>> memory;
  for (Tensor* t : {&data.inputs.k, &data.inputs.v}) {
    const Tensor from = *t;
    const std::int64_t bytes = page * size_bytes(dtype);
    memory.push_back(std::make_unique<Reservation>(static_cast<std::size_t>(many * bytes)));
    *t = tensor(memory.back()->data(), dtype, {many, 16, 4, 16});
    for (std::int64_t n = 0; n < pages; ++n)
      std::memcpy(t->as<char>() + far(n) * bytes, from.as<const char>() + n * bytes, static_cast<std::size_t>(bytes));
  }
  const Tensor& table = small.inputs.pages.block_table;
  std::vector<std::int32_t> entries(static_cast<std::size_t>(2 * table.shape[1]), 2147480000);
  for (const Sequence& s : small.sequences)
    for (std::int64_t i = 0; i * 16 < s.k_count; ++i)
      entries[static_cast<std::size_t>(s.index * table.shape[1] + i)] = static_cast<std::int32_t>(far(s.pages[i]));
  data.inputs.pages.block_table = tensor(entries.data(), {2, table.shape[1]});
  data.sequences = sequences(data.inputs, data.options);
  const OutputSet near = run_once(subject, spec, small), wide = run_once(subject, spec, data);
  require_same_bits(small, near.outputs, wide.outputs, "a pool of over 2^32 elements");
  return judged(small, spec, wide);
}

}  // namespace

std::vector<NamedCase> page_cases() {
  std::vector<std::string> sizes;
  for (const int page : {1, 3, 8, 16, 64, 100, 256}) {
    const std::string in_pages = " page=" + std::to_string(page);
    sizes.push_back("b=2 sq=40 sk=300 used=300,131 hq=4 hkv=2 d=32 mask=causal invariant=1" + in_pages);
    sizes.push_back("b=2 sq=1 sk=600 used=513,600 hq=6 hkv=2 d=64 invariant=1 threads=2" + in_pages);
    sizes.push_back("packed=1/300,33/33,0/5,7/512 hq=2 hkv=1 d=40 mask=causal invariant=1 prefix=300" + in_pages);
  }
  return {
      of_lines("pages.of_every_size", "as if each sequence ran alone on contiguous keys", sizes),
      of_lines("pages.shared_prefix", "the same result as of pages of one's own",
               {"b=4 sq=3 sk=200 used=200,130,96,64 page=64 prefix=128 hq=4 hkv=2 d=32 mask=causal invariant=1",
                "b=3 sq=20 sk=90 used=90,80,70 page=1 prefix=60 hq=2 hkv=1 d=16 mask=causal invariant=1",
                "packed=5/300,5/310,1/290 page=16 prefix=288 hq=4 hkv=2 d=64 mask=causal invariant=1"}),
      of_lines("pages.table_with_garbage_tail", "entries of 2147480000 past the last page are never looked at",
               {"b=3 sq=2 sk=4096 used=1,17,0 page=16 hq=2 hkv=1 d=64 mask=causal",
                "packed=2/40,1/1 room=5000 page=8 hq=2 hkv=1 d=64", "b=1 sq=1 sk=64 used=63 page=64 hq=1 hkv=1 d=8"}),
      of_lines("pages.one_for_all", "pages of a token, and one page for a whole sequence",
               {"b=2 sq=9 sk=77 used=77,12 page=1 hq=3 hkv=3 d=20 mask=causal",
                "b=2 sq=9 sk=77 used=77,12 page=4096 hq=3 hkv=3 d=20 mask=causal"}),
      of_lines("pages.views", "pools with strides of their own, as keys and values interleave or heads come first",
               {"b=2 sq=9 sk=70 used=70,33 page=16 hq=4 hkv=2 d=24 layout=bhsd mask=causal",
                "b=2 sq=9 sk=70 used=70,33 page=16 hq=4 hkv=2 d=31 layout=sliced mask=causal shift=3",
                "b=2 sq=9 sk=70 used=70,33 page=7 hq=4 hkv=2 d=24 dv=40 layout=qkv mask=causal"}),
      of_lines("pages.masks_and_scores", "positions are those of the sequence, wherever a key lies",
               {"b=2 sq=60 sk=400 used=399,211 page=16 hq=4 hkv=2 d=32 mask=\"causal & documents(ids)\"",
                "b=2 sq=8 sk=1300 used=1300,1030 page=16 hq=4 hkv=2 d=64 mask=\"causal & window(1023, 0)\"",
                "b=2 sq=30 sk=200 used=200,33 page=8 hq=4 hkv=2 d=32 mask=causal score=\"alibi(slope)\"",
                "b=3 sq=30 sk=200 used=200,33,90 page=24 hq=4 hkv=2 d=32 mask=\"(k + h) <= (q + b)\"",
                "b=2 sq=30 sk=200 used=200,100 page=8 hq=4 hkv=2 d=16 mask=\"window(9, 0)\" family=nan_masked",
                "b=2 sq=30 sk=200 used=200,100 page=8 hq=4 hkv=2 d=16 mask=causal family=nan_attended seed=5"}),
      of_lines("pages.chunked_prefill", "a chunk's queries stand where its offset says",
               {"packed=64/64,16/272,1/500 page=16 hq=4 hkv=2 d=64 mask=causal invariant=1",
                "b=2 sq=32 sk=256 used=160,256 page=32 hq=2 hkv=2 d=32 mask=causal offsets=96,128",
                "b=2 sq=32 sk=256 used=160,256 page=32 hq=2 hkv=2 d=32 mask=causal offset=100 index=i64"}),
      of_lines("pages.long_sequences", "key splits end where the sequence does",
               {"b=2 sq=1 sk=20000 used=20000,3073 page=256 hq=4 hkv=1 d=32 threads=2 workspace=exact",
                "packed=2/7000,1/3072,1/1 page=64 hq=2 hkv=1 d=16 mask=causal threads=3 workspace=exact"}),
      of_lines("lengths.cache_with_nan_past_the_lengths", "NaN past the used lengths never appears",
               {"b=4 sq=3 sk=128 used=32,64,96,48 hq=4 hkv=2 d=64 mask=causal",
                "b=4 sq=1 sk=128 used=32,64,96,48 hq=4 hkv=2 d=64",
                "b=4 sq=3 sk=128 used=32,64,96,48 page=64 hq=4 hkv=2 d=64 mask=causal",
                "packed=3/32,3/64,3/96,3/48 room=128 hq=4 hkv=2 d=64 mask=causal"}),
      of_lines("lengths.empty_and_full", "O 0 and LSE -inf, or every key",
               {"b=3 sq=5 sk=64 used=0,64,1 hq=2 hkv=2 d=16", "b=3 sq=5 sk=64 used=0,64,1 page=16 hq=2 hkv=2 d=16",
                "b=2 sq=5 sk=64 used=0,0 page=16 hq=2 hkv=1 d=16 mask=causal", "b=2 sq=5 sk=0 used=0 hq=2 hkv=1 d=16",
                "packed=3/0,0/0,4/0 page=4 hq=2 hkv=1 d=16",
                "b=2 sq=9 sk=40 used=4,40 page=8 hq=2 hkv=2 d=16 mask=causal sinks=1"}),
      of_body("pages.equal_contiguous", "bitwise what contiguous keys give", paged_is_contiguous),
      of_body("pages.copy_on_write", "what the other sequence sees stays", copy_on_write),
      of_body("serving.lengths_change_between_calls", "every call follows the lengths of now",
              lengths_change_between_calls),
      of_body("sizes.pages_beyond_32_bits", "pages x page size x heads x dim over 2^31: right values, no wrap",
              pages_beyond_32_bits),
  };
}

}  // namespace tessera::conformance
