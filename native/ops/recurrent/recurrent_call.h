// What LSTM and GRU share before any work begins: their contracts, and the checks of a call.
#pragma once
#include "ops/recurrent/recurrent_activation.h"

namespace onnxgrad::ONNXGRAD_ISA {

// S steps, N rows (the batch), I inputs, H hidden units, D directions.
struct RecurrentShape {
  Dim S, N, I, H, D;
};

// What tells the contracts of one cell from those of the other.
struct CellSpec {
  Dim gates;
  const char* order;            // of the gates
  const char *flag, *flag_doc;  // the attribute that only this cell has, 0 or 1
  Strings functions;            // its standard activations
};

template <class V> V attribute_or(const Contract& c, const std::vector<Attribute>& values,
                                  const char* name, V absent) {
  const V* v = std::get_if<V>(&values[static_cast<std::size_t>(c.attribute_index(name))]);
  return v ? *v : absent;
}

// The activations of every direction, from the attributes of a node.
inline std::vector<Activation> activations_of(const Contract& c,
                                              const std::vector<Attribute>& values,
                                              const Strings& defaults) {
  const bool both = attribute_or<std::string>(c, values, "direction", "") == "bidirectional";
  return parse_activations(c, attribute_or(c, values, "activations", Strings{}),
                           attribute_or(c, values, "activation_alpha", Floats{}),
                           attribute_or(c, values, "activation_beta", Floats{}), defaults,
                           both ? 2 : 1);
}

// What is wrong with the attributes alone is said when a node is created.
template <const CellSpec& (*spec)(), bool needs_slopes>
void check_recurrent_attributes(const Contract& c, const std::vector<Attribute>& values) {
  const char* flag = spec().flag;
  const std::int64_t on = attribute_or(c, values, flag, std::int64_t(0));
  if (on != 0 && on != 1) c.fail(flag + (" is " + std::to_string(on)) + ", expected 0 or 1");
  const float clip = attribute_or(c, values, "clip", 0.f);
  if (!(clip >= 0)) c.fail("clip is " + to_string(Attribute(clip)) + ", expected 0 or more");
  if (attribute_or(c, values, "activations", Strings{}).empty()) return;
  const std::vector<Activation> activations = activations_of(c, values, spec().functions);
  if (needs_slopes) require_slopes(c, activations);
}

// The attributes and the inputs X, W and R, which come first in every contract.
template <const CellSpec& (*spec)(), bool needs_slopes>
Contract recurrent_contract(const char* name) {
  const std::string gates = std::to_string(spec().gates);
  return Contract(name)
      .accuracy(Measure::rms, 2e-6, 1e-13)
      .check(&check_recurrent_attributes<spec, needs_slopes>)
      .attr("activations", Kind::texts,
            "functions of ONNX's list, for each direction; the standard ones when absent")
      .attr("activation_alpha", Kind::reals,
            "consumed in order by the functions that take an alpha")
      .attr("activation_beta", Kind::reals, "consumed in order by the functions that take a beta")
      .attr("clip", Kind::real,
            "pre-activations are limited to [-clip, clip]; a limited one passes no gradient")
      .attr("direction", "forward", {"forward", "reverse", "bidirectional"},
            "the order of the steps")
      .attr("hidden_size", Kind::integer, "H; follows from R, and must agree with it when given")
      .attr(spec().flag, 0, spec().flag_doc)
      .input("X", "T[S, N, I]", "the input sequences, time first")
      .input("W", "T[D, " + gates + "*H, I]",
             std::string("input weights, gates in the order ") + spec().order)
      .input("R", "T[D, " + gates + "*H, H]", "recurrent weights");
}
inline Contract& add_bias(Contract& c, const CellSpec& spec) {
  return c.optional("B", "T[D, " + std::to_string(2 * spec.gates) + "*H]",
                    "biases Wb, then Rb; zeros when absent");
}
inline Contract& add_lengths_and_state(Contract& c) {
  return c.optional("SL", "int32[N]", "the length of each row; S when absent")
      .optional("H0", "T[D, N, H]", "initial hidden state; zeros when absent");
}
inline Contract& add_hidden_states(Contract& c) {
  return c
      .optional_output("HAll", "T[S, D, N, H]",
                       "the hidden state of every step; zeros past a row's length")
      .optional_output("Ht", "T[D, N, H]",
                       "the hidden state after the last step; zeros for an empty row");
}
// What every gradient gives; LSTMGrad adds dC0 and dP.
inline Contract& add_gradients(Contract& c, const CellSpec& spec) {
  const std::string gates = std::to_string(spec.gates);
  return c.summary("Gradient of " + c.name().substr(0, c.name().size() - 4) + "Training.")
      .formula(
          "da = the chain rule through the gates; dX = da·W, dW = Σ daᵀ·X, dR = Σ daᵀ·H[t−1], dB = "
          "Σ da")
      .optional_output("dX", "T[S, N, I]", "gradient of X")
      .optional_output("dW", "T[D, " + gates + "*H, I]", "gradient of W")
      .optional_output("dR", "T[D, " + gates + "*H, H]", "gradient of R")
      .optional_output("dB", "T[D, " + std::to_string(2 * spec.gates) + "*H]",
                       "gradient of B, at zero when there was none")
      .optional_output("dH0", "T[D, N, H]", "gradient of H0, at zero when there was none");
}

// Everything about a call that does not depend on the cell.
struct RecurrentCall {
  RecurrentShape shape;
  std::vector<Activation> activations;  // all directions, one after the other
  bool has_clip, standard;              // standard: the default activations, and no clip
  float clip;
  bool starts_at_the_end[2];  // of each direction
};

// Also a list that names the standard functions: none of them has a parameter.
inline bool are_standard(const std::vector<Activation>& activations, const Strings& defaults) {
  for (std::size_t i = 0; i < activations.size(); ++i)
    for (const FunctionSpec& spec : function_specs())
      if (spec.function == activations[i].function && defaults[i % defaults.size()] != spec.name)
        return false;
  return true;
}

// `lists_standard`: the activations are listed where they are the standard ones, too.
inline RecurrentCall prepare_recurrent(const Call& call, const Strings& defaults,
                                       bool lists_standard) {
  const std::string& direction = call.text("direction");
  const Dim D = direction == "bidirectional" ? 2 : 1;
  if (call.dim("D") != D)
    call.fail("input W has shape " + to_string(call.shape("W")) + ", expected " +
              std::to_string(D) + " as its first dim for direction " + direction);
  const RecurrentShape shape{call.dim("S"), call.dim("N"), call.dim("I"), call.dim("H"), D};
  if (call.given("hidden_size") && call.integer("hidden_size") != shape.H)
    call.fail("hidden_size is " + std::to_string(call.integer("hidden_size")) + ", expected " +
              std::to_string(shape.H) + " (from R of shape " + to_string(call.shape("R")) + ")");
  RecurrentCall r{shape,
                  {},
                  call.given("clip"),
                  false,
                  call.given("clip") ? call.real("clip") : 0.f,
                  {direction == "reverse", true}};
  const Strings names = call.texts("activations");
  r.standard = !r.has_clip && names.empty();
  if (r.standard && !lists_standard) return r;
  r.activations = parse_activations(call.contract(), names, call.reals("activation_alpha"),
                                    call.reals("activation_beta"), defaults, D);
  r.standard = !r.has_clip && are_standard(r.activations, defaults);
  return r;
}

// A gradient without any cotangent would be zero: a mistake in the graph, not something to compute.
inline void require_cotangent(const Call& call, std::initializer_list<const char*> names) {
  std::string list;
  for (const char* name : names) {
    if (call.has(name)) return;
    list += (list.empty() ? "" : name == *(names.end() - 1) ? " or " : ", ") + std::string(name);
  }
  call.fail("no cotangent is given, expected at least one of " + list);
}

}  // namespace onnxgrad::ONNXGRAD_ISA
