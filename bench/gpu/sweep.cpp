// Tiles of the GPU's forward kernel, measured side by side: what src/gpu/tile_table.cpp is chosen by. One process, in
// turns, medians; a point that is in --results is not measured again.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "backend.hpp"
#include "cuda/engine.hpp"
#include "gpu/gpu_backend.hpp"
#include "tessera/attention.hpp"

namespace {

using namespace tessera;

constexpr const char* usage =
    "tessera_gpu_sweep [flags]: tiles of the forward kernel beside each other, in TFLOP/s\n"
    "  --tiles LIST     \"128x64 w4 s2 b2 e3; 64x64 w4 s2 b4 q\": queries x keys, warps, stages, blocks a "
    "multiprocessor,\n"
    "                   steps exponentiated early, n2: two warps share rows, q: queries in registers. Without it: the "
    "table's own.\n"
    "                   \"sm90\": cuda:sm_90 by its table; \"sm90 128x128 s2 v2 o2 p\": stages of keys and of values,\n"
    "                   places of queries and O, p: warpgroups take turns\n"
    "  --dims LIST      64,128,256        --n LIST       512,4096,16384, of 16384 tokens in all\n"
    "  --mask LIST      \"full;causal\"     --score TEXT   \"softcap(30)\"\n"
    "  --dtype TYPE     bf16              --heads Q,KV   heads x dim = 2048\n"
    "  --rounds N       7, of 10 ms       --once         one launch each, for a profiler\n"
    "  --results FILE   goes on where the file ends\n";

struct Flags {
  std::vector<std::string> tiles{""}, masks{"full", "causal"};
  std::vector<int> dims{64, 128, 256}, lengths{512, 4096, 16384}, heads;
  std::string score, results;
  DType dtype = bf16;
  int rounds = 7;
  bool once = false;
};

[[noreturn]] void misused(const std::string& text) {
  std::fprintf(stderr, "tessera_gpu_sweep: %s\n%s", text.c_str(), usage);
  std::exit(2);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) {
    part.erase(0, part.find_first_not_of(' '));
    parts.push_back(part);
  }
  return parts;
}

int number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    misused("'" + text + "' is no number of 1 or more");
  return value;
}
std::vector<int> numbers(const std::string& text) {
  std::vector<int> values;
  for (const std::string& part : split(text, ',')) values.push_back(number(part));
  return values;
}

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) misused(flag + " takes a value");
      return std::string(argv[++i]);
    };
    if (flag == "--tiles") flags.tiles = split(value(), ';');
    else if (flag == "--mask") flags.masks = split(value(), ';');
    else if (flag == "--dims") flags.dims = numbers(value());
    else if (flag == "--n") flags.lengths = numbers(value());
    else if (flag == "--heads") flags.heads = numbers(value());
    else if (flag == "--score") flags.score = value();
    else if (flag == "--dtype") flags.dtype = parse_dtype(value());
    else if (flag == "--rounds") flags.rounds = number(value());
    else if (flag == "--results") flags.results = value();
    else if (flag == "--once") flags.once = true;
    else misused("there is no flag '" + flag + "'");
  }
  if (!flags.heads.empty() && flags.heads.size() != 2) misused("--heads takes two numbers");
  return flags;
}

// "128x64 w4 s2 b2 e3 q", for every dim.
gpu::Tile parse_tile(const std::string& text, bool sm90) {
  gpu::Tile tile{256, 0, 0, 4, 2};
  if (sm90) tile.ping_pong = false;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    const std::string rest = word.substr(1);
    if (const std::size_t x = word.find('x'); x != std::string::npos)
      tile.q_tile = number(word.substr(0, x)), tile.k_tile = number(word.substr(x + 1));
    else if (word == "sm90") continue;
    else if (word == "q") tile.q_registers = true;
    else if (word == "p") tile.ping_pong = true;
    else if (word[0] == 'v') tile.v_stages = number(rest);
    else if (word[0] == 'o') tile.q_buffers = number(rest);
    else if (word[0] == 'w') tile.warps = number(rest);
    else if (word[0] == 's') tile.stages = number(rest);
    else if (word[0] == 'b') tile.blocks = number(rest);
    else if (word[0] == 'n') tile.warps_n = number(rest);
    else if (word[0] == 'e') tile.early = number(rest);
    else misused("'" + word + "' is no part of a tile");
  }
  if (tile.q_tile == 0) misused("'" + text + "' names no queries and keys");
  if (sm90) tile.warps = tile.q_tile / 16;
  return tile;
}

// A backend for each tile, under a name of its own; "" is the library's.
std::string backend_of(const std::string& tile) {
  if (tile.empty()) return "cuda:sm_80";
  const bool sm90 = tile.rfind("sm90", 0) == 0;
  static std::deque<gpu::Tile> tiles;
  static std::deque<std::pair<std::string, std::unique_ptr<gpu::GpuBackend>>> made;
  for (const auto& [text, backend] : made)
    if (text == tile) return backend->full_name();
  const std::string name = "tile" + std::to_string(made.size());
  if (tile == "sm90") {
    made.emplace_back(tile, std::make_unique<gpu::GpuBackend>(name, cuda::engine(), 90));
  } else {
    tiles.push_back(parse_tile(tile, sm90));
    made.emplace_back(
        tile, std::make_unique<gpu::GpuBackend>(name, cuda::engine(), sm90 ? 90 : 80, std::span(&tiles.back(), 1)));
  }
  append_backend(*made.back().second);
  return made.back().second->full_name();
}

struct Point {
  int dim, n;
  std::string mask;
};

constexpr Device device{DeviceType::cuda, 0};
constexpr std::int64_t all_tokens = 16384, width = 2048;

class Scene {
 public:
  Scene(const Flags& flags, const Point& p) {
    const std::int64_t batch = std::max<std::int64_t>(1, all_tokens / p.n);
    const std::int64_t heads = flags.heads.empty() ? width / p.dim : flags.heads[0];
    const std::int64_t heads_kv = flags.heads.empty() ? heads : flags.heads[1];
    const auto rows = [&](std::int64_t count) {
      const std::int64_t elements = batch * p.n * count * p.dim;
      memory_.push_back(cuda::engine().allocate(0, static_cast<std::size_t>(elements) * 2));
      std::vector<std::uint16_t> host(static_cast<std::size_t>(elements));
      for (std::uint16_t& x : host) x = normal(flags.dtype);
      cuda::engine().upload(0, {}, memory_.back().get(), host.data(), host.size() * 2);
      return tensor(memory_.back().get(), flags.dtype, {batch, p.n, count, p.dim}, {}, device);
    };
    in = {.q = rows(heads), .k = rows(heads_kv), .v = rows(heads_kv)};
    out = {.o = rows(heads)};
    cuda::engine().synchronise(0, {});
    options.mask = p.mask == "full" ? Mask{} : parse_mask(p.mask);
    if (!flags.score.empty()) options.score = parse_score(flags.score);
  }
  Plan plan_of(const std::string& tile) {
    const std::string backend = backend_of(tile);
    options.backend = backend;
    return plan(describe(in, out, options));
  }
  // What the outputs hold, of every 1000th element.
  std::vector<float> sample() const {
    std::vector<std::uint16_t> host(static_cast<std::size_t>(out.o.elements()));
    cuda::engine().download(0, {}, host.data(), out.o.data, host.size() * 2);
    std::vector<float> values;
    for (std::size_t i = 0; i < host.size(); i += 997) values.push_back(value(host[i], out.o.dtype));
    const std::vector<std::uint16_t> poison(host.size(), 0xffff);
    cuda::engine().upload(0, {}, out.o.data, poison.data(), poison.size() * 2);
    cuda::engine().synchronise(0, {});
    return values;
  }
  Inputs in;
  Outputs out;
  Options options;

 private:
  std::uint16_t normal(DType type) {
    // Sum of four bytes: near enough to N(0, 1).
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const std::uint32_t r = static_cast<std::uint32_t>(state_ >> 32);
    const float x = (static_cast<float>((r & 255) + (r >> 8 & 255) + (r >> 16 & 255) + (r >> 24)) - 510.0f) / 147.8f;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, 4);
    if (type == bf16) return static_cast<std::uint16_t>((bits + 0x8000u) >> 16);
    if (x == 0) return 0;
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | (((bits & 0x7fffffffu) - 0x38000000u + 0x1000u) >> 13));
  }
  static float value(std::uint16_t bits, DType type) {
    std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    if (type != bf16)
      wide = ((bits & 0x8000u) << 16) | (((bits & 0x7fffu) << 13) + ((bits & 0x7c00u) ? 0x38000000u : 0u));
    float x = 0;
    std::memcpy(&x, &wide, 4);
    return x;
  }
  std::uint64_t state_ = 42;
  std::vector<std::shared_ptr<void>> memory_;
};

struct Row {
  std::string tile, trouble;
  Plan plan;
  gpu::Resources resources;
  double off = 0;  // from the first row's output
  int launches = 1;
  std::vector<double> seconds;
};

double window(const Row& row, const Scene& scene) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < row.launches; ++i) row.plan.run(scene.in, scene.out);
  cuda::engine().synchronise(0, {});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / row.launches;
}

void compile(std::vector<Row>& rows) {
  std::vector<std::thread> threads;
  for (Row& row : rows)
    threads.emplace_back([&row] {
      try {
        for (const gpu::KernelText& text : gpu::kernel_texts(row.plan))
          row.resources = cuda::engine().kernel(0, text).resources;
      } catch (const std::exception& error) {
        row.trouble = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void measure(const Flags& flags, const Point& p, const std::string& name) {
  Scene scene(flags, p);
  std::vector<Row> rows;
  for (const std::string& tile : flags.tiles) {
    Row& row = rows.emplace_back();
    row.tile = tile.empty() ? "table" : tile;
    try {
      row.plan = scene.plan_of(tile);
    } catch (const std::exception& error) {
      row.trouble = error.what();
    }
  }
  compile(rows);
  std::vector<float> first;
  for (Row& row : rows) {
    if (!row.trouble.empty()) continue;
    window(row, scene);
    const std::vector<float> now = scene.sample();
    if (first.empty()) first = now;
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < now.size(); ++i)
      error += std::pow(double{now[i]} - double{first[i]}, 2), norm += std::pow(double{first[i]}, 2);
    row.off = std::sqrt(error / norm);
    row.launches = flags.once ? 1 : std::max(1, static_cast<int>(0.010 / window(row, scene)));
  }
  for (int round = 0; round < (flags.once ? 1 : flags.rounds); ++round)
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[(i + static_cast<std::size_t>(round)) % rows.size()];
      if (row.trouble.empty()) row.seconds.push_back(window(row, scene));
    }
  std::ofstream file;
  if (!flags.results.empty()) file.open(flags.results, std::ios::app);
  for (Row& row : rows) {
    char text[300];
    if (!row.trouble.empty()) {
      std::snprintf(text, sizeof text, "%-22s %-26s %.200s", name.c_str(), row.tile.c_str(), row.trouble.c_str());
    } else {
      std::sort(row.seconds.begin(), row.seconds.end());
      const double median = row.seconds[row.seconds.size() / 2];
      std::snprintf(text, sizeof text,
                    "%-22s %-26s %6.1f TFLOP/s  %4.1f %%  %3d registers %4d local %d blocks  off %.1e%s", name.c_str(),
                    row.tile.c_str(), row.plan->cost.flops / median * 1e-12,
                    100 * (row.seconds.back() - row.seconds.front()) / median, row.resources.registers,
                    row.resources.local_bytes, row.resources.blocks_per_sm, row.off, row.off < 2e-2 ? "" : "  WRONG");
    }
    std::cout << text << std::endl;
    if (file) file << text << std::endl;
  }
}

bool is_done(const Flags& flags, const std::string& name) {
  std::ifstream file(flags.results);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(name, 0) == 0) return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Flags flags = parse(argc, argv);
    if (const std::string missing = cuda::engine().missing(); !missing.empty()) {
      std::cout << "skipped, there is no GPU: " << missing << std::endl;
      return 0;
    }
    for (const int dim : flags.dims)
      for (const int n : flags.lengths)
        for (const std::string& mask : flags.masks) {
          const std::string name =
              "d" + std::to_string(dim) + " n" + std::to_string(n) + ' ' + mask + ' ' + flags.score;
          if (!is_done(flags, name)) measure(flags, {dim, n, mask}, name);
        }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera_gpu_sweep: %s\n", error.what());
    return 2;
  }
}
