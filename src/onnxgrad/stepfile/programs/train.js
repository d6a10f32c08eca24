const KINDS = {
  "<f4": ["float32", Float32Array], "<f8": ["float64", Float64Array],
  "<i4": ["int32", Int32Array], "<i8": ["int64", BigInt64Array], "|u1": ["uint8", Uint8Array], "|b1": ["bool", Uint8Array],
};

// A .npy file of rows in C order: { type, data, dims, width }, width the numbers per row.
function tableOf(file, buffer) {
  const view = new DataView(buffer), first = view.getUint8(6) === 1;
  const start = (first ? 10 : 12) + (first ? view.getUint16(8, true) : view.getUint32(8, true));
  const header = new TextDecoder("latin1").decode(buffer.slice(10, start));
  const kind = KINDS[/'descr': '([^']+)'/.exec(header)[1]];
  if (!kind || /'fortran_order': True/.test(header)) throw new Error(`${file}: expected numbers in C order`);
  const dims = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").filter((d) => d.trim()).map(Number);
  const [type, Kind] = kind;
  return { type, data: new Kind(buffer.slice(start)), dims, width: dims.slice(1).reduce((a, b) => a * b, 1) };
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

// Trains from the values that `initial` gives, and returns the last ones.
async function train(step, initial, tables, epochs, batchSize, say) {
  const count = Object.values(tables)[0].dims[0];
  const kept = [...STEP.parameters, ...STEP.statistics, ...STEP.state];
  let values = await initial.run({});
  for (let epoch = 0, done = 0; epoch < epochs; ++epoch) {
    const order = shuffled(count, epoch);
    let sum = 0;
    for (let start = 0; start < count; start += batchSize) {
      const rows = order.slice(start, start + batchSize);
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
    say(`epoch ${epoch + 1}/${epochs}  loss ${(sum / count).toFixed(6)}`);
  }
  return values;
}

// The trained parameters in the safetensors format: the length of a JSON header, the header, the numbers.
function safetensors(values) {
  const header = {}, parts = [];
  let at = 0;
  for (const name of [...STEP.parameters, ...STEP.statistics]) {
    const t = values[name], bytes = new Uint8Array(t.data.buffer, t.data.byteOffset, t.data.byteLength);
    const dtype = { float32: "F32", float64: "F64" }[t.type];
    header[name] = { dtype, shape: t.dims, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
    parts.push(bytes);
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = new DataView(new ArrayBuffer(8));
  length.setBigUint64(0, BigInt(text.length), true);
  return [new Uint8Array(length.buffer), text, ...parts];
}
