// Loading of graphs: fetched by the page, decoded in a worker.

import { fetchGraph } from "../../api/client";
import type { GraphRequest } from "../../api/types";
import { GraphFormatError } from "../../graph/decode";
import type { Graph } from "../../graph/graph";
import { unpackGraph } from "../../graph/transfer";
import { WorkerClient } from "./worker_client";

const decoder = new WorkerClient();

/** Fetches and decodes a graph. Throws an ApiError, a `GraphFormatError`, or the signal's reason. */
export async function loadGraph(request: GraphRequest, signal: AbortSignal): Promise<Graph> {
  return decodeInWorker(await fetchGraph(request, { signal }), signal);
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
