# One translation unit per instruction set, each with its own flags: a flag on a shared unit would let the compiler put
# AVX-512 into the path of a machine that lacks it.
set(optimise -O3)
if(TESSERA_SANITIZE)
  set(optimise -O1)  # at -O3 sanitizers take ten times as long to compile the kernels, and find the same
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx512 "${optimise};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx2;-mfma;-mf16c;-mprefer-vector-width=512")
  # g++ 12 warns of its own _mm512_undefined_ps (GCC bug 105593, mended in 13).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_source_files_properties(src/cpu/kernels_avx2.cpp PROPERTIES COMPILE_OPTIONS "${optimise};-mavx2;-mfma;-mf16c")
  set_source_files_properties(src/cpu/kernels_avx512.cpp PROPERTIES COMPILE_OPTIONS "${avx512}")
else()
  list(FILTER sources EXCLUDE REGEX "/kernels_avx[0-9]+\\.cpp$")
endif()
if(TESSERA_SANITIZE)
  set(optimise -O2)  # the one that is slow to run
endif()
set_source_files_properties(src/cpu/kernels_scalar.cpp PROPERTIES COMPILE_OPTIONS "${optimise}")
