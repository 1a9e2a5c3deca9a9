// The calls. attention() is describe, plan (cached) and run in one.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "tessera/plan.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

// O = softmax(scale * Q K^T, masked) V, exactly. Shapes and types: Inputs, Outputs. After the first call of a kind
// nothing is allocated. Throws Error before anything is written.
void attention(const Inputs& inputs, const Outputs& outputs, const Options& options = {}, const Exec& exec = {});
Status try_attention(const Inputs& inputs, const Outputs& outputs, const Options& options = {},
                     const Exec& exec = {}) noexcept;

// Merges partial results over disjoint sets of keys: o = sum(exp(lse_i - lse) o_i), lse = log(sum(exp(lse_i))).
// a, b: o f32, bf16 or f16 [batch, tokens, heads, dim], lse f32 [batch, heads, tokens] (packed: [total, heads, dim] and
// [heads, total]). A partial result whose lse is -inf is empty and adds nothing, whatever its o holds; two empty ones
// give o = 0, lse = -inf. out may be a or b themselves.
void merge(const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec = {});

// One line per backend and instruction set, best first: what could run here and what is missing.
struct BackendInfo {
  std::string name;  // "cpu:avx2"
  bool available = false;
  DeviceType device = DeviceType::cpu;  // where the tensors are that it computes on
  std::string detail;                   // what it is, or what is missing and how to get it
};
std::vector<BackendInfo> backends();

std::string_view version();

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
