// Bench of decoding and layout. Each time stands beside a floor: a plain loop over the same bytes.

import { decodeGraph } from "../app/graph/decode";
import type { Graph } from "../app/graph/graph";
import { BoxList, layOutBoxes, prepareLayout, rangeOfNode } from "../app/graph/layout";
import { matchNames, parseSearch } from "../app/graph/search";
import { encodeResponse } from "../app/graph/testing/encode";
import { SeededRandom } from "../app/graph/testing/random";
import { buffersOfGraph, packGraph, unpackGraph } from "../app/graph/transfer";

const ROUNDS = 30;
const WIDTH_PIXELS = 1600;
const HEIGHT_PIXELS = 900;
const ROW_PIXELS = 20;
const NAMES_PER_NODE = 0.1;

/** Columns of a random tree. */
interface RandomTree {
  readonly callees: number[];
  readonly self: bigint[];
}

const MAX_DEPTH = 60;
const ROOT_WEIGHT = 1e9;

/** Appends a subtree. Its weight and its nodes are split among the callees by random shares, the heaviest first. */
function appendSubtree(
  tree: RandomTree,
  random: SeededRandom,
  nodes: number,
  weight: number,
  depth: number,
): void {
  const index = tree.callees.push(0) - 1;
  let rest = nodes - 1;
  const selfWeight = rest === 0 ? weight : Math.floor(weight * random.next() * 0.1);
  tree.self.push(BigInt(Math.floor(selfWeight)));
  if (rest === 0) return;
  const count = depth >= MAX_DEPTH ? rest : Math.min(rest, 1 + random.below(4));
  const shares = Array.from({ length: count }, () => random.next() ** 2 + 0.01).sort(
    (first, second) => second - first,
  );
  const sum = shares.reduce((total, share) => total + share, 0);
  tree.callees[index] = count;
  for (let callee = 0; callee < count; callee++) {
    const share = (shares[callee] as number) / sum;
    const wanted = callee === count - 1 ? rest : Math.round((nodes - 1) * share);
    const given = Math.max(1, Math.min(wanted, rest - (count - 1 - callee)));
    rest -= given;
    appendSubtree(tree, random, given, (weight - selfWeight) * share, depth + 1);
  }
}

function encodeRandomTree(nodeCount: number): Uint8Array {
  const random = new SeededRandom(nodeCount);
  const nameCount = Math.ceil(nodeCount * NAMES_PER_NODE);
  const tree: RandomTree = { callees: [], self: [] };
  appendSubtree(tree, random, nodeCount, ROOT_WEIGHT, 0);
  const { callees, self } = tree;
  const name = callees.map((_, node) => (node === 0 ? 0 : 1 + random.below(nameCount - 1)));
  const names = Array.from({ length: nameCount }, (_, index) =>
    index === 0 ? "" : `github.com/acme/shop/package${index % 97}.(*Type${index % 31}).Method${index}`,
  );
  return encodeResponse({
    callees,
    name,
    self,
    truncated: callees.map(() => (random.below(20) === 0 ? BigInt(random.below(1000)) : 0n)),
    divisor: 10_000_000n,
    names,
    nameFile: names.map((_, index) => (index === 0 ? 0 : 1 + (index % 500))),
    nameBinary: names.map(() => 0),
    namePackage: names.map((_, index) => (index === 0 ? 0 : 1 + (index % 97))),
    nameLine: names.map((_, index) => index % 4000),
    files: ["", ...Array.from({ length: 500 }, (_, index) => `/src/shop/file${index}.go`)],
    binaries: ["", "/usr/bin/shop"],
    packages: ["", ...Array.from({ length: 97 }, (_, index) => `github.com/acme/shop/package${index}`)],
    total: 0n,
    unit: "nanoseconds",
    period: 10_000_000n,
    profiles: 1n,
    fullNodes: BigInt(nodeCount),
    rootCallees: 8n,
    warnings: [],
    averagedProfiles: 0n,
    resolution: "raw",
  });
}

interface Timing {
  readonly fastest: number;
  readonly median: number;
  readonly p95: number;
}

function measure(run: (round: number) => void): Timing {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const started = performance.now();
    run(round);
    times.push(performance.now() - started);
  }
  times.sort((first, second) => first - second);
  return {
    fastest: times[0] as number,
    median: times[ROUNDS >> 1] as number,
    p95: times[Math.floor(ROUNDS * 0.95)] as number,
  };
}

function report(label: string, timing: Timing, floor: Timing): void {
  const { fastest, median, p95 } = timing;
  const numbers = [fastest, median, p95].map((time) => time.toFixed(2).padStart(8)).join(" ");
  const ratio = (fastest / floor.fastest).toFixed(1).padStart(6);
  console.log(`${label.padEnd(40)} ${numbers} ${ratio}`);
}

/** Sum of all bytes: the least that reading them costs. */
function sumBytes(bytes: Uint8Array): number {
  let sum = 0;
  for (let index = 0; index < bytes.length; index++) sum += bytes[index] as number;
  return sum;
}

function benchLayout(graph: Graph, floor: Timing): void {
  const columns = prepareLayout(graph);
  report(
    "prepare layout",
    measure(() => prepareLayout(graph)),
    floor,
  );
  const boxes = new BoxList();
  const whole = graph.total[0] as number;
  const rows = { firstDepth: 0, lastDepth: Math.ceil(HEIGHT_PIXELS / ROW_PIXELS) };
  const viewport = { widthPixels: WIDTH_PIXELS, ...rows };
  report(
    "lay out all",
    measure(() => layOutBoxes(graph, columns, { from: 0, to: whole, ...viewport }, boxes)),
    floor,
  );
  console.log(`  ${boxes.count} boxes of ${graph.nodeCount} nodes at ${WIDTH_PIXELS} × ${HEIGHT_PIXELS}`);
  const random = new SeededRandom(1);
  const zoom = () => {
    const { from, to } = rangeOfNode(graph, columns, random.below(graph.nodeCount));
    if (to > from) layOutBoxes(graph, columns, { from, to, ...viewport }, boxes);
  };
  report("lay out a random zoom", measure(zoom), floor);
}

function benchGraph(label: string, nodeCount: number): void {
  const bytes = encodeRandomTree(nodeCount);
  const floor = measure(() => sumBytes(bytes));
  console.log(`\n${label}, ${bytes.length} bytes: milliseconds (fastest, median, p95), times the floor`);
  report("floor: sum of all bytes", floor, floor);
  const graph = decodeGraph(bytes);
  report(
    "decode",
    measure(() => decodeGraph(bytes)),
    floor,
  );
  const packed = packGraph(graph);
  report(
    "receive from the worker",
    measure(() => unpackGraph(packed)),
    floor,
  );
  if (buffersOfGraph(packed).length === 0) throw new Error("a graph has no buffers");
  benchLayout(graph, floor);
  const pattern = parseSearch("/Method9.*7$/");
  report(
    "match a regex",
    measure(() => matchNames(graph.names, pattern)),
    floor,
  );
}

benchGraph("100 000 nodes", 100_000);
benchGraph("1 000 000 nodes", 1_000_000);
