// The table of operations, and what types each of them takes and gives.
#include <iterator>
#include <string>

#include "mods/graph.hpp"

namespace tessera::mods {
namespace {

constexpr OpInfo operations[] = {
    {Op::constant, "constant", 0, 0},
    {Op::param, "param", 0, 0},
    {Op::batch, "b", 0, 0},
    {Op::head, "h", 0, 0},
    {Op::query, "q", 0, 0},
    {Op::key, "k", 0, 0},
    {Op::score, "s", 0, 0},
    {Op::add, "+", 2, 4},
    {Op::sub, "-", 2, 4},
    {Op::mul, "*", 2, 5},
    {Op::floor_div, "//", 2, 5},
    {Op::mod, "%", 2, 5},
    {Op::div, "/", 2, 5},
    {Op::min, "min", 2, 0},
    {Op::max, "max", 2, 0},
    {Op::neg, "-", 1, 6},
    {Op::abs, "abs", 1, 0},
    {Op::sign, "sign", 1, 0},
    {Op::lt, "<", 2, comparison_precedence},
    {Op::le, "<=", 2, comparison_precedence},
    {Op::gt, ">", 2, comparison_precedence},
    {Op::ge, ">=", 2, comparison_precedence},
    {Op::eq, "==", 2, comparison_precedence},
    {Op::ne, "!=", 2, comparison_precedence},
    {Op::logical_and, "&", 2, 2},
    {Op::logical_or, "|", 2, 1},
    {Op::logical_not, "!", 1, 6},
    {Op::select, "where", 3, 0},
    {Op::exp, "exp", 1, 0},
    {Op::exp2, "exp2", 1, 0},
    {Op::log, "log", 1, 0},
    {Op::tanh, "tanh", 1, 0},
    {Op::sigmoid, "sigmoid", 1, 0},
    {Op::sqrt, "sqrt", 1, 0},
    {Op::rsqrt, "rsqrt", 1, 0},
    {Op::erf, "erf", 1, 0},
    {Op::pow, "pow", 2, 0},
    {Op::to_real, "real", 1, 0},
    {Op::load, "load", 0, 0},                // as many arguments as the captured tensor has axes
    {Op::upper_bound, "upper_bound", 0, 0},  // the same
};
static_assert(std::size(operations) == op_count);
constexpr bool in_order() {
  for (std::size_t i = 0; i < op_count; ++i)
    if (static_cast<std::size_t>(operations[i].op) != i) return false;
  return true;
}
static_assert(in_order(), "the table stands in the order of Op");

[[noreturn]] void refuse(Op op, const std::string& text) {
  throw Error(Code::invalid_mod, "'" + std::string(info(op).name) + "' " + text);
}
std::string named(Type type) { return std::string(name(type)); }

// Of arguments [first, arity): all of type `wanted`.
void only(Op op, const Type* argument, Type wanted) {
  for (int i = 0; i < info(op).arity; ++i)
    if (argument[i] != wanted) refuse(op, "takes " + named(wanted) + ", not " + named(argument[i]));
}
// Numbers of one type, which is the answer.
Type one_type_of_numbers(Op op, const Type* argument) {
  for (int i = 0; i < info(op).arity; ++i)
    if (argument[i] == Type::boolean) refuse(op, "takes numbers, not a boolean: where(condition, 1, 0) makes one");
  if (info(op).arity == 2 && argument[0] != argument[1])
    refuse(op, "takes two numbers of one type, not " + named(argument[0]) + " and " + named(argument[1]));
  return argument[0];
}

}  // namespace

const OpInfo& info(Op op) { return operations[static_cast<std::size_t>(op)]; }

const OpInfo* find_call(std::string_view text) {
  for (const OpInfo& entry : operations)
    if (entry.arity > 0 && entry.precedence == 0 && entry.name == text) return &entry;
  return nullptr;
}

std::string_view name(Type type) {
  return type == Type::boolean ? "a boolean" : type == Type::integer ? "an integer" : "a real";
}

Type result_type(Op op, const Type* argument) {
  switch (op) {
    case Op::constant:
    case Op::param:
    case Op::load:
    case Op::upper_bound:
      break;  // their nodes say it themselves
    case Op::batch:
    case Op::head:
    case Op::query:
    case Op::key:
      return Type::integer;
    case Op::score:
      return Type::real;
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::min:
    case Op::max:
    case Op::neg:
    case Op::abs:
    case Op::sign:
      return one_type_of_numbers(op, argument);
    case Op::floor_div:
    case Op::mod:
      only(op, argument, Type::integer);
      return Type::integer;
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
    case Op::eq:
    case Op::ne:
      one_type_of_numbers(op, argument);
      return Type::boolean;
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
      only(op, argument, Type::boolean);
      return Type::boolean;
    case Op::select:
      if (argument[0] != Type::boolean) refuse(op, "chooses by a boolean, not by " + named(argument[0]));
      if (argument[1] != argument[2])
        refuse(op, "chooses between two values of one type, not " + named(argument[1]) + " and " + named(argument[2]));
      return argument[1];
    case Op::div:
      if (argument[0] == Type::integer && argument[1] == Type::integer)
        refuse(
            op,
            "of two integers: use // (in C++ floor_div) for the floor, or make one of them a real, as in real(x) / y");
      [[fallthrough]];
    case Op::exp:
    case Op::exp2:
    case Op::log:
    case Op::tanh:
    case Op::sigmoid:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::erf:
    case Op::pow:
      only(op, argument, Type::real);
      return Type::real;
    case Op::to_real:
      only(op, argument, Type::integer);
      return Type::real;
  }
  throw Error(Code::internal, "the type of a constant or a parameter does not follow from its operation");
}

}  // namespace tessera::mods
