// Loading of graphs: fetched by the page, decoded in a worker.

import { fetchGraph } from "../../api/client";
import { GraphFormatError } from "../../graph/decode";
import type { Graph } from "../../graph/graph";
import { unpackGraph } from "../../graph/transfer";
import type { SubtreeLoader } from "./expansion";
import { type GraphOrigin, originOfGraph, setGraphOrigin } from "./graph_origin";
import { WorkerClient } from "./worker_client";

const decoder = new WorkerClient();

/** Fetches and decodes a graph. Throws an ApiError, a `GraphFormatError`, or the signal's reason. */
export async function loadGraph(origin: GraphOrigin, signal: AbortSignal): Promise<Graph> {
  const { tenant, request } = origin;
  const graph = await decodeInWorker(await fetchGraph(request, { signal, tenant }), signal);
  setGraphOrigin(graph, origin);
  return graph;
}

/** Returns the loader of callees of a graph. The page may show another query already. */
export function subtreeLoaderOf(base: Graph): SubtreeLoader | null {
  const origin = originOfGraph(base);
  if (origin === undefined) return null;
  const { tenant, request } = origin;
  return (path, skip, signal) => loadGraph({ tenant, request: { ...request, path, skip } }, signal);
}

/** Decodes the bytes of a response. The buffer moves to the worker. */
export async function decodeInWorker(bytes: ArrayBuffer, signal: AbortSignal): Promise<Graph> {
  try {
    const response = await decoder.send({ kind: "decode", bytes }, [bytes], signal);
    if (response.kind === "graph") return unpackGraph(response.graph);
    throw new Error(`the graph worker sent ${response.kind}`);
  } catch (error) {
    if (signal.aborted) throw error;
    throw new GraphFormatError(`cannot decode the graph: ${error instanceof Error ? error.message : error}`);
  }
}
