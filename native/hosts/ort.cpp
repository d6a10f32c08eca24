// The ONNX Runtime host: every operator as a custom op
// of domain com.microsoft, in one plain shared library.
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <deque>
#include <mutex>

#include "core/pieces.h"
#include "core/platform.h"
#include "hosts/ort_fusions.h"
#include "hosts/ort_meter.h"
#include "hosts/ort_shapes.h"

namespace onnxgrad {
namespace {

// ---- tensors

ort::ElementType element_type(DType type) {
  constexpr ort::ElementType types[] = {ort::kFloat, ort::kDouble, ort::kInt32,    ort::kInt64,
                                        ort::kBool,  ort::kUint8,  ort::kUndefined};
  return types[static_cast<int>(type)];
}
DType dtype(ort::ElementType type) {
  for (DType t :
       {DType::float32, DType::float64, DType::int32, DType::int64, DType::boolean, DType::uint8})
    if (element_type(t) == type) return t;
  return DType::other;
}

// `who()` as in checked_shape().
template <class F> void describe(const Contract& contract, F&& who, ort::ElementType type,
                                 const Dim* dims, std::size_t rank, TensorView& view) {
  view.shape = checked_shape(contract, who, dims, rank);
  view.type = dtype(type);
}

// Runtimes before 1.24 describe a tensor by an object that is made for every question.
template <class F> void describe_by_object(const Contract& contract, F&& who,
                                           const ort::Value* value, TensorView& view) {
  ort::TypeShape* info = nullptr;
  must<ort::GetTypeShape>(value, &info);
  struct Release {
    ort::TypeShape* info;
    ~Release() { ort::ReleaseTypeShape::call(info); }
  } release{info};
  std::size_t rank = 0;
  ort::ElementType type = ort::kUndefined;
  must<ort::GetRank>(static_cast<const ort::TypeShape*>(info), &rank);
  must<ort::GetElementType>(static_cast<const ort::TypeShape*>(info), &type);
  std::vector<Dim> dims(rank);
  must<ort::GetDims>(static_cast<const ort::TypeShape*>(info), dims.data(), rank);
  describe(contract, who, type, dims.data(), rank, view);
}

template <class F> void describe_by_reference(const Contract& contract, F&& who,
                                              const ort::Value* value, TensorView& view) {
  std::size_t rank = 0;
  ort::ElementType type = ort::kUndefined;
  const Dim* dims = nullptr;
  must<ort::GetTypeAndDims>(value, &type, &dims, &rank);
  describe(contract, who, type, dims, rank, view);
}

void set_view(const Contract& contract, const TensorSpec& spec, const ort::Value* value,
              TensorView& view) {
  if (!value) return;
  const auto who = [&] { return "input " + spec.name + " has shape "; };
  if (g_level >= ort::kLevelOfGetTypeAndDims)
    describe_by_reference(contract, who, value, view);
  else
    describe_by_object(contract, who, value, view);
  view.present = true;
  must<ort::MutableData>(const_cast<ort::Value*>(value), &view.data);
}

class SessionHost final : public Host {
 public:
  explicit SessionHost(ort::Context* context) : context_(context) {}

  void allocate(Span<TensorView> outputs) override {
    for (Dim i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].present) continue;
      ort::Value* value = nullptr;
      must<ort::GetOutput>(context_, static_cast<std::size_t>(i), outputs[i].shape.data(),
                           static_cast<std::size_t>(outputs[i].shape.rank()), &value);
      must<ort::MutableData>(value, &outputs[i].data);
    }
  }

  // A member of the session's pool takes pieces until none is left: the runtime itself would deal
  // them out in turn, each core other ones in every call.
  void parallel_for(Dim count, Body body, void* context) override {
    if (PieceMeter::file()) return meter_.run(count, body, context);
    const int members = static_cast<int>(std::min<Dim>(count, core_count()));
    Pieces pieces(count, members, body, context);
    must<ort::ParallelFor>(
        static_cast<const ort::Context*>(context_),
        +[](void* p, std::size_t member) {
          static_cast<Pieces*>(p)->take_all(current_core(static_cast<int>(member)));
        },
        static_cast<std::size_t>(members), std::size_t(0), static_cast<void*>(&pieces));
  }

  PieceMeter& meter() { return meter_; }

 private:
  ort::Context* context_;
  PieceMeter meter_;
};

// ---- a node

class Node {
 public:
  Node(const Op& op, const ort::KernelInfo* info) : op_(op), contract_(op.contract()) {
    try {
      for (const AttributeSpec& a : contract_.attributes())
        attributes_.push_back(read_attribute(contract_, a, info));
      contract_.check_attributes(attributes_);
    } catch (const ContractError&
                 e) {  // when a node runs, the runtime adds its name; when it is created, we do
      throw ContractError(e.what() + (" (node '" + node_name(info) + "')"));
    }
    find_wanted_outputs(info);
  }

  void compute(ort::Context* context) const {
    const std::size_t inputs = contract_.inputs().size(), outputs = contract_.outputs().size();
    std::vector<TensorView> input_views(inputs), output_views(outputs);
    std::size_t given = 0;
    must<ort::InputCount>(static_cast<const ort::Context*>(context), &given);
    for (std::size_t i = 0; i < std::min(given, inputs); ++i) {
      const ort::Value* value = nullptr;
      must<ort::GetInput>(static_cast<const ort::Context*>(context), i, &value);
      set_view(contract_, contract_.inputs()[i], value, input_views[i]);
    }
    for (std::size_t i = 0; i < outputs; ++i) output_views[i].present = wanted_[i];
    SessionHost host(context);
    const double begin = PieceMeter::file() ? PieceMeter::now() : 0;
    Call call(contract_, attributes_, {input_views.data(), static_cast<Dim>(inputs)},
              {output_views.data(), static_cast<Dim>(outputs)}, host);
    op_.run(call);
    if (PieceMeter::file()) host.meter().write(contract_.name(), PieceMeter::now() - begin);
  }

 private:
  static std::string node_name(const ort::KernelInfo* info) {
    std::size_t size = 0;
    if (ort::Status* status = ort::NodeName::call(info, nullptr, &size))
      ort::ReleaseStatus::call(status);
    std::string name(size, '\0');
    if (size) must<ort::NodeName>(info, name.data(), &size);
    name.resize(size ? size - 1 : 0);
    return name;
  }

  // An output that the node leaves out has an empty name.
  void find_wanted_outputs(const ort::KernelInfo* info) {
    wanted_.assign(contract_.outputs().size(), false);
    std::size_t count = 0;
    must<ort::NodeOutputCount>(info, &count);
    for (std::size_t i = 0; i < std::min(count, wanted_.size()); ++i) {
      std::size_t size = 0;
      if (ort::Status* status = ort::NodeOutputName::call(info, i, nullptr, &size))
        ort::ReleaseStatus::call(status);
      wanted_[i] = size > 1;  // the closing zero counts
    }
  }

  const Op& op_;
  const Contract& contract_;
  std::vector<Attribute> attributes_;
  std::vector<bool> wanted_;
};

// ---- an operator, as the runtime asks about it

struct Operator : ort::Descriptor {
  const Op* op;
  DType t, i;  // what T and I stand for in this version of the operator
};

const Operator& self(const ort::Descriptor* d) {
  return *static_cast<const Operator*>(d);
}
const Contract& contract_of(const ort::Descriptor* d) {
  return self(d).op->contract();
}

ort::ElementType type_of(const Operator& o, const TensorSpec& spec) {
  if (spec.type == "T") return element_type(o.t);
  if (spec.type == "I") return element_type(o.i);
  for (DType t :
       {DType::int32, DType::int64, DType::boolean, DType::uint8, DType::float32, DType::float64})
    if (spec.type == name_of(t)) return element_type(t);
  return ort::kUndefined;
}

bool has_optional_input(const Contract& c) {
  return std::any_of(c.inputs().begin(), c.inputs().end(),
                     [](const TensorSpec& t) { return t.optional; });
}

// ---- in-place hints. The runtime does not say which
// operator it asks about, so there is a function per pair.

template <int Input, int Output> std::size_t ORT_CALL inplace_pair(int** inputs, int** outputs) {
  *inputs = static_cast<int*>(std::malloc(sizeof(int)));
  *outputs = static_cast<int*>(std::malloc(sizeof(int)));
  if (!*inputs || !*outputs) return 0;
  **inputs = Input, **outputs = Output;
  return 1;
}
void ORT_CALL inplace_free(int* inputs, int* outputs) {
  std::free(inputs), std::free(outputs);
}

using InplaceFunction = std::size_t(ORT_CALL*)(int**, int**);
InplaceFunction inplace_function(const Contract& c) {
  constexpr InplaceFunction pairs[3][2] = {{&inplace_pair<0, 0>, &inplace_pair<0, 1>},
                                           {&inplace_pair<1, 0>, &inplace_pair<1, 1>},
                                           {&inplace_pair<2, 0>, &inplace_pair<2, 1>}};
  const int in = c.inplace_input(), out = c.inplace_output();
  return in >= 0 && in < 3 && out >= 0 && out < 2 ? pairs[in][out] : nullptr;
}

Operator describe(const Op& op, DType t, DType i) {
  Operator o{};
  o.op = &op, o.t = t, o.i = i;
  o.level = std::min(g_level, ort::kNewestDescriptor);
  o.name = [](const ort::Descriptor* d) { return contract_of(d).name().c_str(); };
  o.provider = [](const ort::Descriptor*) -> const char* { return nullptr; };
  o.input_count = [](const ort::Descriptor* d) { return contract_of(d).inputs().size(); };
  o.output_count = [](const ort::Descriptor* d) { return contract_of(d).outputs().size(); };
  o.input_type = [](const ort::Descriptor* d, std::size_t k) {
    return type_of(self(d), contract_of(d).inputs()[k]);
  };
  o.output_type = [](const ort::Descriptor* d, std::size_t k) {
    return type_of(self(d), contract_of(d).outputs()[k]);
  };
  o.input_presence = [](const ort::Descriptor* d, std::size_t k) {
    return contract_of(d).inputs()[k].optional ? ort::kOptional : ort::kRequired;
  };
  o.output_presence = [](const ort::Descriptor* d, std::size_t k) {
    return contract_of(d).outputs()[k].optional ? ort::kOptional : ort::kRequired;
  };
  o.input_memory = [](const ort::Descriptor*, std::size_t) { return 0; };
  const auto zero = [](const ort::Descriptor*) { return 0; };
  o.variadic_input_minimum = o.variadic_input_same_type = zero;
  o.variadic_output_minimum = o.variadic_output_same_type = zero;
  o.create = [](const ort::Descriptor* d, ort::Table, const ort::KernelInfo* info, void** kernel) {
    return guarded([&] { *kernel = new Node(*self(d).op, info); });
  };
  o.compute = [](void* kernel, ort::Context* context) {
    return guarded([&] { static_cast<Node*>(kernel)->compute(context); });
  };
  o.destroy = [](void* kernel) { delete static_cast<Node*>(kernel); };
  o.first_opset = [](const ort::Descriptor*) { return 1; };
  o.last_opset = [](const ort::Descriptor*) { return INT_MAX; };
  // Up to 1.23 an infer function and an absent middle input together crash the runtime.
  if (g_level >= 24 || !has_optional_input(op.contract()))
    o.infer = [](const ort::Descriptor* d, ort::InferContext* context) {
      return guarded([&] { infer_shapes(contract_of(d), context); });
    };
  if (const InplaceFunction f = inplace_function(op.contract()))
    o.inplace = f, o.inplace_free = inplace_free;
  return o;
}

bool uses(const Contract& c, const char* variable) {
  const auto is = [&](const TensorSpec& t) { return t.type == variable; };
  return std::any_of(c.inputs().begin(), c.inputs().end(), is) ||
         std::any_of(c.outputs().begin(), c.outputs().end(), is);
}

// One descriptor per operator and types. They live as
// long as the process: sessions keep pointers to them.
ort::Domain* make_domain() {
  static std::deque<Operator> operators;
  ort::Domain* domain = nullptr;
  must<ort::CreateDomain>("com.microsoft", &domain);
  for (const Op& op : ops())
    for (DType t : {DType::float32, DType::float64})
      for (DType i : {DType::int32, DType::int64}) {
        if (i == DType::int64 && !uses(op.contract(), "I")) continue;
        if (t == DType::float64 && !uses(op.contract(), "T")) continue;
        operators.push_back(describe(op, t, i));
        must<ort::AddOperator>(domain, static_cast<const ort::Descriptor*>(&operators.back()));
      }
  return domain;
}

// "1.N.P" → N. Asking for a table that is too new prints on stderr, so the version is read first.
std::uint32_t minor_version(const char* text) {
  const char* dot = text;
  while (*dot && *dot != '.') ++dot;
  return *dot ? static_cast<std::uint32_t>(std::strtoul(dot + 1, nullptr, 10)) : 0;
}

}  // namespace
}  // namespace onnxgrad

// ONNX Runtime calls this when the library is registered with a session's options.
extern "C" ORT_EXPORT ort::Status* ORT_CALL RegisterCustomOps(ort::SessionOptions* options,
                                                              const ort::ApiBase* base) {
  using namespace onnxgrad;
  static std::once_flag once;
  static ort::Domain* domain = nullptr;
  static std::string failure;
  std::call_once(once, [&] {
    g_level = minor_version(base->version());
    ort::g_table = base->table(g_level < kOldestLevel ? 1 : g_level);
    if (g_level < kOldestLevel)
      failure = "onnxgrad needs onnxruntime 1.19 or newer, this is " + std::string(base->version());
    else if (ort::Status* status = guarded([] { domain = make_domain(); }))
      failure = take_text(status);
  });
  if (!failure.empty()) return ort::CreateStatus::call(ort::kFail, failure.c_str());
  return guarded([&] {
    must<ort::AddDomain>(options, domain);
    turn_off_fusions(options);
  });
}
