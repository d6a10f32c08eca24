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

@TRAINING@
function readNpy(file) {
  const bytes = fs.readFileSync(file);
  return tableOf(file, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

const step = await ort.InferenceSession.create(path.join(here, "@STEM@.onnx"));
const initial = await ort.InferenceSession.create(path.join(here, "@STEM@.init.onnx"));
const tables = {};
for (const name of [...STEP.batch, ...STEP.targets]) tables[name] = readNpy(path.join(folder, `${name}.npy`));
const values = await train(step, initial, tables, Number(epochs), Number(batchSize), console.log);
const file = path.join(here, "@STEM@.trained.safetensors");
fs.writeFileSync(file + ".part", Buffer.concat(safetensors(values)));
fs.renameSync(file + ".part", file);
console.log("wrote @STEM@.trained.safetensors");
