# Flags for every target of the project, as one interface library.
add_library(tessera_warnings INTERFACE)
target_compile_options(tessera_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror
                       -ffp-contract=off)
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()
