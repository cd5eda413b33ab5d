// Size and processor time of graphs of the reference set R-1k: ATHANOR_BIN=… node bench/server_bench.mjs
// Starts a server on a free port, pushes the set, and prints each figure beside its floor.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const ROUNDS = 20;
const CLOCK_TICK_MS = 10;
const RANGE_MS = 6 * 3600 * 1000;
const START_TIMEOUT_MS = 60_000;
const program = process.env.ATHANOR_BIN ?? "../target/release/athanor";
const query = {
  profileType: "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
  selector: "{}",
};

function freePort() {
  return new Promise((done) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

async function waitUntilReady(url) {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline) {
    const response = await fetch(`${url}/ready`).catch(() => undefined);
    if (response?.ok) return;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`the server at ${url} is not ready after ${START_TIMEOUT_MS} ms`);
}

/** Processor time of a process in milliseconds. */
function processorTime(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(")").pop().trim().split(" ");
  return (Number(fields[11]) + Number(fields[12])) * CLOCK_TICK_MS;
}

/** Mean processor and wall time of a call, and its last response. */
async function measure(pid, call) {
  await call();
  const startedAt = performance.now();
  const before = processorTime(pid);
  let body;
  for (let round = 0; round < ROUNDS; round++) body = await call();
  return {
    body,
    cpu: (processorTime(pid) - before) / ROUNDS,
    wall: (performance.now() - startedAt) / ROUNDS,
  };
}

function report(name, figure, floorName, floor, unit) {
  const ratio = floor > 0 ? (figure / floor).toFixed(2) : "-";
  console.log(
    `${name.padEnd(44)} ${figure.toFixed(1).padStart(9)} ${unit}   ${floorName} ${floor.toFixed(1)} ${unit}   ratio ${ratio}`,
  );
}

async function measureServer(url, pid) {
  const end = Date.now();
  const range = { start: String(end - RANGE_MS), end: String(end) };
  const call = (method, request, type) => async () => {
    const body = JSON.stringify(request);
    const headers = { "content-type": "application/json", "athanor-ui": "1", ...type };
    const response = await fetch(`${url}/${method}`, { method: "POST", headers, body });
    if (!response.ok) throw new Error(`${method}: ${response.status} ${await response.text()}`);
    return Buffer.from(await response.arrayBuffer());
  };
  const graph = { query: { ...query, ...range } };
  const merge = { profileTypeID: query.profileType, labelSelector: query.selector, ...range, maxNodes: "1" };
  const floor = await measure(pid, call("querier.v1.QuerierService/SelectMergeStacktraces", merge));
  const json = await measure(pid, call("athanor.v1.ExploreService/Graph", graph));
  const small = await measure(pid, call("athanor.v1.ExploreService/Graph", { ...graph, maxNodes: "1" }));
  const functions = await measure(pid, call("athanor.v1.ExploreService/Functions", graph));
  report("Graph, 65 536 nodes, JSON, processor time", json.cpu, "merge, one node", floor.cpu, "ms");
  report("Graph, one node, processor time", small.cpu, "merge, one node", floor.cpu, "ms");
  report("Functions, 100 rows, processor time", functions.cpu, "merge, one node", floor.cpu, "ms");
  report("Graph, JSON, bytes", json.body.length / 1024, "gzip -6", gzipSync(json.body).length / 1024, "KiB");
  const { encodeGraphRequest } = await import("./graph_request.mjs");
  const body = encodeGraphRequest(query, end - RANGE_MS, end);
  const proto = await measure(pid, async () => {
    const headers = { "content-type": "application/proto", "athanor-ui": "1" };
    const response = await fetch(`${url}/athanor.v1.ExploreService/Graph`, { method: "POST", headers, body });
    if (!response.ok) throw new Error(`Graph: ${response.status}`);
    return Buffer.from(await response.arrayBuffer());
  });
  report("Graph, 65 536 nodes, protobuf, processor time", proto.cpu, "merge, one node", floor.cpu, "ms");
  report(
    "Graph, protobuf, bytes",
    proto.body.length / 1024,
    "gzip -6",
    gzipSync(proto.body).length / 1024,
    "KiB",
  );
}

// The program takes variables that begin like this as settings.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ATHANOR_")));
const data = mkdtempSync(join(tmpdir(), "athanor-bench-"));
const port = await freePort();
const url = `http://127.0.0.1:${port}`;
const settings = ["--set", "limits.reject_older_than=0s"];
const server = spawn(program, ["serve", "--data", data, "--listen", `127.0.0.1:${port}`, ...settings], {
  stdio: ["ignore", "ignore", "inherit"],
  env,
});
try {
  await waitUntilReady(url);
  execFileSync(program, ["dev", "bench", "--dataset", "R-1k", "--merges", "1", "--url", url], {
    stdio: "inherit",
    env,
  });
  await measureServer(url, server.pid);
} finally {
  const isRunning = server.kill();
  if (isRunning) await new Promise((done) => server.once("exit", done));
  rmSync(data, { recursive: true, force: true });
}
