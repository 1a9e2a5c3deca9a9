// Making an error out of words and values, away from the path on which all is well.
// Must not know: what is being refused.
#pragma once
#include <locale>
#include <sstream>

#include "tessera/error.hpp"

namespace tessera::problem {

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(Code code, const Parts&... parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // a program's locale must not group the digits
  (text << ... << parts);
  throw Error(code, text.str());
}

}  // namespace tessera::problem
