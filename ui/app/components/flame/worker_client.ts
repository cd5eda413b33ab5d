// Client of the graph worker: one promise a request.

import type { WorkerRequest, WorkerResponse } from "./graph_worker";

interface PendingRequest {
  readonly resolve: (response: WorkerResponse) => void;
  readonly reject: (error: Error) => void;
}

/** Request without the number that the client gives it. */
type RequestBody<T> = T extends WorkerRequest ? Omit<T, "id"> : never;

/** Worker that is started with its first request, and again after it was stopped. */
export class WorkerClient {
  private worker: Worker | undefined;
  private nextId = 1;
  private readonly pending = new Map<number, PendingRequest>();

  /** Sends a request. Rejects with the worker's error, or with the signal's reason. */
  send(
    body: RequestBody<WorkerRequest>,
    transfer: Transferable[],
    signal: AbortSignal,
  ): Promise<WorkerResponse> {
    signal.throwIfAborted();
    const id = this.nextId++;
    const worker = this.start();
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.pending.delete(id);
        reject(signal.reason as Error);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      const finish = () => signal.removeEventListener("abort", onAbort);
      this.pending.set(id, {
        resolve: (response) => {
          finish();
          resolve(response);
        },
        reject: (error) => {
          finish();
          reject(error);
        },
      });
      worker.postMessage({ ...body, id }, transfer);
    });
  }

  /** Ends the worker, whatever it does. Rejects its requests. */
  stop(reason: string): void {
    this.worker?.terminate();
    this.worker = undefined;
    for (const request of this.pending.values()) request.reject(new Error(reason));
    this.pending.clear();
  }

  private start(): Worker {
    if (this.worker !== undefined) return this.worker;
    const worker = new Worker(new URL("./graph_worker.ts", import.meta.url), { type: "module" });
    worker.addEventListener("message", (event: MessageEvent<WorkerResponse>) => this.receive(event.data));
    worker.addEventListener("error", () => this.stop("the graph worker failed to start"));
    this.worker = worker;
    return worker;
  }

  private receive(response: WorkerResponse): void {
    const request = this.pending.get(response.id);
    this.pending.delete(response.id);
    if (request === undefined) return;
    if (response.kind === "error") request.reject(new Error(response.message));
    else request.resolve(response);
  }
}
