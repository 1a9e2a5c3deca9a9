#include "tiles/testing/random_masks.hpp"

namespace tessera::tests {

std::string integer(Choices& choices, int depth) {
  static constexpr const char* leaves[] = {"q", "k", "q", "k", "ids:int[q]", "ids:int[k]", "b", "len:int[h]"};
  static constexpr const char* divisors[] = {"3", "8", "16", "-7", "(h + 2)", "(k - 9)"};
  if (depth == 0 || choices.pick(4) == 0)
    return choices.pick(4) == 0 ? std::to_string(static_cast<int>(choices.pick(80)) - 15) : choices.of(leaves);
  const std::string a = integer(choices, depth - 1);
  switch (choices.pick(9)) {
    case 0:
    case 1:
    case 2:
      return "(" + a + " - " + integer(choices, depth - 1) + ")";
    case 3:
      return "(" + a + " + " + integer(choices, depth - 1) + ")";
    case 4:
      return "(" + a + " // " + choices.of(divisors) + ")";
    case 5:
      return "(" + a + " % " + choices.of(divisors) + ")";
    case 6:
      return (choices.pick(2) == 0 ? "min(" : "max(") + a + ", " + integer(choices, depth - 1) + ")";
    case 7:
      return "abs(" + a + ")";
    default:
      return "(" + a + " * " + integer(choices, 0) + ")";
  }
}

std::string boolean(Choices& choices, int depth) {
  static constexpr const char* comparisons[] = {" <= ", " < ", " >= ", " > ", " == ", " != "};
  static constexpr const char* others[] = {"ids:int[q] == ids:int[k]",
                                           "names:int[q] == names:int[k]",
                                           "names:int[q // 2] != names:int[k]",
                                           "seen:bool[q // 8][k // 8]",
                                           "seen:bool[h][k - q + 4]",
                                           "bias[q] * real(k) < 20.0",
                                           "bias[k] <= bias[q]",
                                           "bias[k] == bias[q]",
                                           "exp(bias[k]) > real(q - k)",
                                           "ids:int[ids:int[k]] < 3",
                                           "upper_bound(names, k * 9) < 40",
                                           "upper_bound(cu, q) == upper_bound(cu, k)",
                                           "upper_bound(lines[q // 9], k) <= h + 3"};
  if (depth == 0 || choices.pick(4) == 0) {
    if (choices.pick(3) == 0) return std::string("(") + choices.of(others) + ")";
    return "(" + integer(choices, 2) + choices.of(comparisons) + integer(choices, 2) + ")";
  }
  const std::string a = boolean(choices, depth - 1);
  switch (choices.pick(6)) {
    case 0:
      return "!" + a;
    case 1:
    case 2:
      return "(" + a + " | " + boolean(choices, depth - 1) + ")";
    case 3:
      return "where(" + a + ", " + boolean(choices, depth - 1) + ", " + boolean(choices, depth - 1) + ")";
    default:
      return "(" + a + " & " + boolean(choices, depth - 1) + ")";
  }
}

std::vector<mods::Table> bind(const Graph& graph, const std::vector<Bound>& tensors) {
  std::vector<mods::Table> tables;
  for (const Capture& capture : graph.captures) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const Bound& bound) { return bound.name == mods::name(capture); });
    tables.push_back(found == tensors.end() ? mods::Table{} : found->table);
  }
  return tables;
}

}  // namespace tessera::tests
