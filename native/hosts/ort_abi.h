// The part of ONNX Runtime's C interface that a library
// of CPU operators needs, from ONNX Runtime 1.19 on.
//
// The runtime hands a library one flat table of function pointers. The table only ever grows at its
// end, so "slot N has this signature" holds for every version; the same is true of the fields of an
// operator's descriptor. Written from those facts: no header of ONNX Runtime is needed to build,
// and one binary loads in every version from 1.19.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(_WIN32)
#define ORT_CALL __stdcall
#define ORT_EXPORT __declspec(dllexport)
#else
#define ORT_CALL
#define ORT_EXPORT __attribute__((visibility("default")))
#endif

namespace ort {

// Opaque objects of the runtime: only ever handled by pointer.
struct Status;
struct SessionOptions;
struct Domain;
struct KernelInfo;
struct Context;
struct Value;
struct TypeShape;
struct InferContext;
struct Allocator;

enum ElementType : int {
  kUndefined = 0,
  kFloat = 1,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kUint8 = 2,
  kDouble = 11
};
enum ErrorCode : int { kFail = 1, kInvalidArgument = 2, kRuntimeException = 6 };
enum Presence : int { kRequired = 0, kOptional = 1 };

using Table = void* const*;
struct ApiBase {
  Table(ORT_CALL* table)(std::uint32_t level);  // null when the runtime is older than `level`
  const char*(ORT_CALL* version)();             // "1.N.P"; the level is N
};

// What an operator says of itself. The number is the descriptor level that added the field.
struct Descriptor {
  std::uint32_t level;                                                             // 1
  void*(ORT_CALL* create_v1)(const Descriptor*, Table, const KernelInfo*);         // 1
  const char*(ORT_CALL* name)(const Descriptor*);                                  // 1
  const char*(ORT_CALL* provider)(const Descriptor*);                              // 1  null: CPU
  ElementType(ORT_CALL* input_type)(const Descriptor*, std::size_t);               // 1
  std::size_t(ORT_CALL* input_count)(const Descriptor*);                           // 1
  ElementType(ORT_CALL* output_type)(const Descriptor*, std::size_t);              // 1
  std::size_t(ORT_CALL* output_count)(const Descriptor*);                          // 1
  void(ORT_CALL* compute_v1)(void*, Context*);                                     // 1
  void(ORT_CALL* destroy)(void*);                                                  // 1
  Presence(ORT_CALL* input_presence)(const Descriptor*, std::size_t);              // 8
  Presence(ORT_CALL* output_presence)(const Descriptor*, std::size_t);             // 8
  int(ORT_CALL* input_memory)(const Descriptor*, std::size_t);                     // 13  0: CPU
  int(ORT_CALL* variadic_input_minimum)(const Descriptor*);                        // 14
  int(ORT_CALL* variadic_input_same_type)(const Descriptor*);                      // 14
  int(ORT_CALL* variadic_output_minimum)(const Descriptor*);                       // 14
  int(ORT_CALL* variadic_output_same_type)(const Descriptor*);                     // 14
  Status*(ORT_CALL* create)(const Descriptor*, Table, const KernelInfo*, void**);  // 16
  Status*(ORT_CALL* compute)(void*, Context*);                                     // 16
  Status*(ORT_CALL* infer)(const Descriptor*, InferContext*);                      // 17
  int(ORT_CALL* first_opset)(const Descriptor*);                                   // 17
  int(ORT_CALL* last_opset)(const Descriptor*);                                    // 17
  std::size_t(ORT_CALL* inplace)(int** inputs, int** outputs);                     // 18
  void(ORT_CALL* inplace_free)(int* inputs, int* outputs);                         // 18
  std::size_t(ORT_CALL* alias)(int** inputs, int** outputs);                       // 18
  void(ORT_CALL* alias_free)(int* inputs, int* outputs);                           // 18
};
static_assert(sizeof(void*) != 8 || sizeof(Descriptor) == 208, "descriptor layout");
constexpr std::uint32_t kNewestDescriptor = 18;

inline Table g_table = nullptr;  // set once, by the registration entry point

template <unsigned N, class Signature> struct Slot;
template <unsigned N, class R, class... A> struct Slot<N, R(A...)> {
  static R call(A... a) { return reinterpret_cast<R(ORT_CALL*)(A...)>(g_table[N])(a...); }
};
using CreateStatus = Slot<0, Status*(int code, const char* text)>;
using ErrorText = Slot<2, const char*(const Status*)>;
using CreateDomain = Slot<26, Status*(const char* name, Domain**)>;
using AddOperator = Slot<27, Status*(Domain*, const Descriptor*)>;
using AddDomain = Slot<28, Status*(SessionOptions*, Domain*)>;
using MutableData = Slot<51, Status*(Value*, void**)>;
using CreateTypeShape = Slot<57, Status*(TypeShape**)>;
using SetElementType = Slot<58, Status*(TypeShape*, int)>;
using SetDims = Slot<59, Status*(TypeShape*, const std::int64_t*, std::size_t)>;
using GetElementType = Slot<60, Status*(const TypeShape*, ElementType*)>;
using GetRank = Slot<61, Status*(const TypeShape*, std::size_t*)>;
using GetDims = Slot<62, Status*(const TypeShape*, std::int64_t*, std::size_t)>;
using GetDimNames = Slot<63, Status*(const TypeShape*, const char**, std::size_t)>;
using GetTypeShape = Slot<65, Status*(const Value*, TypeShape**)>;
using AllocatorFree = Slot<76, Status*(Allocator*, void*)>;
using DefaultAllocator = Slot<78, Status*(Allocator**)>;
using GetFloat = Slot<85, Status*(const KernelInfo*, const char*, float*)>;
using GetInteger = Slot<86, Status*(const KernelInfo*, const char*, std::int64_t*)>;
using GetText = Slot<87, Status*(const KernelInfo*, const char*, char*, std::size_t*)>;
using InputCount = Slot<88, Status*(const Context*, std::size_t*)>;
using OutputCount = Slot<89, Status*(const Context*, std::size_t*)>;
using GetInput = Slot<90, Status*(const Context*, std::size_t, const Value**)>;
using GetOutput =
    Slot<91, Status*(Context*, std::size_t, const std::int64_t*, std::size_t, Value**)>;
using ReleaseStatus = Slot<93, void(Status*)>;
using ReleaseTypeShape = Slot<99, void(TypeShape*)>;
using AddConfigEntry = Slot<130, Status*(SessionOptions*, const char* key, const char* value)>;
using GetFloats = Slot<162, Status*(const KernelInfo*, const char*, float*, std::size_t*)>;
using GetIntegers = Slot<163, Status*(const KernelInfo*, const char*, std::int64_t*, std::size_t*)>;
using HasConfigEntry = Slot<237, Status*(const SessionOptions*, const char* key, int*)>;
using GetConfigEntry =
    Slot<238, Status*(const SessionOptions*, const char* key, char* value, std::size_t*)>;
using NodeName = Slot<244, Status*(const KernelInfo*, char*, std::size_t*)>;
using NodeOutputCount = Slot<231, Status*(const KernelInfo*, std::size_t*)>;
using NodeOutputName = Slot<233, Status*(const KernelInfo*, std::size_t, char*, std::size_t*)>;
using InferInput = Slot<268, Status*(const InferContext*, std::size_t, TypeShape**)>;  // borrowed
using InferOutput = Slot<270, Status*(const InferContext*, std::size_t, const TypeShape*)>;
using SetDimNames = Slot<271, Status*(TypeShape*, const char**, std::size_t)>;
using ParallelFor = Slot<274, Status*(const Context*, void (*)(void*, std::size_t), std::size_t,
                                      std::size_t, void*)>;
using GetTexts =
    Slot<417, Status*(const KernelInfo*, const char*, Allocator*, char***, std::size_t*)>;
constexpr std::uint32_t kLevelOfGetTexts = 25;
// The dims are borrowed from the value; null for a scalar.
using GetTypeAndDims =
    Slot<414, Status*(const Value*, ElementType*, const std::int64_t**, std::size_t*)>;
constexpr std::uint32_t kLevelOfGetTypeAndDims = 24;

}  // namespace ort
