// Golden vectors in JavaScript, no library: node reader.js CASE.npz
// An .npz here is an uncompressed zip of .npy members, little-endian, in C order.
"use strict";
const fs = require("fs");

// One member: {type, shape, data}, whole numbers and flags as numbers.
function readNpy(bytes) {
  if (bytes.toString("latin1", 0, 8) !== "\x93NUMPY\x01\x00") throw new Error("not an .npy of version 1.0");
  const start = 10 + bytes.readUInt16LE(8);
  const head = bytes.toString("latin1", 10, start);
  const type = head.match(/'descr': '(.+?)'/)[1];
  const shape = head.match(/\((.*?)\)/)[1].split(",").filter((n) => n.trim()).map(Number);
  const count = shape.reduce((a, b) => a * b, 1);
  const at = {
    "<f8": (k) => bytes.readDoubleLE(start + 8 * k),
    "<i8": (k) => Number(bytes.readBigInt64LE(start + 8 * k)),
    "|b1": (k) => bytes.readUInt8(start + k),
  }[type];
  return { type, shape, data: Array.from({ length: count }, (_, k) => at(k)) };
}

// name → array; names begin with "in." or "out.".
function read(path) {
  const bytes = fs.readFileSync(path);
  if (bytes.toString("latin1", 0, 4) !== "PK\x03\x04") throw new Error(`${path}: no .npz that can be read`);
  const out = {};
  for (let i = 0; bytes.readUInt32LE(i) === 0x04034b50; ) { // a member's local header
    const size = bytes.readUInt32LE(i + 18), n = bytes.readUInt16LE(i + 26), m = bytes.readUInt16LE(i + 28);
    const name = bytes.toString("latin1", i + 30, i + 30 + n - 4);
    i += 30 + n + m + size;
    out[name] = readNpy(bytes.subarray(i - size, i));
  }
  return out;
}

module.exports = { read };
if (require.main === module)
  try {
    if (process.argv.length !== 3) throw new Error("usage: node reader.js CASE.npz");
    for (const [name, a] of Object.entries(read(process.argv[2])))
      console.log([name, a.type, a.shape.join("x") || "-", a.data.join(" ")].join("\t"));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
