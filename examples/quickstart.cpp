// The README's program: eight query heads share two key heads, each query sees itself and the 255 tokens before it.
#include <cstdio>
#include <tessera/tessera.hpp>
#include <vector>

namespace ts = tessera;

int main() {
  const int batch = 1, tokens = 1024, heads = 8, kv_heads = 2, dim = 64;
  std::vector<float> q(batch * tokens * heads * dim, 0.1f), k(batch * tokens * kv_heads * dim, 0.2f), v(k), o(q.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 7);

  ts::attention({.q = ts::tensor(q.data(), {batch, tokens, heads, dim}),
                 .k = ts::tensor(k.data(), {batch, tokens, kv_heads, dim}),
                 .v = ts::tensor(v.data(), {batch, tokens, kv_heads, dim})},
                {.o = ts::tensor(o.data(), {batch, tokens, heads, dim})}, {.mask = ts::causal() & ts::window(255, 0)});
  std::printf("o[0][1023][7][63] = %.4f\n", o.back());
}
