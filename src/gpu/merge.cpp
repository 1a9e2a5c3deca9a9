#include "gpu/merge.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "gpu/call.hpp"
#include "problem/fail.hpp"
#include "problem/layout.hpp"

namespace tessera::gpu {
namespace {

using tessera_kernels::MergePart;

MergePart part_of(const Outputs& x) {
  const auto &o = x.o.stride, &l = x.lse.stride;
  if (x.o.rank == 3) return {{x.o.data, 0, o[0], o[1]}, x.lse.as<float>(), 0, l[0], l[1]};
  return {{x.o.data, o[0], o[1], o[2]}, x.lse.as<float>(), l[0], l[1], l[2]};
}

// Elements at a time where addresses and strides have no other bits in common than these.
int width_of(std::uintptr_t bits, DType dtype) {
  constexpr int most_bytes = 16;  // of a load; two of them for eight f32
  const int bytes = 1 << (bits ? std::min(std::countr_zero(bits), 4) : 4);
  return bytes == most_bytes ? 8 : bytes / static_cast<int>(size_bytes(dtype));
}
int width_of(const Tensor& t) {
  auto bits = reinterpret_cast<std::uintptr_t>(t.data);
  for (int axis = 0; axis + 1 < t.rank; ++axis)
    if (t.shape[axis] > 1) bits |= static_cast<std::uintptr_t>(t.stride[axis] * size_bytes(t.dtype));
  return width_of(bits, t.dtype);
}
int width_within(int width, std::int64_t dim) {
  while (width > dim) width /= 2;
  return width;
}

std::size_t index_of(const emit::MergeSpec& s) {
  const auto type = [](DType dtype) { return dtype == DType::f32 ? 0u : dtype == DType::bf16 ? 1u : 2u; };
  const auto width = static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(s.width)));
  return ((type(s.a) * 3 + type(s.b)) * 3 + type(s.out)) * 4 + width;
}

}  // namespace

MergeLaunch merge_launch(const Outputs& a, const Outputs& b, const Outputs& out) {
  MergeLaunch launch;
  const bool packed = a.o.rank == 3;
  auto& p = launch.params;
  p = {};
  p.a = part_of(a), p.b = part_of(b), p.out = part_of(out);
  p.tokens = a.o.shape[packed ? 0 : 1], p.heads = a.o.shape[packed ? 1 : 2], p.dim = a.o.shape[packed ? 2 : 3];
  p.rows = (packed ? 1 : a.o.shape[0]) * p.tokens * p.heads;
  const int width = width_within(std::min({8, width_of(a.o), width_of(b.o), width_of(out.o)}), p.dim);
  launch.spec = {a.o.dtype, b.o.dtype, out.o.dtype, width};
  while (p.lanes_log2 < 5 && (std::int64_t{width} << p.lanes_log2) < p.dim) ++p.lanes_log2;
  const std::int64_t rows_of_block = tessera_kernels::merge_threads >> p.lanes_log2;
  launch.blocks = p.rows / rows_of_block + (p.rows % rows_of_block != 0);
  return launch;
}

std::vector<emit::MergeSpec> merge_specs(const Problem& p) {
  std::vector<emit::MergeSpec> specs;
  const auto add = [&](DType part, DType out) {
    const auto row = [&](DType dtype) {
      return width_of(static_cast<std::uintptr_t>(p.dim_v * size_bytes(dtype)), dtype);
    };
    specs.push_back({part, part, out, width_within(std::min(row(part), row(out)), p.dim_v)});
  };
  if (!p.wants_lse) return specs;
  add(p.out_dtype, p.out_dtype);
  if (p.out_dtype == DType::f32 && p.dtype != DType::f32) add(DType::f32, p.dtype);
  return specs;
}

const Kernel& Merge::kernel(int device, const emit::MergeSpec& spec) const {
  std::call_once(counted_, [&] { slots_ = std::make_unique<Slots[]>(static_cast<std::size_t>(engine_.devices())); });
  auto& slot = slots_[static_cast<std::size_t>(device)][index_of(spec)];
  if (const Kernel* kernel = slot.load(std::memory_order_acquire)) return *kernel;
  const Kernel& kernel = engine_.kernel(device, emit::merge_text(spec));
  slot.store(&kernel, std::memory_order_release);
  return kernel;
}

void Merge::run(const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) const {
  constexpr int least_arch = 80;  // conversions to bf16
  const Device& device = a.o.device;
  if (device.index < 0 || device.index >= engine_.devices())
    problem::fail(Code::invalid_device, "the partial results are on device ", device.index, ": there are ",
                  engine_.devices(), ", numbered from 0");
  if (const Caps& caps = engine_.caps(device.index); caps.arch < least_arch)
    problem::fail(Code::unsupported, "merge() needs compute capability 8.0, ", caps.name, " has ", caps.arch / 10, ".",
                  caps.arch % 10);
  const auto check = [&](const char* name, const Tensor& t) { check_place(engine_, device, name, t); };
  check("a.o", a.o), check("a.lse", a.lse), check("b.o", b.o), check("b.lse", b.lse);
  check("out.o", out.o), check("out.lse", out.lse);
  const MergeLaunch launch = merge_launch(a, b, out);
  if (launch.blocks == 0) return;
  if (launch.blocks > most_blocks)
    problem::fail(Code::unsupported, "merging ", launch.params.rows, " rows takes ", launch.blocks,
                  " blocks: a launch has at most ", most_blocks);
  engine_.launch(device.index, exec.stream, kernel(device.index, launch.spec), launch.blocks, &launch.params,
                 sizeof launch.params);
}

}  // namespace tessera::gpu
