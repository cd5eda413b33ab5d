// Bench of decoding and layout in Node. Each time stands beside a floor: a plain loop over the same bytes.

import { decodeGraph } from "../app/graph/decode";
import type { Graph } from "../app/graph/graph";
import { BoxList, layOutBoxes, prepareLayout, rangeOfNode } from "../app/graph/layout";
import { matchNames, parseSearch } from "../app/graph/search";
import { SeededRandom } from "../app/graph/testing/random";
import { buffersOfGraph, packGraph, unpackGraph } from "../app/graph/transfer";
import { encodeRandomTree } from "./random_graph";
import { median, percentile, report, reportPart } from "./report";

const ROUNDS = 30;
const WIDTH_PIXELS = 1600;
const HEIGHT_PIXELS = 900;
const ROW_PIXELS = 20;

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
  return { fastest: Math.min(...times), median: median(times), p95: percentile(times, 0.95) };
}

function reportTiming(name: string, timing: Timing, floor: Timing, goal?: number): void {
  const note = `median ${timing.median.toFixed(2)}, p95 ${timing.p95.toFixed(2)}`;
  const figure = { name, measured: timing.fastest, unit: "ms", floor: floor.fastest, note };
  report(goal === undefined ? figure : { ...figure, goal });
}

/** Sum of all bytes: the least that reading them costs. */
function sumBytes(bytes: Uint8Array): number {
  let sum = 0;
  for (let index = 0; index < bytes.length; index++) sum += bytes[index] as number;
  return sum;
}

function benchLayout(graph: Graph, floor: Timing): void {
  const columns = prepareLayout(graph);
  reportTiming(
    "prepare layout",
    measure(() => prepareLayout(graph)),
    floor,
  );
  const boxes = new BoxList();
  const whole = graph.total[0] as number;
  const rows = { firstDepth: 0, lastDepth: Math.ceil(HEIGHT_PIXELS / ROW_PIXELS) };
  const viewport = { widthPixels: WIDTH_PIXELS, ...rows };
  reportTiming(
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
  reportTiming("lay out a random zoom", measure(zoom), floor);
}

function benchGraph(label: string, nodeCount: number, decodeGoal?: number): void {
  const bytes = encodeRandomTree(nodeCount);
  const floor = measure(() => sumBytes(bytes));
  reportPart(`${label}, ${bytes.length} bytes; fastest of ${ROUNDS}`);
  const graph = decodeGraph(bytes);
  reportTiming(
    "decode",
    measure(() => decodeGraph(bytes)),
    floor,
    decodeGoal,
  );
  const packed = packGraph(graph);
  reportTiming(
    "receive from the worker",
    measure(() => unpackGraph(packed)),
    floor,
  );
  if (buffersOfGraph(packed).length === 0) throw new Error("a graph has no buffers");
  benchLayout(graph, floor);
  const pattern = parseSearch("/Method9.*7$/");
  reportTiming(
    "match a regex",
    measure(() => matchNames(graph.names, pattern)),
    floor,
  );
}

/** Goal of decoding 100 000 nodes. */
const DECODE_GOAL_MS = 8;

benchGraph("100 000 nodes", 100_000, DECODE_GOAL_MS);
benchGraph("1 000 000 nodes", 1_000_000);
