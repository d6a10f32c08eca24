// Call: one invocation of an operator, as the operator sees it. The same for both hosts.
//
// An operator reads shapes and attributes, checks what its contract cannot say (throwing through
// fail()), then takes its outputs and computes. The first output() ends the checking: every output
// is allocated there, and nothing may throw after it.
//
// A caller may leave any output out. A kernel never sees that of an output that its contract calls
// required: it gets memory to write to, which nobody reads. An output that the contract calls
// optional is one that the kernel knows how to leave out.
#pragma once
#include <memory>
#include <type_traits>

#include "core/contract.h"

namespace onnxgrad {

// The pieces that one thread takes, one after the other.
class Turn {
 public:
  virtual Dim next() = 0;  // below 0: none is left

 protected:
  ~Turn() = default;
};

// Thrown by the first output() where all that is asked for is without elements, caught by Op::run:
// a kernel computes nothing for it, however long its loops over the other dims are.
struct NothingToCompute {};

// What a host does for a call.
class Host {
 public:
  virtual ~Host() = default;
  // Fills in `data` of each output that is present.
  virtual void allocate(Span<TensorView> outputs) = 0;
  // Whether this output is the caller's own memory.
  virtual bool is_lent(Dim) const { return false; }
  // body(context, turn) on any threads, which take the pieces [0, count) in any order.
  using Body = void (*)(void* context, Turn& turn);
  virtual void parallel_for(Dim count, Body body, void* context) = 0;
};

class Call {
 public:
  // `outputs` says by `present` which outputs are asked for. `attributes` passed
  // check_attributes().
  Call(const Contract& contract, const std::vector<Attribute>& attributes,
       Span<const TensorView> inputs, Span<TensorView> outputs, Host& host)
      : contract_(contract),
        attributes_(attributes),
        inputs_(inputs),
        outputs_(outputs),
        host_(host),
        symbols_(contract.symbols().size()),
        type_(bind(contract, inputs, symbols_)) {
    require_an_output();
  }
  Call(const Call&) = delete;

  DType type() const { return type_; }  // what T stands for
  const Contract& contract() const { return contract_; }
  [[noreturn]] void fail(const std::string& what) const { contract_.fail(what); }

  bool has(std::string_view input) const { return view(input).present; }
  bool wants(std::string_view output) const {
    return outputs_[contract_.output_index(output)].present;
  }
  const Shape& shape(std::string_view input) const { return view(input).shape; }
  DType type(std::string_view input) const { return view(input).type; }
  Dim dim(std::string_view symbol) const { return symbols_[contract_.symbol_index(symbol)].dim; }
  const Shape& dims(std::string_view pack) const {
    return symbols_[contract_.symbol_index(pack)].pack;
  }
  // Gives a value to a symbol that no input carries, so that the shapes of the outputs are known.
  void set_dim(std::string_view symbol, Dim value);
  void set_dims(std::string_view pack, const Shape& value);

  std::int64_t integer(std::string_view attribute) const { return get<std::int64_t>(attribute); }
  float real(std::string_view attribute) const { return get<float>(attribute); }
  const std::string& text(std::string_view attribute) const { return get<std::string>(attribute); }
  // Empty when the attribute was not given and has no default.
  Integers integers(std::string_view attribute) const { return list<Integers>(attribute); }
  Floats reals(std::string_view attribute) const { return list<Floats>(attribute); }
  Strings texts(std::string_view attribute) const { return list<Strings>(attribute); }
  bool given(std::string_view attribute) const { return kind_of(value(attribute)) != Kind::none; }
  // A list of `count` numbers; `initial` each when the attribute is absent or empty. It fails when
  // there are other than `count`, which follows from the shape of `input`.
  Shape numbers(std::string_view attribute, int count, Dim initial, std::string_view input) const;
  // An axis attribute, counted from the front; fails when `input`
  // has no such axis. A scalar has axis 0 and -1, as in ONNX Runtime.
  int axis(std::string_view attribute, std::string_view input) const;

  template <class T> Span<const T> input(std::string_view name) const {
    const TensorView& v = view(name);
    return v.present ? Span<const T>(static_cast<const T*>(v.data), v.shape.size())
                     : Span<const T>();
  }
  // A required output: never null.
  template <class T> Span<T> output(std::string_view name) {
    const TensorView& v = required_view(name);
    return {static_cast<T*>(v.data), v.shape.size()};
  }
  // An optional output: null when nobody asked for it.
  template <class T> Span<T> optional_output(std::string_view name) {
    const TensorView& v = output_view(name);
    return v.present ? Span<T>(static_cast<T*>(v.data), v.shape.size()) : Span<T>();
  }
  // The shape an output has; ends the checking like output().
  const Shape& output_shape(std::string_view name) { return output_view(name).shape; }

  // A tensor with all that is known of it; output_view() ends the checking like output(). A view
  // of an optional output that nobody asked for is not present.
  const TensorView& view(std::string_view input) const {
    return inputs_[contract_.input_index(input)];
  }
  const TensorView& output_view(std::string_view name) {
    if (!allocated_) allocate();
    return outputs_[contract_.output_index(name)];
  }

  // Ends the call where all that is asked for is without elements: before working memory is taken
  // for it, and after set_dims().
  void end_if_empty();

  // What the operator may take beside its tensors: a multiple of what they take themselves.
  Dim most_working_memory() const;

  // body(i) for i in [0, count): the pieces are cut by shape, never by the number of threads, so
  // that every number of threads gives the same bits. The body must not throw.
  template <class F> void parallel_for(Dim count, F&& body) {
    if (count == 1) return body(Dim(0));
    parallel_turns(count, [&](Turn& turn) {
      for (Dim i; (i = turn.next()) >= 0;) body(i);
    });
  }
  // body(turn) on each thread, where it takes pieces until none is left: for work on one piece that
  // begins before the one before it is done.
  template <class F> void parallel_turns(Dim count, F&& body) {
    using Body = std::remove_reference_t<F>;
    if (count > 0)
      host_.parallel_for(count, [](void* f, Turn& turn) { (*static_cast<Body*>(f))(turn); }, &body);
  }
  // body(begin, end) over [0, size) in pieces of `grain`.
  template <class F> void parallel_ranges(Dim size, Dim grain, F&& body) {
    parallel_for((size + grain - 1) / grain, [&](Dim piece) {
      const Dim begin = piece * grain;
      body(begin, begin + grain < size ? begin + grain : size);
    });
  }

 private:
  const Attribute& value(std::string_view name) const {
    return attributes_[static_cast<std::size_t>(contract_.attribute_index(name))];
  }
  template <class V> const V& get(std::string_view name) const { return std::get<V>(value(name)); }
  template <class V> V list(std::string_view name) const {
    const V* v = std::get_if<V>(&value(name));
    return v ? *v : V{};
  }
  void require_an_output() const;
  const TensorView& required_view(std::string_view name);
  void allocate();
  void check_memory() const;
  void lend_unread();

  const Contract& contract_;
  const std::vector<Attribute>& attributes_;
  Span<const TensorView> inputs_;
  Span<TensorView> outputs_;
  Host& host_;
  Symbols symbols_;
  DType type_;
  bool allocated_ = false;
  std::unique_ptr<char[]> unread_;  // required outputs that nobody asked for
};

// An operator: its contract, and the function that checks and computes, for each type of T.
struct Op {
  const Contract& (*contract)();
  void (*run_float)(Call&);
  void (*run_double)(Call&);

  void run(Call& call) const {
    try {
      (call.type() == DType::float64 ? run_double : run_float)(call);
    } catch (const NothingToCompute&) {
    }
  }
};

// The operators, compiled for the best instruction set that this processor has.
Span<const Op> ops();
// "baseline", "avx2" or "avx512"; the environment variable ONNXGRAD_ISA can lower it.
const char* instruction_set();

}  // namespace onnxgrad
