#include "mods/testing/random_program.hpp"

namespace tessera::tests {

Step random_constant(Choices& choices, Op op, Type type) {
  static constexpr std::int64_t integers[] = {0,
                                              1,
                                              -1,
                                              2,
                                              3,
                                              7,
                                              -5,
                                              1023,
                                              std::numeric_limits<std::int64_t>::max(),
                                              std::numeric_limits<std::int64_t>::min(),
                                              std::int64_t{1} << 62};
  static constexpr double reals[] = {0,
                                     1,
                                     -1,
                                     0.5,
                                     1.0 / 3,
                                     -0.0,
                                     1e300,
                                     1e-5,
                                     5e-324,
                                     1e15,
                                     -123456789.125,
                                     std::numeric_limits<double>::infinity(),
                                     -std::numeric_limits<double>::infinity(),
                                     std::numeric_limits<double>::quiet_NaN()};
  Step step{op, type, 0, 0, {}};
  if (type == Type::boolean) step.i = choices.pick(2);
  if (type == Type::integer) step.i = choices.of(integers);
  if (type == Type::real) step.r = choices.of(reals);
  return step;
}

const std::vector<Captured>& tensors() {
  static const std::vector<Captured> all = {{"slope", f32, {5, 0, 0, 0}}, {"table", bf16, {3, 7, 0, 0}},
                                            {"_3", f16, {2, 3, 4, 0}},    {"ids", i32, {9, 0, 0, 0}},
                                            {"len", i64, {2, 2, 3, 4}},   {"kind", u8, {4, 1, 0, 0}},
                                            {"seen", b8, {3, 6, 0, 0}},   {"offsets", i64, {2, 6, 0, 0}}};
  return all;
}

std::vector<mods::Table> tables(const Graph& graph) {
  static const std::vector<std::vector<std::byte>> bytes = [] {
    std::vector<std::vector<std::byte>> filled;
    for (const Captured& c : tensors()) {
      filled.emplace_back(std::size_t{8192}, std::byte{0xff});
      std::array<std::int64_t, 4> n = c.extent, i{};
      for (std::int64_t& extent : n) extent = std::max<std::int64_t>(extent, 1);
      for (i[0] = 0; i[0] < n[0]; ++i[0])
        for (i[1] = 0; i[1] < n[1]; ++i[1])
          for (i[2] = 0; i[2] < n[2]; ++i[2])
            for (i[3] = 0; i[3] < n[3]; ++i[3]) {
              const double x = c.at(i);
              const auto put = [&](auto value) {
                const std::int64_t place = i[0] + 9 * i[1] + 63 * i[2] + 251 * i[3];
                std::memcpy(filled.back().data() + static_cast<std::size_t>(place) * sizeof value, &value,
                            sizeof value);
              };
              if (c.dtype == f32) put(static_cast<float>(x));
              if (c.dtype == bf16) put(BFloat16(static_cast<float>(x)));
              if (c.dtype == f16) put(Float16(static_cast<float>(x)));
              if (c.dtype == i32) put(static_cast<std::int32_t>(x));
              if (c.dtype == i64) put(static_cast<std::int64_t>(x));
              if (c.dtype == u8) put(static_cast<std::uint8_t>(x));
              if (c.dtype == b8) put(static_cast<std::uint8_t>(x != 0 ? 5 : 0));  // any byte but 0 is true
            }
    }
    return filled;
  }();
  std::vector<mods::Table> bound;
  for (const Capture& capture : graph.captures)
    for (std::size_t i = 0; i < tensors().size(); ++i)
      if (tensors()[i].name == mods::name(capture))
        bound.push_back({bytes[i].data(), tensors()[i].dtype, tensors()[i].extent, {1, 9, 63, 251}});
  return bound;
}

Program random_program(Choices& choices, std::size_t most) {
  Program program;
  const auto leaf_of = [&](Type type) {
    static constexpr Op integers[] = {Op::query, Op::key, Op::batch, Op::head};
    if (type == Type::integer) program.push_back({choices.of(integers), type, 0, 0, {}});
    if (type == Type::real) program.push_back({Op::score, type, 0, 0, {}});
    if (type == Type::boolean) program.push_back(random_constant(choices, Op::constant, type));
    return static_cast<int>(program.size() - 1);
  };
  // One of the latest steps of this type, or a new leaf.
  const auto some = [&](Type type) {
    int back = static_cast<int>(choices.pick(5));
    for (int i = static_cast<int>(program.size()) - 1; i >= 0; --i)
      if (program[static_cast<std::size_t>(i)].type == type && back-- <= 0) return i;
    return leaf_of(type);
  };
  const auto number = [&] { return choices.pick(3) == 0 ? Type::real : Type::integer; };
  const auto type_of = [&](int i) { return program[static_cast<std::size_t>(i)].type; };
  do {
    const Op op = static_cast<Op>(choices.pick(mods::op_count));
    Step step{op, Type::real, 0, 0, {}};
    switch (op) {
      case Op::constant:
        step = random_constant(choices, op, static_cast<Type>(choices.pick(3)));
        break;
      case Op::param:
        step = random_constant(choices, op, number());
        break;
      case Op::score:
        break;
      case Op::batch:
      case Op::head:
      case Op::query:
      case Op::key:
        step.type = Type::integer;
        break;
      case Op::add:
      case Op::sub:
      case Op::mul:
      case Op::min:
      case Op::max:
        step.arg = {some(number()), some(number())};
        step.type = type_of(step.arg[0]) == Type::real ? Type::real : type_of(step.arg[1]);
        break;
      case Op::neg:
      case Op::abs:
      case Op::sign:
        step.arg = {some(number())}, step.type = type_of(step.arg[0]);
        break;
      case Op::floor_div:
      case Op::mod:
        step.arg = {some(Type::integer), some(Type::integer)}, step.type = Type::integer;
        break;
      case Op::div: {
        const int a = some(number());
        step.arg = {a, some(type_of(a) == Type::real ? number() : Type::real)};
        break;
      }
      case Op::lt:
      case Op::le:
      case Op::gt:
      case Op::ge:
      case Op::eq:
      case Op::ne:
        step.arg = {some(number()), some(number())}, step.type = Type::boolean;
        break;
      case Op::logical_and:
      case Op::logical_or:
        step.arg = {some(Type::boolean), some(Type::boolean)}, step.type = Type::boolean;
        break;
      case Op::logical_not:
        step.arg = {some(Type::boolean)}, step.type = Type::boolean;
        break;
      case Op::select: {
        const int condition = some(Type::boolean);
        const bool booleans = choices.pick(3) == 0;
        const int a = some(booleans ? Type::boolean : number()), b = some(booleans ? Type::boolean : number());
        step.arg = {condition, a, b};
        step.type = type_of(a) == Type::real ? Type::real : type_of(b);
        break;
      }
      case Op::pow:
        step.arg = {some(number()), some(number())};
        break;
      case Op::to_real:
        step.arg = {some(Type::integer)};
        break;
      case Op::load:
        step.tensor = choices.pick(tensors().size());
        step.type = tensors()[step.tensor].type();
        for (std::size_t i = 0; i < tensors()[step.tensor].rank(); ++i) step.arg.push_back(some(Type::integer));
        break;
      case Op::upper_bound:
        step.tensor = choices.pick(tensors().size());
        while (tensors()[step.tensor].type() != Type::integer) step.tensor = (step.tensor + 1) % tensors().size();
        step.type = Type::integer;
        for (std::size_t i = 0; i < tensors()[step.tensor].rank(); ++i) step.arg.push_back(some(Type::integer));
        break;
      default:  // exp .. erf
        step.arg = {some(number())};
        break;
    }
    program.push_back(step);
  } while (choices.more() && program.size() < most);
  return program;
}

std::vector<std::uint16_t> build(mods::Builder& builder, const Program& program) {
  std::vector<std::uint16_t> node;
  const auto at = [&](int i) { return node[static_cast<std::size_t>(i)]; };
  for (const Step& s : program) {
    if (s.op == Op::constant)
      node.push_back(s.type == Type::boolean   ? builder.constant(s.i != 0)
                     : s.type == Type::integer ? builder.constant(s.i)
                                               : builder.constant(s.r));
    else if (s.op == Op::param) node.push_back(s.type == Type::real ? builder.param(s.r) : builder.param(s.i));
    else if (mods::reads_capture(s.op)) {
      std::vector<std::uint16_t> index;
      for (const int i : s.arg) index.push_back(at(i));
      const Captured& c = tensors()[s.tensor];
      const std::uint8_t slot = builder.capture(c.name, c.type(), static_cast<int>(c.rank()));
      node.push_back(s.op == Op::load ? builder.load(slot, index) : builder.upper_bound(slot, index));
    } else if (s.arg.empty()) node.push_back(builder.leaf(s.op));
    else if (s.arg.size() == 1) node.push_back(builder.apply(s.op, at(s.arg[0])));
    else if (s.arg.size() == 2) node.push_back(builder.apply(s.op, at(s.arg[0]), at(s.arg[1])));
    else node.push_back(builder.apply(s.op, at(s.arg[0]), at(s.arg[1]), at(s.arg[2])));
  }
  return node;
}

std::int64_t searched(const std::vector<std::int64_t>& line, std::size_t first, std::size_t last, std::int64_t x) {
  if (first == last) return static_cast<std::int64_t>(first);
  const std::size_t middle = (first + last) / 2;
  return line[middle] > x ? searched(line, first, middle, x) : searched(line, middle + 1, last, x);
}

std::vector<Meaning> meanings(const Program& program, const mods::Point& at) {
  using Wide = __int128;
  std::vector<Meaning> all;
  for (const Step& s : program) {
    const auto type = [&](std::size_t a) { return program[static_cast<std::size_t>(s.arg[a])].type; };
    const auto i = [&](std::size_t a) { return Wide{all[static_cast<std::size_t>(s.arg[a])].i}; };
    const auto truth = [&](std::size_t a) { return all[static_cast<std::size_t>(s.arg[a])].i == 1; };
    const auto r = [&](std::size_t a) {
      const Meaning& m = all[static_cast<std::size_t>(s.arg[a])];
      return type(a) == Type::real ? m.r : static_cast<double>(m.i);
    };
    bool reals = false;
    for (std::size_t a = 0; a < s.arg.size(); ++a) reals = reals || type(a) == Type::real;
    const auto integer = [](Wide whole) {
      const Wide least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
      return Meaning{static_cast<std::int64_t>(whole < least ? least : whole > most ? most : whole), 0};
    };
    const auto boolean = [](bool b) { return Meaning{b ? 1 : 0, 0}; };
    const auto real = [](double x) { return Meaning{0, x}; };
    const auto compare = [&](auto holds) { return boolean(reals ? holds(r(0), r(1)) : holds(i(0), i(1))); };
    const auto remainder = [&] { return i(1) == 0 ? Wide{0} : (i(0) % i(1) + i(1)) % i(1); };
    Meaning m;
    switch (s.op) {
      case Op::constant:
      case Op::param:
        m = {s.i, s.r};
        break;
      case Op::batch:
        m.i = at.b;
        break;
      case Op::head:
        m.i = at.h;
        break;
      case Op::query:
        m.i = at.q;
        break;
      case Op::key:
        m.i = at.k;
        break;
      case Op::score:
        m.r = at.s;
        break;
      case Op::add:
        m = reals ? real(r(0) + r(1)) : integer(i(0) + i(1));
        break;
      case Op::sub:
        m = reals ? real(r(0) - r(1)) : integer(i(0) - i(1));
        break;
      case Op::mul:
        m = reals ? real(r(0) * r(1)) : integer(i(0) * i(1));
        break;
      case Op::floor_div:
        m = integer(i(1) == 0 ? 0 : (i(0) - remainder()) / i(1));
        break;
      case Op::mod:
        m = integer(remainder());
        break;
      case Op::div:
        m = real(r(0) / r(1));
        break;
      case Op::min:
        m = reals ? real(std::isnan(r(0))   ? r(1)
                         : std::isnan(r(1)) ? r(0)
                         : r(1) < r(0)      ? r(1)
                                            : r(0))
                  : integer(i(1) < i(0) ? i(1) : i(0));
        break;
      case Op::max:
        m = reals ? real(std::isnan(r(0))   ? r(1)
                         : std::isnan(r(1)) ? r(0)
                         : r(1) > r(0)      ? r(1)
                                            : r(0))
                  : integer(i(1) > i(0) ? i(1) : i(0));
        break;
      case Op::neg:
        m = reals ? real(-r(0)) : integer(-i(0));
        break;
      case Op::abs:
        m = reals ? real(std::abs(r(0))) : integer(i(0) < 0 ? -i(0) : i(0));
        break;
      case Op::sign:
        m = reals ? real(r(0) > 0 ? 1.0 : r(0) < 0 ? -1.0 : r(0)) : integer(i(0) > 0 ? 1 : i(0) < 0 ? -1 : 0);
        break;
      case Op::lt:
        m = compare([](auto a, auto b) { return a < b; });
        break;
      case Op::le:
        m = compare([](auto a, auto b) { return a <= b; });
        break;
      case Op::gt:
        m = compare([](auto a, auto b) { return a > b; });
        break;
      case Op::ge:
        m = compare([](auto a, auto b) { return a >= b; });
        break;
      case Op::eq:
        m = compare([](auto a, auto b) { return a == b; });
        break;
      case Op::ne:
        m = compare([](auto a, auto b) { return a != b; });
        break;
      case Op::logical_and:
        m = boolean(truth(0) && truth(1));
        break;
      case Op::logical_or:
        m = boolean(truth(0) || truth(1));
        break;
      case Op::logical_not:
        m = boolean(!truth(0));
        break;
      case Op::select: {
        const std::size_t chosen = truth(0) ? 1 : 2;
        m = s.type == Type::real ? real(r(chosen)) : Meaning{static_cast<std::int64_t>(i(chosen)), 0};
        break;
      }
      case Op::exp:
        m = real(std::exp(r(0)));
        break;
      case Op::exp2:
        m = real(std::exp2(r(0)));
        break;
      case Op::log:
        m = real(std::log(r(0)));
        break;
      case Op::tanh:
        m = real(std::tanh(r(0)));
        break;
      case Op::sigmoid:
        m = real(1 / (1 + std::exp(-r(0))));
        break;
      case Op::sqrt:
        m = real(std::sqrt(r(0)));
        break;
      case Op::rsqrt:
        m = real(1 / std::sqrt(r(0)));
        break;
      case Op::erf:
        m = real(std::erf(r(0)));
        break;
      case Op::pow:
        m = real(std::pow(r(0), r(1)));
        break;
      case Op::to_real:
        m = real(static_cast<double>(static_cast<std::int64_t>(i(0))));
        break;
      case Op::load: {
        std::array<std::int64_t, 4> index{};
        for (std::size_t a = 0; a < s.arg.size(); ++a) index[a] = static_cast<std::int64_t>(i(a));
        const double element = tensors()[s.tensor].at(index);
        m = s.type == Type::real ? real(element) : integer(static_cast<std::int64_t>(element));
        break;
      }
      case Op::upper_bound: {
        const Captured& c = tensors()[s.tensor];
        std::array<std::int64_t, 4> index{};
        for (std::size_t a = 0; a < s.arg.size(); ++a) index[a] = static_cast<std::int64_t>(i(a));
        const std::size_t axis = c.rank() - 1;
        const std::int64_t x = index[axis];
        std::vector<std::int64_t> line;
        for (index[axis] = 0; index[axis] < c.extent[axis]; ++index[axis])
          line.push_back(static_cast<std::int64_t>(c.at(index)));
        m = integer(searched(line, 0, line.size(), x));
        break;
      }
    }
    all.push_back(m);
  }
  return all;
}

}  // namespace tessera::tests
