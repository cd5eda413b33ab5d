// Node: compiled JavaScript called by a builtin of V8 (sort). Argument: seconds.
console.log(process.pid);
const end = Date.now() + 1000 * Number(process.argv[2] ?? 1);
let sink = 0;

function burn(seed) {
  let x = seed | 1;
  for (let i = 0; i < 200000; i++) x = (Math.imul(x, 1103515245) + 12345) ^ (x >>> 7);
  return x;
}

function compareNumbers(left, right) {
  sink ^= burn(left);
  return left - right;
}

while (Date.now() < end) sink ^= [3, 1, 2].sort(compareNumbers)[0];
