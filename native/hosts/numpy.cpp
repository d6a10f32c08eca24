// The NumPy host: every operator as a Python callable.
// Only this file and its headers know nanobind.
#include "core/parallel.h"
#include "hosts/fusing_optimizers.h"
#include "hosts/numpy_arguments.h"
#include "hosts/numpy_checks.h"
#include "hosts/numpy_optimizers.h"

namespace onnxgrad {
namespace {

constexpr int kMaxTensors = 24;
// Below this many bytes of output the GIL is kept: taking it back costs more than the work.
constexpr Dim kKeepGilBytes = 16 << 10;

PyObject* g_contract_error = nullptr;  // onnxgrad.errors.ContractError
PyObject* g_empty = nullptr;           // numpy.empty
PyObject* g_dtypes[6] = {};            // numpy.dtype, by DType
int g_fill = -1;                       // what new outputs are filled with; below 0: nothing

// ---- arrays out

class NumpyHost final : public Host {
 public:
  explicit NumpyHost(const Contract& contract) : contract_(contract) {}
  ~NumpyHost() override { finish(); }

  std::vector<nb::object> results;  // one per output; invalid where not asked for
  std::vector<PyObject*> given;     // `out=`, by output; null where a new array is made

  void allocate(Span<TensorView> outputs) override {
    Dim bytes = 0;
    buffers_ = std::make_unique<Buffer[]>(static_cast<std::size_t>(outputs.size()));
    for (Dim i = 0; i < outputs.size(); ++i) {
      TensorView& out = outputs[i];
      if (!out.present) continue;
      const auto k = static_cast<std::size_t>(i);
      results[k] = given[k] ? nb::borrow(given[k]) : new_array(out);
      open(contract_.outputs()[k], results[k].ptr(), buffers_[k], out);
      if (g_fill >= 0 && !given[k])
        std::memset(out.data, g_fill, static_cast<std::size_t>((*buffers_[k]).len));
      bytes += out.shape.size() * bytes_of(out.type);
    }
    if (bytes > kKeepGilBytes) thread_ = PyEval_SaveThread();
  }

  // Takes the GIL back.
  void finish() {
    if (thread_) PyEval_RestoreThread(thread_);
    thread_ = nullptr;
  }

  bool is_lent(Dim output) const override {
    return given[static_cast<std::size_t>(output)] != nullptr;
  }

  void parallel_for(Dim count, Body body, void* context) override {
    Pool::instance().parallel_for(count, body, context);
  }

 private:
  static nb::object new_array(const TensorView& out) {
    nb::object shape = nb::steal(PyTuple_New(out.shape.rank()));
    for (int i = 0; i < out.shape.rank(); ++i)
      NB_TUPLE_SET_ITEM(shape.ptr(), i, PyLong_FromLongLong(out.shape[i]));
    nb::object array = nb::steal(PyObject_CallFunctionObjArgs(
        g_empty, shape.ptr(), g_dtypes[static_cast<int>(out.type)], nullptr));
    if (!array.is_valid()) raise_python();
    return array;
  }

  void open(const TensorSpec& spec, PyObject* array, Buffer& buffer, TensorView& out) const {
    const std::string who = "out for " + spec.name;
    constexpr int layout = PyBUF_ND | PyBUF_STRIDES | PyBUF_FORMAT;
    if (is_masked(array)) contract_.fail(who + " is a masked array, expected one without a mask");
    if (!buffer.acquire(array, layout | PyBUF_WRITABLE))
      contract_.fail(
          who + " is " +
          (buffer.acquire(array, layout) ? "read-only" : "of type " + dtype_name(array)) +
          ", expected a writable array");
    const TensorView view = view_of(contract_, *buffer, [&] { return who + " has shape "; });
    if (view.type != out.type)
      contract_.fail(who + " is of type " + dtype_name(array) + ", expected " + name_of(out.type));
    if (view.shape != out.shape)
      contract_.fail(who + " has shape " + to_string(view.shape) + ", expected " +
                     to_string(out.shape));
    if (!PyBuffer_IsContiguous(&*buffer, 'C'))
      contract_.fail(who + " is not contiguous, expected a C-contiguous array");
    if (!aligned(*buffer))
      contract_.fail(who +
                     " begins between two of its elements' addresses, expected an aligned array");
    out.data = view.data;
  }
  const Contract& contract_;
  std::unique_ptr<Buffer[]> buffers_;
  PyThreadState* thread_ = nullptr;
};

// ---- the callable

class Kernel {
 public:
  explicit Kernel(const Op& op) : op_(op), contract_(op.contract()) {}
  const Contract& contract() const { return contract_; }
  nb::object result_type;  // the named tuple of an operator with several outputs

  nb::object call(nb::args args, nb::kwargs kwargs) const {
    try {
      return checked_call(args, kwargs);
    } catch (const ContractError& e) {
      PyErr_SetString(g_contract_error, e.what());
      raise_python();
    }
  }

 private:
  struct Arguments {
    PyObject* inputs[kMaxTensors] = {};
    std::optional<std::vector<Attribute>> attributes;
    PyObject *outputs = nullptr, *out = nullptr;
  };

  nb::object checked_call(nb::args args, nb::kwargs kwargs) const {
    Arguments arguments;
    read(arguments, args, kwargs);
    const std::vector<Attribute>& attributes =
        arguments.attributes ? *arguments.attributes : contract_.defaults();
    contract_.check_attributes(attributes);

    const std::size_t inputs = contract_.inputs().size(), outputs = contract_.outputs().size();
    Input held[kMaxTensors];
    TensorView input_views[kMaxTensors], output_views[kMaxTensors];
    for (std::size_t i = 0; i < inputs; ++i)
      if (arguments.inputs[i])
        input_views[i] = held[i].open(contract_, contract_.inputs()[i], arguments.inputs[i]);
    NumpyHost host(contract_);
    host.results.resize(outputs);
    host.given.resize(outputs);
    choose_outputs(arguments, host, output_views);
    if (arguments.out) separate(host, held, input_views);
    Call call(contract_, attributes, {input_views, static_cast<Dim>(inputs)},
              {output_views, static_cast<Dim>(outputs)}, host);
    op_.run(call);
    host.finish();
    return result_of(host);
  }

  void read(Arguments& a, nb::args args, nb::kwargs kwargs) const {
    const std::size_t count = args.size();
    if (count > contract_.inputs().size())
      contract_.fail("got " + std::to_string(count) + " positional arguments, expected at most " +
                     std::to_string(contract_.inputs().size()) + " (attributes are keywords)");
    for (std::size_t i = 0; i < count; ++i)
      set_input(a, static_cast<int>(i), NB_TUPLE_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i)));
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs.ptr(), &at, &key, &value);) {
      const auto name = name_from(key);
      if (!name) contract_.fail("unknown argument " + shown(key) + ", expected " + known_names());
      read_keyword(a, *name, key, value);
    }
  }

  void set_input(Arguments& a, int index, PyObject* value) const {
    const auto i = static_cast<std::size_t>(index);
    if (a.inputs[i]) contract_.fail("input " + contract_.inputs()[i].name + " is given twice");
    a.inputs[i] = value == Py_None ? nullptr : value;
  }

  void read_keyword(Arguments& a, std::string_view name, PyObject* key, PyObject* value) const {
    if (name == "outputs") return void(a.outputs = value == Py_None ? nullptr : value);
    if (name == "out") return void(a.out = value == Py_None ? nullptr : value);
    if (const int i = contract_.input_index(name); i >= 0) return set_input(a, i, value);
    const int i = contract_.attribute_index(name);
    if (i < 0) contract_.fail("unknown argument " + shown(key) + ", expected " + known_names());
    if (value == Py_None) return;
    if (!a.attributes) a.attributes = contract_.defaults();
    const auto k = static_cast<std::size_t>(i);
    (*a.attributes)[k] = attribute_of(contract_, contract_.attributes()[k], value);
  }

  std::string known_names() const {
    std::string text;
    for (const TensorSpec& t : contract_.inputs()) text += t.name + ", ";
    for (const AttributeSpec& t : contract_.attributes()) text += t.name + ", ";
    return text + "outputs or out";
  }
  std::string output_names() const {
    std::string text;
    for (const TensorSpec& t : contract_.outputs()) text += (text.empty() ? "" : ", ") + t.name;
    return text;
  }
  std::size_t output_named(PyObject* name) const {
    const auto text = name_from(name);
    const int i = text ? contract_.output_index(*text) : -1;
    if (i < 0)
      contract_.fail("no output is called " + shown(name) + ", expected names of " +
                     output_names());
    return static_cast<std::size_t>(i);
  }

  // outputs=("dX", "dW") asks for some; out= gives memory,
  // and asks for what it gives unless outputs= says more.
  void choose_outputs(const Arguments& a, NumpyHost& host, TensorView* views) const {
    if (!a.outputs) {
      for (std::size_t i = 0; i < contract_.outputs().size(); ++i) views[i].present = true;
    } else if (PyUnicode_Check(a.outputs)) {
      views[output_named(a.outputs)].present = true;
    } else {
      for (nb::handle name : names_in(a.outputs)) views[output_named(name.ptr())].present = true;
    }
    if (!a.out) return;
    if (!PyDict_Check(a.out)) {
      if (contract_.outputs().size() != 1)
        contract_.fail("out is " + type_name(a.out) + ", expected a dict by output name (" +
                       output_names() + ")");
      return give(host, views, 0, a.out);
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(a.out, &at, &key, &value);)
      give(host, views, output_named(key), value);
  }
  void give(NumpyHost& host, const TensorView* views, std::size_t i, PyObject* array) const {
    if (!views[i].present)
      contract_.fail("out is given for " + contract_.outputs()[i].name +
                     ", which outputs leaves out");
    host.given[i] = array;
  }
  nb::object names_in(PyObject* outputs) const {
    nb::object names = nb::steal(PySequence_Tuple(outputs));
    if (names.is_valid()) return names;
    PyErr_Clear();
    contract_.fail("outputs is " + shown(outputs) + ", expected names of " + output_names());
  }

  // A kernel writes while it reads. What it may write over is the one input
  // of which the contract says so, in its own place; other inputs that share
  // memory with an `out` are copied first, and two outputs may not share any.
  void separate(const NumpyHost& host, Input* held, TensorView* inputs) const {
    Buffer memory[kMaxTensors];
    for (std::size_t o = 0; o < host.given.size(); ++o) {
      if (!host.given[o] || !memory[o].acquire(host.given[o], PyBUF_C_CONTIGUOUS))
        continue;  // refused later
      for (std::size_t before = 0; before < o; ++before)
        if (memory[before].held() && overlap(*memory[before], *memory[o]))
          contract_.fail("out for " + contract_.outputs()[o].name + " shares memory with out for " +
                         contract_.outputs()[before].name + ", expected arrays of their own");
      for (std::size_t i = 0; i < contract_.inputs().size(); ++i) {
        const bool may_be_same = static_cast<int>(i) == contract_.inplace_input() &&
                                 static_cast<int>(o) == contract_.inplace_output();
        if (inputs[i].present && overlap(*held[i].buffer, *memory[o]) &&
            !(may_be_same && (*held[i].buffer).buf == (*memory[o]).buf))
          held[i].move(inputs[i]);
      }
    }
  }

  nb::object result_of(NumpyHost& host) const {
    if (host.results.size() == 1) return host.results[0].is_valid() ? host.results[0] : nb::none();
    nb::object values = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(host.results.size())));
    for (std::size_t i = 0; i < host.results.size(); ++i) {
      nb::object item = host.results[i].is_valid() ? host.results[i] : nb::none();
      NB_TUPLE_SET_ITEM(values.ptr(), static_cast<Py_ssize_t>(i), item.release().ptr());
    }
    return result_type.is_valid() ? result_type(*nb::borrow<nb::tuple>(values)) : values;
  }

  const Op& op_;
  const Contract& contract_;
};

// ---- contracts as plain Python data

nb::object to_python(const Attribute& value) {
  return std::visit(
      [](const auto& v) -> nb::object {
        using V = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<V, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<V, Integers> || std::is_same_v<V, Floats> ||
                             std::is_same_v<V, Strings>) {
          nb::list list;
          for (const auto& item : v) list.append(item);
          return list;
        } else {
          return nb::cast(v);
        }
      },
      value);
}

nb::list tensors_to_python(const std::vector<TensorSpec>& specs) {
  nb::list list;
  for (const TensorSpec& t : specs)
    list.append(nb::make_tuple(t.name, t.type, t.dims, t.optional, t.doc));
  return list;
}

nb::tuple accuracy_to_python(const Accuracy& a) {
  return nb::make_tuple(explanation_of(a.measure), a.float32, a.float64);
}

nb::dict contract_to_python(const Contract& c) {
  nb::list attributes;
  for (const AttributeSpec& a : c.attributes()) {
    nb::list accepted;
    for (const std::string& word : a.accepted) accepted.append(word);
    attributes.append(nb::make_tuple(a.name, name_of(a.kind), to_python(a.initial), accepted, a.doc,
                                     a.least, a.most));
  }
  nb::dict own_accuracies;
  for (const auto& [output, accuracy] : c.own_accuracies())
    own_accuracies[output.c_str()] = accuracy_to_python(accuracy);
  nb::dict d;
  d["name"] = c.name();
  d["summary"] = c.summary();
  d["formula"] = c.formula();
  d["inputs"] = tensors_to_python(c.inputs());
  d["outputs"] = tensors_to_python(c.outputs());
  d["attributes"] = attributes;
  d["accuracy"] = accuracy_to_python(c.accuracy());
  d["own_accuracies"] = own_accuracies;
  d["inplace"] = c.inplace_input() < 0
                     ? nb::object(nb::none())
                     : nb::object(nb::make_tuple(c.inplace_input(), c.inplace_output()));
  return d;
}

}  // namespace
}  // namespace onnxgrad

NB_MODULE(_native, m) {
  using namespace onnxgrad;
  nb::module_ numpy = nb::module_::import_("numpy");
  g_contract_error = nb::module_::import_("onnxgrad.errors").attr("ContractError").inc_ref().ptr();
  g_empty = numpy.attr("empty").inc_ref().ptr();
  g_as_contiguous = numpy.attr("ascontiguousarray").inc_ref().ptr();
  g_array_type = numpy.attr("ndarray").inc_ref().ptr();
  const char* names[] = {"float32", "float64", "int32", "int64", "bool", "uint8"};
  for (std::size_t i = 0; i < 6; ++i) g_dtypes[i] = numpy.attr("dtype")(names[i]).inc_ref().ptr();

  nb::class_<Kernel>(m, "Kernel", nb::dynamic_attr())
      .def("__call__", &Kernel::call)
      .def("contract", [](const Kernel& k) { return contract_to_python(k.contract()); })
      .def("set_result_type", [](Kernel& k, nb::object type) { k.result_type = type; });
  m.def("kernels", [] {
    nb::list list;
    for (const Op& op : ops()) list.append(nb::cast(Kernel(op)));
    return list;
  });
  m.attr("fusing_optimizers") = kFusingOptimizers;
  m.def("instruction_set", &instruction_set);
  // For tests: every byte of a new output, so that an element that no kernel writes is seen.
  m.def("fill_outputs_with", [](int byte) { g_fill = byte; });
  m.def("limit_threads", &Pool::set_limit, nb::arg("count"));
  m.def("get_num_threads", [] { return Pool::instance().threads(); });
  m.def("set_num_threads", [](int count) {
    nb::gil_scoped_release release;
    Pool::instance().set_threads(count);
  });
  add_optimizers(m);
  add_checks(m);
}
