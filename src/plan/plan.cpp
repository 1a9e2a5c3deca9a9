// The plan as a value: compared, hashed, printed.
#include "tessera/plan.hpp"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "plan/details.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

// 1234567 -> "1.23 M"
std::string amount(double value, const char* unit) {
  static constexpr const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  int step = 0;
  while (value >= 1000 && step < 5) value /= 1000, ++step;
  std::ostringstream text;
  text << std::setprecision(value < 10 ? 3 : 4) << value << ' ' << prefixes[step] << unit;
  return text.str();
}

}  // namespace

bool operator==(const Plan& a, const Plan& b) {
  if (!a || !b) return !a && !b;
  return a->problem == b->problem && a->backend == b->backend && a->isa == b->isa && a->tiling == b->tiling;
}

std::uint64_t hash(const Plan& plan) {
  if (!plan) return 0;
  return hash(plan->problem) ^ (std::hash<std::string>{}(plan->backend + ":" + plan->isa) * 0x9e3779b97f4a7c15u);
}

std::ostream& operator<<(std::ostream& out, const Plan& plan) {
  if (!plan) return out << "Plan(none)";
  const PlanData& d = *plan;
  const Tiling& t = d.tiling;
  const char* most = d.cost.upper_bound ? "<= " : "";
  out << "Plan\n"
      << "  backend    " << d.backend << ':' << d.isa << '\n'
      << "  problem    " << d.problem << '\n'
      << "  tiles      " << d.tiles << '\n'
      << "  work       " << (d.problem.packed ? "<= " : "") << t.items << " items of " << t.q_tile << " queries";
  if (t.heads_per_tile > 1) out << " x " << t.heads_per_tile << " heads";
  if (t.tiles_at_once > 1) out << ", up to " << t.tiles_at_once << " at once";
  out << ", panels of " << t.panel << " rows, blocks of " << t.k_block << " keys";
  if (t.run_queries > 0) out << ", the mask in tiles of " << t.run_queries << " x " << t.run_keys;
  out << '\n'
      << "  splits     " << t.splits << (t.splits > 1 ? " over the keys, merged in order" : " (keys are not split)");
  if (t.kv_split > 0) out << "; a partial result every " << t.kv_split << " keys";
  out << "\n  workspace  " << amount(static_cast<double>(d.partial_bytes), "B");
  if (d.scratch_bytes > 0) out << " + " << amount(static_cast<double>(d.scratch_bytes), "B") << " a thread";
  out << "\n  asks for   " << most << amount(d.cost.flops, "FLOP") << ", " << amount(d.cost.bytes, "B") << " moved, "
      << amount(d.cost.flops / std::max(1.0, d.cost.bytes), "FLOP/B");
  if (d.details) d.details->print(out);
  for (const PassedOver& p : d.passed_over) out << "\n  not taken  " << p.candidate << ": " << p.reason;
  return out;
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
