# Flags for every target of the project, as one interface library.
# Warnings are errors where the project itself is built with g++, the compiler that it is held clean with; someone who
# adds it to a larger build, or a fuzzer built with clang, must not fail over another compiler's opinion.
add_library(tessera_warnings INTERFACE)
target_compile_options(tessera_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                       -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tessera_warnings INTERFACE -Wno-restrict)  # g++ 12 sees overlaps in "text" + std::string
endif()
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tessera_warnings INTERFACE -Werror)
endif()
# g++ 12 sees an overlap in every "text" + std::string (GCC bug 105651, mended in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(tessera_warnings INTERFACE -Wno-restrict)
endif()
# For what only talks, parses or asserts: -O3 on it doubles the time of a build and saves nobody a second.
add_library(tessera_quick_build INTERFACE)
if(TESSERA_SANITIZE)
  target_compile_options(tessera_quick_build INTERFACE -O0)
else()
  target_compile_options(tessera_quick_build INTERFACE $<$<CONFIG:Release>:-O1>)
endif()
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()

# ccache where it is found and nothing else was asked for.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TESSERA_CCACHE ccache)
  mark_as_advanced(TESSERA_CCACHE)
  if(TESSERA_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
  endif()
endif()
