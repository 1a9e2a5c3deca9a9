# Texts that host and device share, as strings: src/*/shared/*.inl are compiled into the host's code by #include and
# embedded here for what is emitted.
set(embedded_texts "")
foreach(text mods/shared/intervals mods/shared/summaries tiles/shared/decisions)
  set(path ${CMAKE_CURRENT_SOURCE_DIR}/src/${text}.inl)
  file(READ ${path} content)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  get_filename_component(name ${text} NAME)
  string(APPEND embedded_texts
         "std::string_view shared_${name}() {\n  return R\"shared_text(${content})shared_text\";\n}\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/embedded/shared_text.cpp @ONLY CONTENT
     "// Made by cmake/EmbedShared.cmake.\n#include \"emit/shared_text.hpp\"\nnamespace tessera::emit {\n@embedded_texts@}\n")
list(APPEND sources ${CMAKE_CURRENT_BINARY_DIR}/embedded/shared_text.cpp)

# The kernels: every source of src/kernels under its name there.
file(GLOB kernel_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/src/kernels src/kernels/*.cuh src/kernels/ptx/*.cuh)
set(embedded_kernels "")
foreach(name ${kernel_files})
  set(path ${CMAKE_CURRENT_SOURCE_DIR}/src/kernels/${name})
  file(READ ${path} content)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  string(APPEND embedded_kernels "    {\"${name}\", R\"kernel_text(${content})kernel_text\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/embedded/kernel_sources.cpp @ONLY CONTENT
     "// Made by cmake/EmbedShared.cmake.\n#include \"emit/kernel_sources.hpp\"\nnamespace tessera::emit {\nnamespace {\nconstexpr KernelSource all[] = {\n@embedded_kernels@};\n}  // namespace\nstd::span<const KernelSource> kernel_sources() { return all; }\n}  // namespace tessera::emit\n")
list(APPEND sources ${CMAKE_CURRENT_BINARY_DIR}/embedded/kernel_sources.cpp)
