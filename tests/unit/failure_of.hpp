// What a call refuses, as a value.
#pragma once
#include <string>

#include "tessera/error.hpp"

namespace tessera {

struct Failure {
  Code code = Code::ok;
  std::string text;
};
template <class F>
Failure failure_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

}  // namespace tessera
