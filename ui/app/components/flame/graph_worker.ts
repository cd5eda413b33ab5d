// Worker that decodes graphs and matches names, so that the page stays responsive.

import { decodeGraph } from "../../graph/decode";
import { matchNames, parseSearch } from "../../graph/search";
import {
  buffersOfGraph,
  type JoinedTexts,
  type PackedGraph,
  packGraph,
  splitTexts,
} from "../../graph/transfer";

export type WorkerRequest =
  | { readonly kind: "decode"; readonly id: number; readonly bytes: ArrayBuffer }
  | { readonly kind: "match"; readonly id: number; readonly names: JoinedTexts; readonly search: string };

export type WorkerResponse =
  | { readonly kind: "graph"; readonly id: number; readonly graph: PackedGraph }
  | { readonly kind: "matches"; readonly id: number; readonly flags: Uint8Array | undefined }
  | { readonly kind: "error"; readonly id: number; readonly message: string };

function respond(request: WorkerRequest): void {
  if (request.kind === "decode") {
    const graph = packGraph(decodeGraph(new Uint8Array(request.bytes)));
    send({ kind: "graph", id: request.id, graph }, buffersOfGraph(graph));
    return;
  }
  const flags = matchNames(splitTexts(request.names), parseSearch(request.search));
  send({ kind: "matches", id: request.id, flags }, []);
}

function send(response: WorkerResponse, buffers: ArrayBuffer[]): void {
  // The types of the page declare the `postMessage` of windows.
  (self as unknown as { postMessage(message: WorkerResponse, transfer: Transferable[]): void }).postMessage(
    response,
    buffers,
  );
}

addEventListener("message", (event: MessageEvent<WorkerRequest>) => {
  try {
    respond(event.data);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    send({ kind: "error", id: event.data.id, message }, []);
  }
});
