// Size and processor time of graphs of R-1k, beside a merge of the same profiles into a tree of one node.

import { gzipSync } from "node:zlib";
import { encodeGraphRequest } from "./graph_request.mjs";
import { report, reportPart } from "./report";

const ROUNDS = 20;
const KIB = 1024;
const RANGE_MS = 6 * 3600 * 1000;
const QUERY = { profileType: "process_cpu:cpu:nanoseconds:cpu:nanoseconds", selector: "{}" };

/** Mean processor time of a call, and its last response. */
async function measure(server, call) {
  await call();
  const before = server.processorTime();
  let body;
  for (let round = 0; round < ROUNDS; round++) body = await call();
  return { body, cpu: (server.processorTime() - before) / ROUNDS };
}

export async function measureGraphs(server) {
  const end = Date.now();
  const range = { start: String(end - RANGE_MS), end: String(end) };
  const post = async (method, type, body) => {
    const headers = { "content-type": `application/${type}`, "athanor-ui": "1" };
    const response = await fetch(`${server.url}/${method}`, { method: "POST", headers, body });
    if (!response.ok) throw new Error(`${method}: ${response.status} ${await response.text()}`);
    return Buffer.from(await response.arrayBuffer());
  };
  const json = (method, request) => () => post(method, "json", JSON.stringify(request));
  const graph = { query: { ...QUERY, ...range } };
  const merge = { profileTypeID: QUERY.profileType, labelSelector: QUERY.selector, ...range, maxNodes: "1" };
  const floor = await measure(server, json("querier.v1.QuerierService/SelectMergeStacktraces", merge));
  const proto = await measure(server, () =>
    post("athanor.v1.ExploreService/Graph", "proto", encodeGraphRequest(QUERY, end - RANGE_MS, end)),
  );
  const small = await measure(server, json("athanor.v1.ExploreService/Graph", { ...graph, maxNodes: "1" }));
  const functions = await measure(server, json("athanor.v1.ExploreService/Functions", graph));
  const text = await json("athanor.v1.ExploreService/Graph", graph)();
  reportPart("Graph of R-1k, up to 65 536 nodes");
  const size = (name, bytes, goal) => report({ name, measured: bytes / KIB, unit: "KiB", goal });
  size("protobuf", proto.body.length, 520);
  size("protobuf, gzip -6", gzipSync(proto.body).length, 200);
  size("JSON", text.length);
  const { fullNodes, callees } = JSON.parse(text);
  report({ name: "nodes", measured: callees.length, unit: "", note: `of ${fullNodes}` });
  const cpu = (name, measured, goal) =>
    report({ name, measured, unit: "ms", goal, floor: floor.cpu, note: "floor: merge into one node" });
  cpu("processor time of a response, protobuf", proto.cpu, 8);
  cpu("processor time of a graph of one node", small.cpu);
  cpu("processor time of Functions, 100 rows", functions.cpu);
}
