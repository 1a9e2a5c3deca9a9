// What the graph says of the tensors that it reads: their names, and what may stand under one name.
// Must not know: the tensors themselves.
#include <algorithm>
#include <string>

#include "mods/graph.hpp"

namespace tessera::mods {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(Code::invalid_mod, text); }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool is_reserved(std::string_view word) {
  static constexpr std::string_view words[] = {"b",     "h",     "q",         "k",     "s",          "b_idx",
                                               "h_idx", "q_idx", "kv_idx",    "score", "true",       "false",
                                               "inf",   "nan",   "unbounded", "param", "upper_bound"};
  return find_call(word) != nullptr || std::find(std::begin(words), std::end(words), word) != std::end(words);
}

Capture make_capture(std::string_view name, Type type, int rank) {
  const auto quoted = [&] { return "'" + std::string(name.substr(0, 40)) + "'"; };
  const bool plain = !name.empty() && !is_digit(name[0]) &&
                     std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c); });
  if (!plain || name.size() > Capture::max_name)
    refuse("the name of a captured tensor has 1 to " + std::to_string(Capture::max_name) +
           " letters, digits and _, and begins with no digit: " + quoted() + " does not fit");
  if (is_reserved(name))
    refuse("a captured tensor cannot be called " + quoted() + ": the word has a meaning of its own");
  if (rank < 1 || rank > static_cast<int>(Capture::max_rank))
    refuse("the captured tensor " + quoted() + " has " + std::to_string(rank) + " axes, allowed are 1 to " +
           std::to_string(Capture::max_rank));
  if (type != Type::boolean && type != Type::integer && type != Type::real)
    refuse("the captured tensor " + quoted() + " holds neither booleans nor integers nor reals");
  Capture capture{{}, type, static_cast<std::uint8_t>(rank)};
  std::copy(name.begin(), name.end(), capture.name.begin());
  return capture;
}

std::string_view name(const Capture& capture) {
  const auto end = std::find(capture.name.begin(), capture.name.end(), '\0');
  return {capture.name.data(), static_cast<std::size_t>(end - capture.name.begin())};
}

std::string_view suffix(Type type) { return type == Type::boolean ? ":bool" : type == Type::integer ? ":int" : ""; }

std::string shown(const Capture& capture) {
  std::string text(name(capture));
  text += suffix(capture.type);
  for (int i = 0; i < capture.rank; ++i) text += "[.]";
  return text;
}

std::uint8_t Builder::capture(std::string_view tensor, Type type, int rank) {
  return capture(make_capture(tensor, type, rank));
}

std::uint8_t Builder::capture(const Capture& wanted) {
  for (std::size_t slot = 0; slot < captures_.size(); ++slot) {
    if (captures_[slot].name != wanted.name) continue;
    if (captures_[slot] == wanted) return static_cast<std::uint8_t>(slot);
    refuse("the captured tensor '" + std::string(name(wanted)) + "' is used both as " + shown(captures_[slot]) +
           " and as " + shown(wanted) + ": one name is one tensor, of one type and one number of axes");
  }
  if (captures_.size() >= max_captures)
    refuse("the expression reads more than " + std::to_string(max_captures) + " captured tensors, the most allowed");
  captures_.push_back(wanted);
  return static_cast<std::uint8_t>(captures_.size() - 1);
}

const Capture* Builder::find_capture(std::string_view tensor) const {
  for (const Capture& capture : captures_)
    if (name(capture) == tensor) return &capture;
  return nullptr;
}

std::uint16_t Builder::load(std::uint8_t slot, std::span<const std::uint16_t> index) {
  return read(Op::load, slot, index);
}
std::uint16_t Builder::upper_bound(std::uint8_t slot, std::span<const std::uint16_t> argument) {
  return read(Op::upper_bound, slot, argument);
}
std::uint16_t Builder::read(Op op, std::uint8_t slot, std::span<const std::uint16_t> index) {
  const Capture& capture = captures_[slot];
  if (op == Op::upper_bound) check_search(capture);
  if (index.size() != capture.rank)
    refuse("the captured tensor " + shown(capture) + " takes " + std::to_string(capture.rank) + " indices, not " +
           std::to_string(index.size()));
  Node node{op, capture.type, slot, capture.rank, {}, 0};
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (op == Op::load) check_index(capture, i, type(index[i]));
    else check_search(capture, i, type(index[i]));
    node.arg[i] = index[i];
  }
  return add(node);
}

void check_index(const Capture& capture, std::size_t axis, Type type) {
  if (type != Type::integer)
    refuse("index " + std::to_string(axis) + " of the captured tensor " + shown(capture) + " is " +
           std::string(name(type)) + ": an index is an integer");
}

void check_search(const Capture& capture) {
  if (capture.type != Type::integer)
    refuse("upper_bound searches " + shown(capture) + ", whose elements are " +
           (capture.type == Type::real ? "reals" : "booleans") + ": it takes a tensor of integers");
}

void check_search(const Capture& capture, std::size_t argument, Type type) {
  if (argument + 1 < capture.rank) return check_index(capture, argument, type);
  if (type != Type::integer)
    refuse("upper_bound looks for " + std::string(name(type)) + " in " + shown(capture) + ": it takes an integer");
}

}  // namespace tessera::mods
