// The command line tool with the emulated GPU at the end of the list of backends: `check --backend sim:sm_80 --case
// "..."` replays what failed there, `--backend checked:sm_80` with every access checked.
#include "gpu/sim_subjects.hpp"

namespace {

[[maybe_unused]] const bool appended = (tessera::conformance::append_sim(), true);

}  // namespace
