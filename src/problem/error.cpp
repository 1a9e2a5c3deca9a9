// The codes' names: what statuses, JSON and tests print.
#include "tessera/error.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

std::string_view name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::null_pointer:
      return "null_pointer";
    case Code::invalid_shape:
      return "invalid_shape";
    case Code::invalid_dtype:
      return "invalid_dtype";
    case Code::invalid_stride:
      return "invalid_stride";
    case Code::invalid_packing:
      return "invalid_packing";
    case Code::overlap:
      return "overlap";
    case Code::size_overflow:
      return "size_overflow";
    case Code::invalid_option:
      return "invalid_option";
    case Code::invalid_mod:
      return "invalid_mod";
    case Code::parse:
      return "parse";
    case Code::unsupported:
      return "unsupported";
    case Code::workspace_too_small:
      return "workspace_too_small";
    case Code::io:
      return "io";
    case Code::plan_mismatch:
      return "plan_mismatch";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::invalid_device:
      return "invalid_device";
    case Code::invalid_pages:
      return "invalid_pages";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
