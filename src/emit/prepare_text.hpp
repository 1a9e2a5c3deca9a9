// The kernel that finds on the device what the forward kernel needs and what follows from metadata and captured tensors
// there (kernels/prepare.cuh, prepare_runs.cuh): its text, what a call launches, and how much memory that writes.
// Must not know: devices, drivers, data.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <vector>

#include "emit/kernel_text.hpp"
#include "mods/graph.hpp"

namespace tessera::emit {

struct PrepareSpec {
  bool packed = false;  // tiles_before is written
  int queries = 128;    // of a query tile: rows / heads
  bool runs = false;    // and then:
  int k_tile = 64;
  Graph mask{};
  std::vector<DType> mask_dtypes{};  // of its captured tensors, in order
  bool operator==(const PrepareSpec&) const = default;
};
std::ostream& operator<<(std::ostream& out, const PrepareSpec& spec);  // one line, all that the text depends on

// The parameters are a PrepareParams (kernels/prepare.cuh), with `runs` followed by prepare_argument_words(mask) words
// that pack_prepare_arguments() fills. Equal specs give equal texts. Throws Error(internal) for a spec that none is
// made of, and as mod_function does.
KernelText prepare_text(const PrepareSpec& spec);
std::size_t prepare_param_bytes(const PrepareSpec& spec);
void pack_prepare_arguments(const PrepareSpec& spec, std::span<const mods::Table> tables, std::uint64_t* words);

// What a call launches, in this order: PrepareParams::stage and pass, and blocks of prepare_text().threads threads.
struct PrepareLaunch {
  int stage = 0, pass = 0;
  std::int64_t blocks = 0;
};
struct PrepareLaunches {
  std::array<PrepareLaunch, 24> all{};
  std::size_t count = 0;
  const PrepareLaunch* begin() const { return all.data(); }
  const PrepareLaunch* end() const { return all.data() + count; }
};
// `items`: query tiles of all maps, PrepareParams::tiles * map_batch * map_heads. Without `runs`: 0.
PrepareLaunches prepare_launches(const PrepareSpec& spec, std::span<const mods::Table> tables, std::int64_t items);

// Bytes of the summary of a captured tensor, PrepareParams::entries; 0: it has no elements, and the entry is null.
std::size_t summary_bytes(const Capture& capture, const mods::Table& table);
// Runs that are kept of a query tile over so many key tiles, PrepareParams::run_limit: enough for any mask in short
// contexts, for documents, windows and blocks in long ones. Neighbours beyond it are joined to partial runs.
std::int64_t run_limit(std::int64_t key_tiles);

}  // namespace tessera::emit
