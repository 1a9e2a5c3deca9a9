# One translation unit per instruction set, each with its own flags: a flag on a shared unit would let the compiler put
# AVX-512 into the path of a machine that lacks it.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(src/cpu/kernels_avx2.cpp PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mf16c")
  # The intrinsics' own headers start from a deliberately undefined register, which g++ 12 reports as uninitialised.
  set_source_files_properties(src/cpu/kernels_avx512.cpp PROPERTIES COMPILE_OPTIONS
    "-O3;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx2;-mfma;-mf16c;-Wno-uninitialized;-Wno-maybe-uninitialized")
endif()
set_source_files_properties(src/cpu/kernels_scalar.cpp PROPERTIES COMPILE_OPTIONS "-O3")
