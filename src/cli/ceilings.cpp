#include "cli/ceilings.hpp"

#include <algorithm>
#include <random>
#include <string>

#include "cli/ceilings_table.hpp"
#include "cli/commands.hpp"
#include "cli/machine.hpp"

namespace tessera::cli {
namespace {

constexpr double probe_s = 2e-3;  // shorter than a slice of the scheduler, long beside a thread's start

const FmaLoop* const loops[] = {
#if defined(__x86_64__)
    &fma_loop_avx512, &fma_loop_avx2,
#endif
    &fma_loop_scalar};

const FmaLoop* find_loop(std::string_view isa) {
  for (const FmaLoop* loop : loops)
    if (isa == loop->isa) return loop;
  throw Misuse("there is no ceiling for the instruction set '" + std::string(isa) + "'");
}

std::size_t largest_cache_bytes() {
  std::size_t largest = 0;
  for (const Cache& cache : this_machine().caches) largest = std::max(largest, cache.bytes);
  return largest;
}

// Four streams: one alone does not keep enough cache lines in flight on every machine.
float sum_of(const float* data, std::size_t count) {
  using Vector __attribute__((vector_size(16), aligned(16))) = float;
  constexpr std::size_t streams = 4, lanes = 4;
  const std::size_t length = count / streams;
  Vector sum[streams][4] = {};
  for (std::size_t i = 0; i + 4 * lanes <= length; i += 4 * lanes)
    for (std::size_t s = 0; s < streams; ++s)
      for (std::size_t j = 0; j < 4; ++j)
        sum[s][j] += *reinterpret_cast<const Vector*>(data + s * length + i + j * lanes);
  float total = 0;
  for (auto& stream : sum)
    for (Vector v : stream) total += v[0] + v[1] + v[2] + v[3];
  return total;
}

// What a loop computed goes here, so that it cannot be left out.
void use(float value) { asm volatile("" : : "g"(value)); }

}  // namespace

FmaProbe::FmaProbe(std::string_view isa, int threads) : loop_(find_loop(isa)), crew_(threads), seeds_(512) {
  std::mt19937 random(12345);
  std::uniform_real_distribution<float> magnitude(0.25f, 0.99f);
  for (float& seed : seeds_) seed = magnitude(random) * (random() % 2 ? 1.0f : -1.0f);
}

double FmaProbe::gflops() {
  for (;;) {
    const double seconds = crew_.run([&](int) { use(loop_->run(seeds_.data(), rounds_)); });
    if (seconds >= probe_s / 2)
      return 1e-9 * loop_->flops_per_round * static_cast<double>(rounds_) * crew_.threads() / seconds;
    rounds_ = static_cast<long>(static_cast<double>(rounds_) * std::min(100.0, probe_s / std::max(seconds, 1e-6))) + 1;
  }
}

DramProbe::DramProbe(int threads) : crew_(threads) {
  // Far more than the last cache holds, within reason.
  constexpr std::size_t least = 128u << 20, most = 1u << 30, page = 4096;
  const std::size_t wanted = std::clamp<std::size_t>(4 * largest_cache_bytes(), least, most);
  const std::size_t part = wanted / static_cast<std::size_t>(crew_.threads()) / page * page;
  data_ = Block(part * static_cast<std::size_t>(crew_.threads()));
  float* const data = static_cast<float*>(data_.data());
  // Each thread writes what it will read, so that it lies in its own memory node.
  crew_.run([&](int index) {
    std::minstd_rand random(static_cast<unsigned>(index) + 1);
    float* const own = data + part / sizeof(float) * static_cast<std::size_t>(index);
    for (std::size_t i = 0; i < part / sizeof(float); ++i)
      own[i] = 1.0f + static_cast<float>(random() % 1024) / 1024.0f;
  });
}

double DramProbe::gbytes_per_s() {
  const float* const data = static_cast<const float*>(data_.data());
  const std::size_t part = data_.bytes() / sizeof(float) / static_cast<std::size_t>(crew_.threads());
  const double seconds =
      crew_.run([&](int index) { use(sum_of(data + part * static_cast<std::size_t>(index), part)); });
  return 1e-9 * static_cast<double>(data_.bytes()) / seconds;
}

}  // namespace tessera::cli
