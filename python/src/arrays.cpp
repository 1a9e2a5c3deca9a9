#include "arrays.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstring>
#include <string>

#include "dlpack.hpp"

namespace tessera::python {
namespace {

// ------------------------------------------------------------------------------------------------ what a type offers
// Looked up once for each Python type. Types are kept alive: they are few.
struct Offers {
  PyTypeObject* type = nullptr;
  const dlpack::Exchange* exchange = nullptr;  // null: none that can be used
  bool torch = false, numpy = false, cupy = false;
};

const dlpack::Exchange* exchange_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_CheckExact(capsule.ptr())) return nullptr;
  const auto* table = static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (!table) PyErr_Clear();
  while (table && table->version.major != 1) table = table->older;
  return table && table->array_of ? table : nullptr;
}

const Offers& offers_of(nb::handle what) {
  static std::vector<Offers>* const known = new std::vector<Offers>();  // outlives whatever the interpreter tears down
  PyTypeObject* type = Py_TYPE(what.ptr());
  for (const Offers& one : *known)
    if (one.type == type) return one;
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  Offers made{type, exchange_of(nb::handle(reinterpret_cast<PyObject*>(type)))};
  const std::string module = nb::cast<std::string>(nb::str(nb::getattr(what.type(), "__module__", nb::str(""))));
  made.torch = module == "torch" || module.starts_with("torch.");
  made.cupy = module == "cupy" || module.starts_with("cupy.");
  made.numpy = module == "numpy" || module.starts_with("numpy.");
  known->push_back(made);
  return known->back();
}

// What: a tensor of torch whose elements are the negative of what its memory holds.
bool negated(nb::handle what) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const nb::object answer = nb::steal(PyObject_CallMethodObjArgs(what.ptr(), name, nullptr));
  if (!answer.is_valid()) nb::raise_python_error();
  return answer.ptr() == Py_True;
}

// ------------------------------------------------------------------------------------------------ element types
DType dtype_of(dlpack::Type type, const char* name) {
  if (type.lanes == 1) switch (type.code) {
      case dlpack::real:
        if (type.bits == 32) return f32;
        if (type.bits == 16) return f16;
        break;
      case dlpack::bfloat:
        if (type.bits == 16) return bf16;
        break;
      case dlpack::integer:
        if (type.bits == 32) return i32;
        if (type.bits == 64) return i64;
        break;
      case dlpack::unsigned_integer:
        if (type.bits == 8) return u8;
        break;
      case dlpack::boolean:
        if (type.bits == 8) return b8;
        break;
      default:
        break;
    }
  static constexpr const char* kinds[] = {"int", "uint", "float", "", "bfloat", "complex", "bool"};
  const std::string kind = type.code < std::size(kinds) ? kinds[type.code] : "type code " + std::to_string(type.code);
  throw Error(Code::invalid_dtype, std::string(name) + " is " + kind + std::to_string(type.bits) +
                                       ": float32, bfloat16, float16, int32, int64, uint8 and bool are allowed");
}

dlpack::Type type_of(DType dtype) {
  switch (dtype) {
    case f32:
      return {dlpack::real, 32, 1};
    case f16:
      return {dlpack::real, 16, 1};
    case bf16:
      return {dlpack::bfloat, 16, 1};
    case i32:
      return {dlpack::integer, 32, 1};
    case i64:
      return {dlpack::integer, 64, 1};
    case u8:
      return {dlpack::unsigned_integer, 8, 1};
    default:
      return {dlpack::boolean, 8, 1};
  }
}

tessera::Device device_of(dlpack::Device device, const char* name) {
  if (device.kind == dlpack::cpu || device.kind == dlpack::cuda_host) return {};
  if (device.kind == dlpack::cuda || device.kind == dlpack::cuda_managed) return {DeviceType::cuda, device.index};
  throw Error(Code::invalid_device, std::string(name) + " is on a device of DLPack kind " +
                                        std::to_string(device.kind) + ": the CPU and CUDA devices are known");
}

Tensor view_of(const dlpack::Array& array, bool read_only, const char* name) {
  if (array.rank > max_rank)
    throw Error(Code::invalid_shape, std::string(name) + " has rank " + std::to_string(array.rank) + ": at most " +
                                         std::to_string(max_rank) + " is allowed");
  Tensor t;
  t.data = static_cast<char*>(array.data) + array.byte_offset;
  t.dtype = dtype_of(array.type, name), t.device = device_of(array.device, name), t.read_only = read_only;
  t.rank = array.rank;
  std::int64_t dense = 1;
  for (int axis = array.rank - 1; axis >= 0; --axis) {
    const auto at = static_cast<std::size_t>(axis);
    t.shape[at] = array.shape[axis];
    t.stride[at] = array.stride ? array.stride[axis] : dense;
    dense *= array.shape[axis];
  }
  return t;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ in
void* stream_of(nb::handle like, const Device& device) {
  if (device.type != DeviceType::cuda) return nullptr;
  const Offers& offers = offers_of(like);
  if (offers.exchange && offers.exchange->stream_of) {
    void* stream = nullptr;
    if (offers.exchange->stream_of(dlpack::cuda, device.index, &stream) != 0) nb::raise_python_error();
    return stream;
  }
  const auto pointer = [](const nb::object& number) {
    return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(number));
  };
  if (offers.torch)
    return pointer(nb::module_::import_("torch").attr("cuda").attr("current_stream")(device.index).attr("cuda_stream"));
  if (offers.cupy) return pointer(nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")().attr("ptr"));
  return nullptr;
}

namespace {

// A DLPack capsule of an array on a CUDA device, made ready on `stream` by the framework that it comes from. None for
// arrays elsewhere, and for those of torch and CuPy, whose own current stream the call runs on.
nb::object ready_on(nb::handle what, const Offers& offers, void* stream) {
  if (offers.torch || offers.cupy || offers.numpy || !nb::hasattr(what, "__dlpack_device__")) return nb::none();
  const nb::tuple device = nb::cast<nb::tuple>(what.attr("__dlpack_device__")());
  const int kind = nb::cast<int>(nb::int_(device[0]));
  if (kind != dlpack::cuda && kind != dlpack::cuda_managed) return nb::none();
  constexpr std::uintptr_t legacy_default = 1;  // what DLPack calls the null stream
  return what.attr("__dlpack__")(nb::arg("stream") =
                                     stream ? reinterpret_cast<std::uintptr_t>(stream) : legacy_default);
}

}  // namespace

Array::Array(nb::handle what, const char* name, void* stream, bool writable) {
  if (what.is_none()) return;
  const Offers& offers = offers_of(what);
  if (offers.torch && negated(what))
    throw Error(Code::unsupported, std::string(name) +
                                       " is a view of torch that negates what is in memory: "
                                       "resolve_neg() makes a tensor of it");
  if (const dlpack::Exchange* exchange = offers.exchange) {
    dlpack::Array array;
    if (exchange->array_of(what.ptr(), &array) != 0) nb::raise_python_error();
    view_ = view_of(array, false, name);
    owner_ = nb::borrow(what);
    return;
  }
  nb::ndarray<nb::ro> array;
  const nb::object capsule = ready_on(what, offers, stream);
  if (!nb::try_cast(capsule.is_none() ? what : nb::handle(capsule), array)) {
    PyErr_Clear();
    const std::string text = std::string(name) + " is " + nb::cast<std::string>(nb::repr(what.type())) +
                             ": an array is needed (torch, NumPy, JAX, or anything with __dlpack__)";
    throw nb::type_error(text.c_str());
  }
  std::array<std::int64_t, max_rank> shape{}, stride{};
  const auto rank = static_cast<int>(array.ndim());
  for (int axis = 0; axis < std::min(rank, max_rank); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    shape[at] = static_cast<std::int64_t>(array.shape(at)), stride[at] = array.stride(at);
  }
  const auto type = array.dtype();
  view_ = view_of({const_cast<void*>(array.data()),
                   {array.device_type(), array.device_id()},
                   rank,
                   {type.code, type.bits, type.lanes},
                   shape.data(),
                   stride.data(),
                   0},
                  false, name);
  if (writable && capsule.is_none()) {  // asked for separately: what only may be read is an input like any other
    nb::ndarray<> writable_array;
    if (!nb::try_cast(what, writable_array)) PyErr_Clear(), view_.read_only = true;
  }
  if (capsule.is_none()) {
    owner_ = nb::cast(array);
  } else {
    using Kept = nb::ndarray<nb::ro>;
    owner_ = nb::capsule(new Kept(array), [](void* kept) noexcept { delete static_cast<Kept*>(kept); });
  }
}

bool records_gradients(nb::handle what) {
  if (what.is_none() || !offers_of(what).torch) return false;
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const nb::object answer = nb::steal(PyObject_GetAttr(what.ptr(), name));
  if (!answer.is_valid()) nb::raise_python_error();
  return answer.ptr() == Py_True;
}

// ------------------------------------------------------------------------------------------------ out
namespace {

// Another array over the memory of `inner`, with axes 1 and 2 exchanged.
struct Exchanged {
  dlpack::Managed managed;
  dlpack::Managed* inner;
  std::array<std::int64_t, max_rank> extent, stride;

  static dlpack::Managed* of(dlpack::Managed* inner, std::span<const std::int64_t> extent,
                             std::span<const std::int64_t> stride) {
    auto* made = new Exchanged{*inner, inner, {}, {}};
    std::copy(extent.begin(), extent.end(), made->extent.begin()),
        std::copy(stride.begin(), stride.end(), made->stride.begin());
    std::swap(made->extent[1], made->extent[2]), std::swap(made->stride[1], made->stride[2]);
    made->managed.context = made, made->managed.free = [](dlpack::Managed* self) {
      auto* all = static_cast<Exchanged*>(self->context);
      if (all->inner->free) all->inner->free(all->inner);
      delete all;
    };
    made->managed.array.shape = made->extent.data(), made->managed.array.stride = made->stride.data();
    return &made->managed;
  }
};

}  // namespace

Tensor exchanged(Tensor view) {
  std::swap(view.shape[1], view.shape[2]), std::swap(view.stride[1], view.stride[2]);
  return view;
}

// By the framework's own empty().
void Fresh::made_by(nb::handle like, bool torch, DType dtype, std::span<const std::int64_t> extent, bool exchange) {
  const nb::module_ framework = nb::module_::import_(torch ? "torch" : "cupy");
  const char* const name = dtype == f32 ? "float32" : dtype == bf16 ? "bfloat16" : "float16";
  nb::list sizes;
  for (const std::int64_t size : extent) sizes.append(size);
  object_ = torch ? framework.attr("empty")(nb::tuple(sizes), nb::arg("dtype") = framework.attr(name),
                                            nb::arg("device") = like.attr("device"))
                  : framework.attr("empty")(nb::tuple(sizes), nb::arg("dtype") = name);
  view_ = Array(object_, "the output").view();
  if (exchange) object_ = object_.attr("swapaxes")(1, 2);
}

Fresh::Fresh(nb::handle like, const Device& device, DType dtype, std::span<const std::int64_t> shape, Layout layout) {
  const Offers& offers = offers_of(like);
  const bool cuda = device.type == DeviceType::cuda;
  if (cuda && !offers.torch && !offers.cupy)
    throw Error(Code::unsupported,
                "q is on a CUDA device, in an array of " + nb::cast<std::string>(nb::repr(like.type())) +
                    ": there, outputs are made for torch and CuPy; torch.from_dlpack(q) is a view of "
                    "it for torch, or give out= (and lse=)");
  std::array<std::int64_t, max_rank> extent{}, stride{};
  std::int64_t elements = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) extent[axis] = shape[axis];
  const bool strided = layout == Layout::heads_first_of_tokens_first && (offers.exchange || offers.numpy || cuda);
  const bool swapped = layout != Layout::tokens_first && !strided;
  if (swapped) std::swap(extent[1], extent[2]);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    stride[axis] = elements;
    elements *= extent[axis];
  }
  if (cuda && !offers.exchange) {
    made_by(like, offers.torch, dtype, {extent.data(), shape.size()}, strided);
    if (swapped) view_ = exchanged(view_);
    return;
  }
  const dlpack::Device place = cuda ? dlpack::Device{dlpack::cuda, device.index} : dlpack::Device{dlpack::cpu, 0};
  dlpack::Array array{nullptr,       place, static_cast<std::int32_t>(shape.size()), type_of(dtype), extent.data(),
                      stride.data(), 0};
  if (offers.exchange) {
    dlpack::Managed* managed = nullptr;
    std::string text;
    const auto error = [](void* context, const char*, const char* what) { *static_cast<std::string*>(context) = what; };
    if (offers.exchange->allocate(&array, &managed, &text, error) != 0)
      throw Error(Code::out_of_memory, "the framework of q could not allocate the output: " + text);
    view_ = view_of(managed->array, false, "the output");
    if (swapped) view_ = exchanged(view_);
    if (strided) managed = Exchanged::of(managed, extent, stride);
    void* object = nullptr;
    if (offers.exchange->object_of(managed, &object) != 0) nb::raise_python_error();
    object_ = nb::steal(static_cast<PyObject*>(object));
    return;
  }
  constexpr std::size_t alignment = 64;
  const auto bytes = static_cast<std::size_t>(elements * size_bytes(dtype));
  void* memory = ::operator new (bytes + 1, std::align_val_t{alignment}, std::nothrow);
  if (!memory) throw Error(Code::out_of_memory, "there are no " + std::to_string(bytes) + " bytes for the output");
  const nb::capsule owner(memory, [](void* p) noexcept { ::operator delete (p, std::align_val_t{alignment}); });
  array.data = memory;
  view_ = view_of(array, false, "the output");
  if (swapped) view_ = exchanged(view_);
  if (strided) std::swap(extent[1], extent[2]), std::swap(stride[1], stride[2]);
  std::array<std::size_t, max_rank> sizes{};
  for (std::size_t axis = 0; axis < shape.size(); ++axis) sizes[axis] = static_cast<std::size_t>(extent[axis]);
  const dlpack::Type type = type_of(dtype);
  const nb::dlpack::dtype element{type.code, type.bits, type.lanes};
  if (offers.numpy) {
    object_ = nb::cast(nb::ndarray<nb::numpy>(memory, shape.size(), sizes.data(), owner, stride.data(), element));
    return;
  }
  object_ = nb::cast(nb::ndarray<nb::array_api>(memory, shape.size(), sizes.data(), owner, stride.data(), element));
  const nb::object space = nb::getattr(like, "__array_namespace__", nb::none());
  convert_ =
      space.is_none() ? nb::object(nb::module_::import_("numpy").attr("from_dlpack")) : space().attr("from_dlpack");
}

nb::object Fresh::finish() { return convert_.is_valid() ? convert_(object_) : object_; }

DType dtype_of(nb::handle what, const char* name) {
  std::string text = nb::cast<std::string>(nb::str(what));  // "torch.float32", "float32", "f32"
  if (const auto dot = text.rfind('.'); dot != std::string::npos) text = text.substr(dot + 1);
  if (text.starts_with("<class")) text = nb::cast<std::string>(what.attr("__name__"));
  static constexpr struct {
    const char* name;
    DType dtype;
  } names[] = {{"float32", f32}, {"bfloat16", bf16}, {"float16", f16}, {"float", f32}, {"half", f16}};
  for (const auto& one : names)
    if (text == one.name) return one.dtype;
  try {
    return parse_dtype(text);
  } catch (const Error&) {
    throw Error(Code::invalid_dtype, std::string(name) + " is " + text + ": float32, bfloat16 and float16 are allowed");
  }
}

}  // namespace tessera::python
