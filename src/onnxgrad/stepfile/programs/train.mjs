// Trains with @STEM@.onnx in Node.js, without any library but onnxruntime:
//
//   npm install onnxruntime-node
//   node @STEM@.train.mjs DATA_FOLDER [EPOCHS] [BATCH_SIZE]
//
// DATA_FOLDER holds one .npy file per input and target, with a row per example. The trained parameters are
// written to @STEM@.trained.safetensors; `onnxgrad merge model.onnx @STEM@.trained.safetensors -o tuned.onnx`
// puts them back into the model.
import fs from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import * as ort from "onnxruntime-node";

const STEP = @DESCRIPTION@;

const here = path.dirname(fileURLToPath(import.meta.url));
const [folder, epochs = "5", batchSize = "32"] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node @STEM@.train.mjs DATA_FOLDER [EPOCHS] [BATCH_SIZE]");
  process.exit(2);
}

const KINDS = {
  "<f4": ["float32", Float32Array], "<f8": ["float64", Float64Array],
  "<i4": ["int32", Int32Array], "<i8": ["int64", BigInt64Array], "|u1": ["uint8", Uint8Array], "|b1": ["bool", Uint8Array],
};

// A .npy file of rows in C order: { type, data, dims, width }, width the numbers per row.
function readNpy(file) {
  const bytes = fs.readFileSync(file);
  const length = bytes[6] === 1 ? bytes.readUInt16LE(8) : bytes.readUInt32LE(8);
  const start = (bytes[6] === 1 ? 10 : 12) + length;
  const header = bytes.toString("latin1", 10, start);
  const kind = KINDS[/'descr': '([^']+)'/.exec(header)[1]];
  if (!kind || /'fortran_order': True/.test(header)) throw new Error(`${file}: expected numbers in C order`);
  const dims = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").filter((d) => d.trim()).map(Number);
  const [type, Kind] = kind;
  const data = new Kind(bytes.buffer.slice(bytes.byteOffset + start, bytes.byteOffset + bytes.length));
  return { type, data, dims, width: dims.slice(1).reduce((a, b) => a * b, 1) };
}

// The chosen rows as a tensor.
function rowsOf(table, rows) {
  const data = new table.data.constructor(rows.length * table.width);
  rows.forEach((row, i) => data.set(table.data.subarray(row * table.width, (row + 1) * table.width), i * table.width));
  return new ort.Tensor(table.type, data, [rows.length, ...table.dims.slice(1)]);
}

// Lehmer's generator: the same order in every language.
function shuffled(count, epoch) {
  const rows = Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1, random = epoch + 1; i > 0; --i) {
    random = (random * 48271) % 2147483647;
    const j = random % (i + 1);
    [rows[i], rows[j]] = [rows[j], rows[i]];
  }
  return rows;
}

// The parameters in the safetensors format: the length of a JSON header, the header, the numbers.
function writeSafetensors(file, tensors) {
  const header = {}, parts = [];
  let at = 0;
  for (const [name, t] of Object.entries(tensors)) {
    const bytes = Buffer.from(t.data.buffer, t.data.byteOffset, t.data.byteLength);
    const dtype = { float32: "F32", float64: "F64" }[t.type];
    header[name] = { dtype, shape: t.dims, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
    parts.push(bytes);
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  fs.writeFileSync(file + ".part", Buffer.concat([length, text, ...parts]));
  fs.renameSync(file + ".part", file);
}

const step = await ort.InferenceSession.create(path.join(here, "@STEM@.onnx"));
const initial = await ort.InferenceSession.create(path.join(here, "@STEM@.init.onnx"));
const tables = {};
for (const name of [...STEP.batch, ...STEP.targets]) tables[name] = readNpy(path.join(folder, `${name}.npy`));
const count = Object.values(tables)[0].dims[0];
const kept = [...STEP.parameters, ...STEP.statistics, ...STEP.state];
let values = await initial.run({});

for (let epoch = 0, done = 0; epoch < Number(epochs); ++epoch) {
  const order = shuffled(count, epoch);
  let sum = 0;
  for (let start = 0; start < count; start += Number(batchSize)) {
    const rows = order.slice(start, start + Number(batchSize));
    const feeds = { ...values };
    for (const [name, table] of Object.entries(tables)) feeds[name] = rowsOf(table, rows);
    feeds.lr = new ort.Tensor("float32", [STEP.lr], []);
    feeds.step = new ort.Tensor("int64", [BigInt(done + 1)], []);
    if (STEP.settings.includes("dropout/key")) feeds["dropout/key"] = new ort.Tensor("int64", [0n, BigInt(done)], [2]);
    const results = await step.run(feeds);
    sum += Number(results[STEP.loss].data[0]) * rows.length;
    values = Object.fromEntries(kept.map((name) => [name, results[`new.${name}`]]));
    ++done;
  }
  console.log(`epoch ${epoch + 1}/${epochs}  loss ${(sum / count).toFixed(6)}`);
}
const trained = Object.fromEntries([...STEP.parameters, ...STEP.statistics].map((name) => [name, values[name]]));
writeSafetensors(path.join(here, "@STEM@.trained.safetensors"), trained);
console.log("wrote @STEM@.trained.safetensors");
