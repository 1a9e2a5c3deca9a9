// The binary interface of DLPack 1.x as far as it is used here: the struct that describes an array and the table of C
// functions that a framework publishes as type(array).__dlpack_c_exchange_api__ (DLPack 1.2 and later), by which an
// array is looked at in some 100 ns. https://dmlc.github.io/dlpack/latest/
#pragma once
#include <cstdint>

namespace tessera::python::dlpack {

enum DeviceKind : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
enum TypeCode : std::uint8_t { integer = 0, unsigned_integer = 1, real = 2, bfloat = 4, boolean = 6 };

struct Version {
  std::uint32_t major, minor;
};
struct Device {
  std::int32_t kind, index;
};
struct Type {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Array {
  void* data;
  Device device;
  std::int32_t rank;
  Type type;
  std::int64_t *shape, *stride;
  std::uint64_t byte_offset;
};
struct Managed {  // DLManagedTensorVersioned
  Version version;
  void* context;
  void (*free)(Managed*);
  std::uint64_t flags;
  Array array;
};

struct Exchange {  // DLPackExchangeAPI
  Version version;
  const Exchange* older;
  int (*allocate)(Array* prototype, Managed** out, void* context,
                  void (*error)(void* context, const char* kind, const char* text));
  int (*managed_of)(void* object, Managed** out);
  int (*object_of)(Managed* array, void** out);
  int (*array_of)(void* object, Array* out);  // borrowed; may be null
  int (*stream_of)(std::int32_t device_kind, std::int32_t index, void** out);
};

}  // namespace tessera::python::dlpack
