// Page of the bench of drawing: decodes and draws random graphs with the view of Explore, in a real browser.

import { FlameView } from "../app/components/flame/flame_view";
import { WorkerClient } from "../app/components/flame/worker_client";
import { decodeGraph } from "../app/graph/decode";
import type { Graph } from "../app/graph/graph";
import { mergeSubtree } from "../app/graph/merge_subtree";
import { SeededRandom } from "../app/graph/testing/random";
import { unpackGraph } from "../app/graph/transfer";
import { encodeRandomTree } from "./random_graph";

const WIDTH_PIXELS = 1600;
const HEIGHT_PIXELS = 900;
const ROUNDS = 9;
const ZOOMS = 200;
const SUBTREE_NODES = 20_000;

/** Times of all rounds of drawing, in milliseconds. */
export interface DrawTimes {
  /** Decoding on this thread. */
  readonly decode: number[];
  /** From the decoded graph to its pixels. */
  readonly firstDraw: number[];
  /** From the bytes of the response, by the worker, to the pixels. */
  readonly firstPicture: number[];
  /** From a new range to the pixels, in frames of the browser. */
  readonly zoom: number[];
  /** From the fetched callees of a truncated node to the pixels. */
  readonly refine: number[];
  /** Rectangles of one color, as many as the first draw has boxes. */
  readonly drawFloor: number[];
}

interface Stage {
  readonly view: FlameView;
  readonly base: HTMLCanvasElement;
  readonly remove: () => void;
}

function createStage(): Stage {
  const scroller = document.createElement("div");
  const spacer = document.createElement("div");
  const base = document.createElement("canvas");
  const marks = document.createElement("canvas");
  scroller.style.cssText = `position:relative;width:${WIDTH_PIXELS}px;height:${HEIGHT_PIXELS}px;overflow:hidden auto`;
  spacer.append(base, marks);
  scroller.append(spacer);
  document.body.append(scroller);
  return { view: new FlameView({ scroller, spacer, base, marks }), base, remove: () => scroller.remove() };
}

/** Reads a pixel, which waits for all drawing. */
function flush(canvas: HTMLCanvasElement): void {
  canvas.getContext("2d")?.getImageData(0, 0, 1, 1);
}

function drawFirst({ view, base }: Stage, graph: Graph): void {
  view.setGraph(graph);
  view.setSize(WIDTH_PIXELS, HEIGHT_PIXELS);
  flush(base);
}

async function measureRounds(run: (round: number) => Promise<number> | number): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) times.push(await run(round));
  return times;
}

async function measureFirstPictures(bytes: Uint8Array): Promise<number[]> {
  const client = new WorkerClient();
  const { signal } = new AbortController();
  const times = await measureRounds(async () => {
    const copy = bytes.slice().buffer;
    const stage = createStage();
    const started = performance.now();
    const response = await client.send({ kind: "decode", bytes: copy }, [copy], signal);
    if (response.kind !== "graph") throw new Error(`the worker sent ${response.kind}`);
    drawFirst(stage, unpackGraph(response.graph));
    const time = performance.now() - started;
    stage.remove();
    return time;
  });
  client.stop("the bench ends");
  // The first round starts the worker, which the page does with its first graph.
  return times;
}

/** Zooms to random nodes and by random factors. Callbacks of a frame run in order: before, the view's own, after. */
async function measureZooms({ view, base }: Stage, graph: Graph): Promise<number[]> {
  const random = new SeededRandom(7);
  const times: number[] = [];
  for (let round = 0; round < ZOOMS; round++) {
    let started = 0;
    requestAnimationFrame(() => {
      started = performance.now();
    });
    const { from, to } = view.rangeOf(random.below(graph.nodeCount));
    const middle = (from + to) / 2;
    const width = Math.max(to - from, 10 ** (-4 * random.next()));
    view.setRange({ from: middle - width / 2, to: middle + width / 2 });
    await new Promise<void>((done) =>
      requestAnimationFrame(() => {
        flush(base);
        times.push(performance.now() - started);
        done();
      }),
    );
  }
  return times;
}

async function measureRefinements(graph: Graph): Promise<number[]> {
  const subtree = decodeGraph(encodeRandomTree(SUBTREE_NODES));
  const truncated: number[] = [];
  for (let node = 1; node < graph.nodeCount && truncated.length < ROUNDS; node++) {
    if ((graph.truncated[node] as number) > 0) truncated.push(node);
  }
  const stage = createStage();
  drawFirst(stage, graph);
  const times = await measureRounds((round) => {
    const started = performance.now();
    stage.view.setGraph(mergeSubtree(graph, truncated[round % truncated.length] as number, subtree));
    stage.view.drawNow();
    flush(stage.base);
    return performance.now() - started;
  });
  stage.remove();
  return times;
}

function drawRectangles(canvas: HTMLCanvasElement, count: number): number {
  const context = canvas.getContext("2d");
  const started = performance.now();
  for (let index = 0; index < count; index++) {
    context?.fillRect((index * 7) % WIDTH_PIXELS, (index * 20) % HEIGHT_PIXELS, 6, 19);
  }
  flush(canvas);
  return performance.now() - started;
}

async function measureDraws(nodeCount: number): Promise<DrawTimes> {
  const bytes = encodeRandomTree(nodeCount);
  const decode: number[] = [];
  const drawFloor: number[] = [];
  const firstDraw = await measureRounds(() => {
    const decodeStarted = performance.now();
    const graph = decodeGraph(bytes);
    decode.push(performance.now() - decodeStarted);
    const stage = createStage();
    const started = performance.now();
    drawFirst(stage, graph);
    const time = performance.now() - started;
    drawFloor.push(drawRectangles(stage.base, stage.view.boxCount));
    stage.remove();
    return time;
  });
  const graph = decodeGraph(bytes);
  const stage = createStage();
  drawFirst(stage, graph);
  const zoom = await measureZooms(stage, graph);
  stage.remove();
  const firstPicture = await measureFirstPictures(bytes);
  const refine = await measureRefinements(graph);
  return { decode, firstDraw, firstPicture, zoom, refine, drawFloor };
}

Object.assign(globalThis, { measureDraws });
