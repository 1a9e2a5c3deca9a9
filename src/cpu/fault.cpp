// The switch of the planted faults (see fault.hpp); empty in every build but the tests' own.
#include "cpu/fault.hpp"

#ifdef TESSERA_PLANT_FAULTS
namespace tessera::cpu {
__attribute__((visibility("default"))) int planted = -1;
}
#endif
