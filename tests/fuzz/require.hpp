// What a fuzz target asserts: a broken promise is a crash, with a line that says which.
#pragma once
#include <cstdio>
#include <cstdlib>

#define REQUIRE(condition)                                                         \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                \
    }                                                                              \
  } while (false)
