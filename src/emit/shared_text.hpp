// The texts that host and device share (src/*/shared/*.inl), as strings. cmake/EmbedShared.cmake makes them.
#pragma once
#include <string_view>

namespace tessera::emit {

std::string_view shared_intervals();
std::string_view shared_summaries();
std::string_view shared_decisions();

}  // namespace tessera::emit
