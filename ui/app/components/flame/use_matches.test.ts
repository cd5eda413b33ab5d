// Tests of matching in a worker.

import { beforeEach, expect, test, vi } from "vitest";

const workers: { isRunning: boolean; answer?: () => void }[] = [];

class FakeWorker {
  isRunning = true;
  answer?: () => void;
  private receive: ((event: unknown) => void) | undefined;

  constructor() {
    workers.push(this);
  }

  addEventListener(kind: string, listener: (event: unknown) => void) {
    if (kind === "message") this.receive = listener;
  }

  postMessage({ id }: { id: number }) {
    this.answer = () => this.receive?.({ data: { kind: "matches", id, flags: new Uint8Array([1]) } });
  }

  terminate() {
    this.isRunning = false;
  }
}

beforeEach(() => {
  workers.length = 0;
  vi.stubGlobal("Worker", FakeWorker);
  vi.stubGlobal("location", { pathname: "/ui/", search: "", hostname: "localhost" });
  vi.stubGlobal("document", { baseURI: "http://localhost/ui/", addEventListener: () => {} });
  vi.stubGlobal("history", { state: null });
});

test("worker of a pattern that is no longer wanted is stopped", async () => {
  const { matchInWorker } = await import("./use_matches");
  const { WorkerClient } = await import("./worker_client");
  const controller = new AbortController();
  const flags = matchInWorker(new WorkerClient(), ["aaa"], "/(a+)+$/", controller.signal);
  controller.abort();
  expect(await flags).toBeUndefined();
  expect(workers.map(({ isRunning }) => isRunning)).toEqual([false]);
});

test("worker that has answered stays for the next pattern", async () => {
  const { matchInWorker } = await import("./use_matches");
  const { WorkerClient } = await import("./worker_client");
  const client = new WorkerClient();
  for (const search of ["/a/", "/b/"]) {
    const controller = new AbortController();
    const flags = matchInWorker(client, ["a"], search, controller.signal);
    workers[0]?.answer?.();
    expect(await flags).toEqual(new Uint8Array([1]));
    controller.abort();
  }
  expect(workers.map(({ isRunning }) => isRunning)).toEqual([true]);
});
