// Expressions, masks and score changes in Python.
#include "mods.hpp"

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "arrays.hpp"
#include "tessera/trace.hpp"

namespace tessera::python {
namespace {

// ------------------------------------------------------------------------------------------------ one trace
// The arrays that the function that is being traced has read so far.
struct Trace {
  Bound bound;
  char letter;  // of the names of arrays that have none: m0, m1 .. in masks, s0 .. in score changes
  Trace* outer;
  explicit Trace(char kind) : letter(kind), outer(innermost) { innermost = this; }
  ~Trace() { innermost = outer; }
  Trace(const Trace&) = delete;
  static thread_local Trace* innermost;

  std::string name_of(const nb::object& array, const std::string& name) {
    int unnamed = 0;
    for (const auto& [known, object] : bound) {
      if (object.is(array) && (name.empty() || name == known)) return known;
      unnamed += known.size() > 1 && known[0] == letter && known[1] >= '0' && known[1] <= '9';
    }
    const std::string made = name.empty() ? letter + std::to_string(unnamed) : name;
    join(bound, {{made, array}});
    return made;
  }
};
thread_local Trace* Trace::innermost = nullptr;

// An array inside of a lambda: read at one integer an axis.
struct CapturedArray {
  nb::object array;
  std::string name;  // may be empty
};
Captured captured_of(const CapturedArray& c) {
  if (!Trace::innermost)
    throw Error(Code::invalid_mod,
                "a captured array is read inside of a mask or a score change that is being traced only");
  const Array array(c.array, c.name.empty() ? "a captured array" : c.name.c_str());
  return capture(Trace::innermost->name_of(c.array, c.name), array.view().dtype, array.view().rank);
}

// What may stand beside an expression. Nothing: Python tries the other operand.
std::optional<Expr> expr_of(nb::handle what) {
  if (nb::isinstance<Expr>(what)) return nb::cast<Expr>(what);
  if (nb::isinstance<Captured>(what)) return static_cast<Expr>(nb::cast<Captured>(what));
  PyObject* p = what.ptr();
  if (PyBool_Check(p)) return Expr(p == Py_True);
  if (PyLong_Check(p)) {
    const std::int64_t value = PyLong_AsLongLong(p);
    if (value == -1 && PyErr_Occurred()) nb::raise_python_error();
    return Expr(value);
  }
  if (PyFloat_Check(p)) return Expr(PyFloat_AsDouble(p));
  if (nb::isinstance<BoundMask>(what)) {  // in a trace, what the mask says of its coordinates
    const auto& mask = nb::cast<const BoundMask&>(what);
    if (Trace::innermost) join(Trace::innermost->bound, mask.bound);
    return Expr(mask.mask);
  }
  // Scalars of NumPy, and arrays of one element.
  if (PyIndex_Check(p)) {
    if (PyObject* index = PyNumber_Index(p)) return expr_of(nb::steal(index));
    PyErr_Clear();
  }
  if (nb::hasattr(what, "__float__")) {
    if (PyObject* number = PyNumber_Float(p)) return expr_of(nb::steal(number));
    PyErr_Clear();
  }
  return std::nullopt;
}
Expr needed(nb::handle what) {
  if (const auto x = expr_of(what)) return *x;
  const std::string text =
      nb::cast<std::string>(nb::repr(what.type())) +
      " beside an expression: a number is allowed; an array is read at an index, capture(array)[index]";
  throw nb::type_error(text.c_str());
}

std::string text_of(const auto& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

template <class Op>
nb::object apply(nb::handle a, nb::handle b, Op op) {
  const auto x = expr_of(a), y = expr_of(b);
  if (!x || !y) return nb::borrow(Py_NotImplemented);
  return nb::cast(op(*x, *y));
}

// The operators of expressions, and of captured arrays that have all their indices.
template <class Class>
void define_operators(Class& cls) {
  const auto binary = [&](const char* name, const char* reversed, auto op) {
    cls.def(
        name, [op](nb::handle a, nb::handle b) { return apply(a, b, op); }, nb::is_operator());
    if (reversed)
      cls.def(
          reversed, [op](nb::handle a, nb::handle b) { return apply(b, a, op); }, nb::is_operator());
  };
  using E = const Expr&;
  binary("__add__", "__radd__", [](E a, E b) { return a + b; });
  binary("__sub__", "__rsub__", [](E a, E b) { return a - b; });
  binary("__mul__", "__rmul__", [](E a, E b) { return a * b; });
  binary("__truediv__", "__rtruediv__", [](E a, E b) {
    try {
      return a / b;
    } catch (const Error&) {  // of two integers Python's division is a real
      return real(a) / b;
    }
  });
  binary("__floordiv__", "__rfloordiv__", [](E a, E b) { return floor_div(a, b); });
  binary("__mod__", "__rmod__", [](E a, E b) { return a % b; });
  binary("__pow__", "__rpow__", [](E a, E b) { return pow(a, b); });
  binary("__lt__", nullptr, [](E a, E b) { return a < b; });
  binary("__le__", nullptr, [](E a, E b) { return a <= b; });
  binary("__gt__", nullptr, [](E a, E b) { return a > b; });
  binary("__ge__", nullptr, [](E a, E b) { return a >= b; });
  binary("__eq__", nullptr, [](E a, E b) { return a == b; });
  binary("__ne__", nullptr, [](E a, E b) { return a != b; });
  binary("__and__", "__rand__", [](E a, E b) { return a & b; });
  binary("__or__", "__ror__", [](E a, E b) { return a | b; });
  cls.def("__neg__", [](nb::handle a) { return -needed(a); });
  cls.def("__pos__", [](nb::handle a) { return needed(a); });
  cls.def("__abs__", [](nb::handle a) { return abs(needed(a)); });
  cls.def("__invert__", [](nb::handle a) { return !needed(a); });
  cls.def("__repr__", [](nb::handle a) { return text_of(needed(a)); });
  cls.def("__hash__", [](nb::handle a) { return reinterpret_cast<std::intptr_t>(a.ptr()); });
  cls.def("__bool__", [](nb::handle) -> bool {
    throw nb::type_error(
        "an expression has no truth value, the function is called once for all pairs: write & | ~ in place of and, or, "
        "not and of chained comparisons, and where(condition, a, b) in place of if");
  });
  cls.attr("__array_ufunc__") = nb::none();  // NumPy's arrays leave operators to us: needed() says what to write
}

void define_expressions(nb::module_& m) {
  nb::class_<Expr> expr(
      m, "Expr",
      "A boolean, an integer or a real of a mask or a score change that is being traced. Numbers beside it "
      "become expressions; integers beside reals become reals.");
  define_operators(expr);
  nb::class_<Captured> captured(m, "Captured", "A captured array with some of its indices.");
  captured.def("__getitem__", [](const Captured& c, nb::handle index) {
    if (!nb::isinstance<nb::tuple>(index)) return c[needed(index)];
    Captured at = c;
    for (nb::handle one : nb::cast<nb::tuple>(index)) at = at[needed(one)];
    return at;
  });
  define_operators(captured);
  nb::class_<CapturedArray> whole(m, "CapturedArray", "An array to be read inside of a mask or a score change.");
  whole.def("__getitem__", [](const CapturedArray& c, nb::handle index) {
    Captured at = captured_of(c);
    if (!nb::isinstance<nb::tuple>(index)) return at[needed(index)];
    for (nb::handle one : nb::cast<nb::tuple>(index)) at = at[needed(one)];
    return at;
  });
  m.def(
      "capture",
      [](nb::object array, const std::string& name) {
        return CapturedArray{std::move(array), name};
      },
      nb::arg("array"), nb::arg("name") = "",
      "The array as something that a mask or score change reads at expressions: capture(table)[h, k - q + 512], one "
      "integer "
      "an axis, up to 4 axes, float32, bfloat16, float16, int32, int64, uint8 or bool. It is read where it is at the "
      "time of "
      "each call; an index outside of it is clamped.");
  m.def(
      "param",
      [](nb::handle value) {
        if (PyFloat_Check(value.ptr())) return param(PyFloat_AsDouble(value.ptr()));
        return param(nb::cast<std::int64_t>(value));
      },
      nb::arg("value"), "A run-time value: another one needs no new trace and no new kernel.");
  const auto unary = [&](const char* name, Expr (*op)(const Expr&), const char* about) {
    m.def(
        name, [op](nb::handle x) { return op(needed(x)); }, nb::arg("x"), about);
  };
  unary("exp", exp, "e^x"), unary("exp2", exp2, "2^x"), unary("log", log, "the natural logarithm");
  unary("tanh", tanh, "the hyperbolic tangent"), unary("sigmoid", sigmoid, "1 / (1 + e^-x)");
  unary("sqrt", sqrt, "the square root"), unary("rsqrt", rsqrt, "1 / sqrt(x)"), unary("erf", erf, "the error function");
  unary("sign", sign, "-1, 0 or 1"), unary("real", real, "an integer as a real");
  m.def(
      "where", [](nb::handle c, nb::handle a, nb::handle b) { return where(needed(c), needed(a), needed(b)); },
      nb::arg("condition"), nb::arg("a"), nb::arg("b"), "a where the condition holds, b elsewhere");
  m.def(
      "minimum", [](nb::handle a, nb::handle b) { return min(needed(a), needed(b)); }, nb::arg("a"), nb::arg("b"),
      "the smaller; of a NaN and a number: the number");
  m.def(
      "maximum", [](nb::handle a, nb::handle b) { return max(needed(a), needed(b)); }, nb::arg("a"), nb::arg("b"),
      "the larger; of a NaN and a number: the number");
}

// ------------------------------------------------------------------------------------------------ masks, score changes
// Without the arrays whose elements the function threw away.
Bound read_by(const Graph& graph, Bound bound) {
  std::erase_if(bound, [&](const auto& one) {
    const auto names_it = [&](const Capture& c) { return one.first == c.name.data(); };
    return std::none_of(graph.captures.begin(), graph.captures.end(), names_it);
  });
  return bound;
}

BoundMask traced_mask(nb::handle function) {
  Trace trace('m');
  Mask mask = mask_mod([&](Expr b, Expr h, Expr q, Expr k) { return needed(function(b, h, q, k)); });
  Bound bound = read_by(mask.graph(), std::move(trace.bound));
  return {std::move(mask), std::move(bound)};
}
BoundScore traced_score(nb::handle function) {
  Trace trace('s');
  ScoreMod score = score_mod([&](Expr s, Expr b, Expr h, Expr q, Expr k) { return needed(function(s, b, h, q, k)); });
  Bound bound = read_by(score.graph(), std::move(trace.bound));
  return {std::move(score), std::move(bound)};
}

// Of a ready-made mod: the name of a tensor, or an array, which is bound under the name that the parameter has.
struct Source {
  std::string name;
  Bound bound;
  int rank;
  Source(nb::handle what, const char* parameter, std::optional<int> given, int usual) {
    if (nb::isinstance<nb::str>(what)) {
      name = nb::cast<std::string>(what), rank = given.value_or(usual);
      return;
    }
    name = parameter, bound = {{name, nb::borrow(what)}};
    rank = given.value_or(Array(what, parameter).view().rank);
  }
};

constexpr const char* source_text =
    "Arrays are given as themselves, or by a name that bind= gives one at the call; rank: of a named one. ";

void define_ready_made(nb::module_& m) {
  const auto about = [](const char* text) { return std::string(text); };
  m.def(
      "full",
      [] {
        return BoundMask{full(), {}};
      },
      "Every pair.");
  m.def(
      "causal",
      [] {
        return BoundMask{causal(), {}};
      },
      "k <= q, both as logical positions.");
  m.def(
      "window",
      [](std::int64_t left, std::int64_t right) {
        return BoundMask{window(left, right), {}};
      },
      nb::arg("left"), nb::arg("right"),
      "q - left <= k <= q + right, inclusive, q itself not counted; `unbounded` is no limit.");
  m.def(
      "chunked",
      [](std::int64_t size) {
        return BoundMask{chunked(size), {}};
      },
      nb::arg("size"), "The same chunk of `size` tokens: q // size == k // size.");
  m.def(
      "sinks",
      [](std::int64_t count) {
        return BoundMask{sinks(count), {}};
      },
      nb::arg("count"), "The first keys: k < count.");
  m.def(
      "dilated",
      [](std::int64_t step) {
        return BoundMask{dilated(step), {}};
      },
      nb::arg("step"), "Every step-th distance: (q - k) % step == 0.");
  m.def(
      "neighborhood_2d",
      [](std::int64_t grid_rows, std::int64_t grid_columns, std::int64_t rows, std::int64_t columns) {
        return BoundMask{neighborhood_2d(grid_rows, grid_columns, rows, columns), {}};
      },
      nb::arg("grid_rows"), nb::arg("grid_columns"), nb::arg("rows"), nb::arg("columns"),
      "Tokens are the cells of a grid, row by row; a query sees the rows x columns cells around it.");
  const auto of_array = [&](const char* name, const char* parameter, Mask (*make)(std::string_view),
                            const std::string& text) {
    m.def(
        name,
        [make, parameter](nb::handle what) {
          const Source s(what, parameter, 1, 1);
          return BoundMask{make(s.name), s.bound};
        },
        nb::arg(parameter), (source_text + text).c_str());
  };
  of_array("prefix_lm", "length", prefix_lm, "int [b]: k <= q, or k < length[b].");
  of_array("key_lengths", "length", key_lengths, "int [b]: k < length[b].");
  const auto of_ranked = [&](const char* name, const char* parameter, Mask (*make)(std::string_view, int), int usual,
                             const std::string& text) {
    m.def(
        name,
        [make, parameter, usual](nb::handle what, std::optional<int> rank) {
          const Source s(what, parameter, rank, usual);
          return BoundMask{make(s.name, s.rank), s.bound};
        },
        nb::arg(parameter), nb::arg("rank") = nb::none(), (source_text + text).c_str());
  };
  of_ranked("documents", "ids", documents, 1, "int [token] or [b][token]: the same id at q and at k.");
  of_ranked("documents_from_offsets", "offsets", documents_from_offsets, 1,
            "int [document] or [b][document], ascending: the first token of each document, as prefix sums say it.");
  of_ranked("mask_tensor", "allowed", mask_tensor, 2,
            "bool [q][k], or [k], [h][q][k], [b][h][q][k]; an axis of 1 serves all.");
  m.def(
      "tree",
      [](nb::handle parents, int depth) {
        const Source s(parents, "parents", 1, 1);
        return BoundMask{tree(s.name, depth), s.bound};
      },
      nb::arg("parents"), nb::arg("depth"),
      about("int [token]: the token that each one follows, itself for none. A query sees itself and what it follows, "
            "up to "
            "`depth` (1 to 64) steps back.")
          .c_str());
  m.def(
      "block_sparse",
      [](nb::handle layout, std::int64_t q_block, std::int64_t k_block, std::optional<int> rank) {
        const Source s(layout, "layout", rank, 2);
        return BoundMask{block_sparse(s.name, q_block, k_block, s.rank), s.bound};
      },
      nb::arg("layout"), nb::arg("q_block"), nb::arg("k_block"), nb::arg("rank") = nb::none(),
      "bool [q // q_block][k // k_block], or with heads and batch before.");
  m.def(
      "softcap",
      [](double cap) {
        return BoundScore{softcap(cap), {}};
      },
      nb::arg("cap"), "cap * tanh(s / cap)");
  m.def(
      "alibi",
      [](nb::handle slope) {
        const Source s(slope, "slope", 1, 1);
        return BoundScore{alibi(s.name), s.bound};
      },
      nb::arg("slope"), "real [h]: s + slope[h] * (k - q)");
  m.def(
      "relative_bias",
      [](nb::handle table, std::int64_t buckets, std::int64_t max_distance, bool both_directions) {
        const Source s(table, "table", 2, 2);
        return BoundScore{relative_bias(s.name, buckets, max_distance, both_directions), s.bound};
      },
      nb::arg("table"), nb::arg("buckets") = 32, nb::arg("max_distance") = 128, nb::arg("both_directions") = true,
      "T5: s + table[h][bucket of k - q]");
  m.def(
      "bias_tensor",
      [](nb::handle bias, std::optional<int> rank) {
        const Source s(bias, "bias", rank, 2);
        return BoundScore{bias_tensor(s.name, s.rank), s.bound};
      },
      nb::arg("bias"), nb::arg("rank") = nb::none(),
      "s + bias[q][k], or [k], [h][q][k], [b][h][q][k]; an axis of 1 serves all.");
  m.attr("unbounded") = unbounded;
}

template <class T>
nb::dict bound_of(const T& mod) {
  nb::dict arrays;
  for (const auto& [name, array] : mod.bound) arrays[name.c_str()] = array;
  return arrays;
}

template <class T>
std::vector<std::string> names_of(const T& mod) {
  std::vector<std::string> names;
  for (const auto& [name, array] : mod.bound) names.push_back(name);
  return names;
}

void define_classes(nb::module_& m) {
  nb::class_<BoundMask> mask(
      m, "Mask",
      "Which (query, key) pairs take part: from a function of (b, h, q, k), called once, or its text. "
      "Joins with & | ~.");
  mask.def(
      "__init__", [](BoundMask* self, nb::handle what) { new (self) BoundMask(mask_of(what)); },
      nb::arg("of") = nb::none());
  mask.def("__repr__", [](const BoundMask& self) { return text_of(self.mask); });
  mask.def("__and__", [](const BoundMask& a, nb::handle b) {
    BoundMask made = mask_of(b);
    Bound all = a.bound;
    join(all, made.bound);
    return BoundMask{a.mask & made.mask, all};
  });
  mask.def("__or__", [](const BoundMask& a, nb::handle b) {
    BoundMask made = mask_of(b);
    Bound all = a.bound;
    join(all, made.bound);
    return BoundMask{a.mask | made.mask, all};
  });
  mask.def("__invert__", [](const BoundMask& a) { return BoundMask{!a.mask, a.bound}; });
  mask.def(
      "__eq__", [](const BoundMask& a, const BoundMask& b) { return a.mask == b.mask; }, nb::is_operator());
  mask.def("__hash__", [](const BoundMask& a) { return std::hash<std::string>()(text_of(a.mask)); });
  mask.def_prop_ro(
      "captures", [](const BoundMask& a) { return nb::tuple(nb::cast(names_of(a))); }, "names of bound arrays");
  mask.def_prop_ro(
      "bound", [](const BoundMask& a) { return bound_of(a); }, "the bound arrays by their names");
  nb::class_<BoundScore> score(
      m, "ScoreMod",
      "What a score becomes: from a function of (s, b, h, q, k), called once, or its text. a >> b is "
      "first a, then b.");
  score.def(
      "__init__", [](BoundScore* self, nb::handle what) { new (self) BoundScore(score_of(what)); },
      nb::arg("of") = nb::none());
  score.def("__repr__", [](const BoundScore& self) { return text_of(self.score); });
  score.def("__rshift__", [](const BoundScore& a, nb::handle b) {
    BoundScore made = score_of(b);
    Bound all = a.bound;
    join(all, made.bound);
    return BoundScore{a.score >> made.score, all};
  });
  score.def(
      "__eq__", [](const BoundScore& a, const BoundScore& b) { return a.score == b.score; }, nb::is_operator());
  score.def("__hash__", [](const BoundScore& a) { return std::hash<std::string>()(text_of(a.score)); });
  score.def_prop_ro(
      "captures", [](const BoundScore& a) { return nb::tuple(nb::cast(names_of(a))); }, "names of bound arrays");
  score.def_prop_ro(
      "bound", [](const BoundScore& a) { return bound_of(a); }, "the bound arrays by their names");
}

[[noreturn]] void refuse(nb::handle what, const char* name, const char* allowed) {
  const std::string text =
      std::string(name) + " is " + nb::cast<std::string>(nb::repr(what.type())) + ": " + allowed + " is allowed";
  throw nb::type_error(text.c_str());
}

}  // namespace

void join(Bound& bound, const Bound& more) {
  for (const auto& [name, array] : more) {
    bool known = false;
    for (const auto& [other, object] : bound)
      if (other == name) {
        known = true;
        if (!object.is(array))
          throw Error(Code::invalid_option, "'" + name +
                                                "' names two different arrays: give one of them another name, "
                                                "capture(array, name) or a name and bind=");
      }
    if (!known) bound.emplace_back(name, array);
  }
}

BoundMask mask_of(nb::handle what) {
  if (what.is_none()) return {};
  if (nb::isinstance<BoundMask>(what)) return nb::cast<const BoundMask&>(what);
  if (nb::isinstance<nb::str>(what)) return {parse_mask(nb::cast<std::string>(what)), {}};
  if (nb::isinstance<nb::callable>(what)) return traced_mask(what);
  refuse(what, "mask", "a Mask, its text or a function of (b, h, q, k)");
}
BoundScore score_of(nb::handle what) {
  if (what.is_none()) return {};
  if (nb::isinstance<BoundScore>(what)) return nb::cast<const BoundScore&>(what);
  if (nb::isinstance<nb::str>(what)) return {parse_score(nb::cast<std::string>(what)), {}};
  if (nb::isinstance<nb::callable>(what)) return traced_score(what);
  refuse(what, "score", "a ScoreMod, its text or a function of (s, b, h, q, k)");
}

void define_mods(nb::module_& module) {
  define_classes(module);
  define_expressions(module);
  define_ready_made(module);
}

}  // namespace tessera::python
