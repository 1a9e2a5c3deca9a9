#include "problem/bindings.hpp"

#include <string>

#include "problem/fail.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

Bindings::Bindings(std::initializer_list<Binding> list) {
  for (const Binding& binding : list) add(binding);
}

void Bindings::add(const Binding& binding) {
  if (count_ == most)
    problem::fail(Code::invalid_option, "bind: '", binding.name, "' is one more than the ", most,
                  " tensors that a call may bind");
  for (const Binding& other : *this)
    if (other.name == binding.name)
      problem::fail(Code::invalid_option, "bind: '", binding.name, "' is bound twice, to ", other.tensor, " and to ",
                    binding.tensor);
  items_[count_++] = binding;
}

}  // namespace TESSERA_API_NAMESPACE

namespace problem {
namespace {

std::string_view name_of(const Capture& capture) { return capture.name.data(); }

bool holds(DType dtype, Type type) {
  switch (dtype) {
    case DType::f32:
    case DType::bf16:
    case DType::f16:
      return type == Type::real;
    case DType::i32:
    case DType::i64:
    case DType::u8:
      return type == Type::integer;
    case DType::b8:
      return type == Type::boolean;
    case DType::none:
      break;
  }
  return false;
}
const char* kinds(Type type) {
  return type == Type::real      ? "reals: f32, bf16 or f16"
         : type == Type::integer ? "integers: i32, i64 or u8"
                                 : "booleans: b8";
}

// The text of the expression, with a mark under where it reads the tensor first.
std::string pointing_at(const Graph& graph, const Capture& capture) {
  const auto slot = static_cast<std::size_t>(&capture - graph.captures.begin());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (mods::reads_capture(graph.nodes[i].op) && graph.nodes[i].slot == slot) return mods::pointing(graph, i);
  return {};
}

std::string bound_names(const Bindings& bind) {
  std::string text;
  for (const Binding& binding : bind) text += (text.empty() ? "" : ", ") + std::string(binding.name);
  return text.empty() ? "nothing is bound" : "bound are " + text;
}

}  // namespace

const Binding* find_binding(const Bindings& bind, const Capture& capture) {
  for (const Binding& binding : bind)
    if (binding.name == name_of(capture)) return &binding;
  return nullptr;
}

void check_bindings(const char* what, const Graph& graph, const Bindings& bind, const Device& device) {
  if (graph.captures.size() > Bindings::most)
    fail(Code::invalid_mod, "the ", what, " reads ", graph.captures.size(), " tensors, at most ", Bindings::most,
         " are allowed: ", graph);
  for (const Capture& capture : graph.captures) {
    const Binding* binding = find_binding(bind, capture);
    if (!binding)
      fail(Code::invalid_mod, "the ", what, " reads '", name_of(capture), "', ", bound_names(bind),
           ": add it to Inputs::bind", pointing_at(graph, capture));
    const Tensor& t = binding->tensor;
    if (!holds(t.dtype, capture.type))
      fail(Code::invalid_dtype, "'", binding->name, "' is bound to ", t, ", the ", what, " reads ", kinds(capture.type),
           pointing_at(graph, capture));
    if (t.rank != capture.rank)
      fail(Code::invalid_shape, "'", binding->name, "' is bound to ", t, ", of rank ", t.rank, "; the ", what,
           " reads a tensor of ", int{capture.rank}, capture.rank == 1 ? " axis" : " axes",
           pointing_at(graph, capture));
    if (!(t.device == device) && !(t.device == Device{} && device.type == DeviceType::cuda))
      fail(Code::invalid_device, "'", binding->name, "' is on ", t.device, ", q is on ", device,
           device.type == DeviceType::cuda ? ": it lies on the cpu or where q does"
                                           : ": all tensors of a call are on one device",
           pointing_at(graph, capture));
    for (int axis = 0; axis < t.rank; ++axis)
      if (t.shape[axis] < 1)
        fail(Code::invalid_shape, "'", binding->name, "' is ", t, ": a tensor that is read has at least one element",
             pointing_at(graph, capture));
    if (!t.data) fail(Code::null_pointer, "'", binding->name, "' is ", t, " without data", pointing_at(graph, capture));
  }
}

bool on_device(const Graph& graph, const Bindings& bind) {
  for (const Capture& capture : graph.captures)
    if (find_binding(bind, capture)->tensor.device.type != DeviceType::cpu) return true;
  return false;
}

void bind_tables(const Graph& graph, const Bindings& bind, mods::Table* tables) {
  for (std::size_t i = 0; i < graph.captures.size(); ++i) {
    const Tensor& t = find_binding(bind, graph.captures[i])->tensor;
    tables[i].data = t.data, tables[i].dtype = t.dtype;
    for (int axis = 0; axis < t.rank; ++axis)
      tables[i].extent[static_cast<std::size_t>(axis)] = t.shape[axis],
      tables[i].stride[static_cast<std::size_t>(axis)] = t.stride[axis];
  }
}

detail::Frozen<DType, 8> table_dtypes(const Graph& graph, const Bindings& bind) {
  std::array<DType, Bindings::most> dtypes{};
  for (std::size_t i = 0; i < graph.captures.size(); ++i)
    dtypes[i] = find_binding(bind, graph.captures[i])->tensor.dtype;
  return detail::Frozen<DType, 8>(std::span<const DType>(dtypes.data(), graph.captures.size()));
}

}  // namespace problem
}  // namespace tessera
