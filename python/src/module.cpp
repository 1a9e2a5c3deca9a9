// The module tessera._core: the library's public headers, thinly.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "mods.hpp"
#include "tessera/attention.hpp"

namespace nb = nanobind;

namespace {

// tessera.Error, a RuntimeError with the library's text and the name of its code.
nb::object* error_type = nullptr;

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const tessera::Error& error) {
    try {
      nb::object made = (*error_type)(error.what());
      made.attr("code") = std::string(tessera::name(error.code()));
      PyErr_SetObject(error_type->ptr(), made.ptr());
    } catch (nb::python_error& failed) {
      failed.restore();
    }
  }
}

}  // namespace

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // masks that live as long as the interpreter are no leak, and the library never prints
  m.doc() = "Exact, IO-aware attention";
  m.attr("__version__") = std::string(tessera::version());
  error_type = new nb::object(nb::steal(PyErr_NewExceptionWithDoc(
      "tessera.Error", "Every failure of the library. code: the name of what is wrong, e.g. 'invalid_shape'.",
      PyExc_RuntimeError, nullptr)));
  m.attr("Error") = *error_type;
  nb::register_exception_translator(translate);
  tessera::python::define_mods(m);
  tessera::python::define_calls(m);
}
