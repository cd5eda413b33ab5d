// Tests of queries that follow signals.
import { signal } from "@preact/signals";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { now, refresh } from "../url/clock";
import { currentTenant, setCurrentTenant } from "../url/tenant";
import { setToken, token } from "./credentials";
import { ApiError } from "./errors";
import { liveQuery } from "./live_query";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const settle = () => vi.advanceTimersByTimeAsync(0);

function overload(): ApiError {
  return new ApiError({ status: 429, code: "resource_exhausted", message: "too many", retryAfterSeconds: 3 });
}

test("newer request aborts the older one, and keeps its value", async () => {
  const input = signal(1);
  const aborted: number[] = [];
  const query = liveQuery(
    () => ({ number: input.value }),
    ({ number }, abort) =>
      new Promise<number>((resolve) => {
        abort.addEventListener("abort", () => aborted.push(number));
        setTimeout(() => resolve(number), 100);
      }),
  );
  await vi.advanceTimersByTimeAsync(100);
  expect(query.state.value).toMatchObject({ kind: "done", value: 1 });
  input.value = 2;
  expect(query.state.value).toMatchObject({ kind: "loading", value: 1 });
  await vi.advanceTimersByTimeAsync(50);
  input.value = 3;
  await vi.advanceTimersByTimeAsync(100);
  expect(aborted).toContain(2);
  expect(query.state.value).toMatchObject({ kind: "done", value: 3 });
  query.dispose();
});

test("equal request does not run a second time, but a refresh runs it", async () => {
  const input = signal({ a: 1 });
  const run = vi.fn(async () => "x");
  const query = liveQuery(() => input.value, run);
  await settle();
  input.value = { a: 1 };
  await settle();
  expect(run).toHaveBeenCalledTimes(1);
  refresh();
  await settle();
  expect(run).toHaveBeenCalledTimes(2);
  query.dispose();
});

test("result of a closed view returns with the same request, unless a refresh or another tenant came between", async () => {
  const input = signal<number | undefined>(1);
  const signals: AbortSignal[] = [];
  const run = vi.fn(async ({ number }: { number: number }, abort: AbortSignal) => {
    signals.push(abort);
    return number;
  });
  const query = liveQuery(() => (input.value === undefined ? undefined : { number: input.value }), run);
  const reopen = async (number: number, between: () => void = () => {}) => {
    input.value = undefined;
    expect(query.state.value).toEqual({ kind: "idle", startedAt: 0 });
    between();
    input.value = number;
    const isKept = query.state.value.kind === "done";
    await settle();
    expect(query.state.value).toMatchObject({ kind: "done", value: number });
    return isKept;
  };
  await settle();
  expect(await reopen(1)).toBe(true);
  expect(await reopen(1)).toBe(true);
  expect(run).toHaveBeenCalledTimes(1);
  expect(signals[0]?.aborted, "later parts of the result can be loaded").toBe(false);
  expect(await reopen(2)).toBe(false);
  expect(signals[0]?.aborted).toBe(true);
  expect(await reopen(1), "only the last result is kept").toBe(false);
  expect(await reopen(1, refresh)).toBe(false);
  const tenant = currentTenant.peek();
  expect(await reopen(1, () => setCurrentTenant("other"))).toBe(false);
  setCurrentTenant(tenant);
  await settle();
  input.value = undefined;
  input.value = 1;
  const { valueRequest } = query.state.value;
  refresh();
  expect(query.state.value).toMatchObject({ kind: "loading", valueRequest, runningRequest: valueRequest });
  query.dispose();
  expect(signals.every((abort) => abort.aborted)).toBe(true);
});

test("closed view that was loading, has failed or was cancelled runs its request again", async () => {
  const input = signal<{ a: number } | undefined>({ a: 1 });
  const run = vi.fn(() => new Promise<string>((resolve) => setTimeout(() => resolve("x"), 100)));
  const query = liveQuery(() => input.value, run);
  const reopen = () => {
    input.value = undefined;
    input.value = { a: 1 };
    expect(query.state.value.kind).toBe("loading");
  };
  reopen();
  query.cancel();
  reopen();
  run.mockImplementationOnce(() => Promise.reject(new ApiError({ status: 400, code: "x", message: "x" })));
  reopen();
  await settle();
  expect(query.state.value.kind).toBe("failed");
  reopen();
  expect(run).toHaveBeenCalledTimes(5);
  await vi.advanceTimersByTimeAsync(100);
  expect(query.state.value).toMatchObject({ kind: "done", value: "x" });
  setToken("other");
  input.value = undefined;
  setToken("");
  input.value = { a: 1 };
  expect(query.state.value.kind).toBe("loading");
  query.dispose();
});

test("running request has the number of the value after a refresh, and another one after a change", async () => {
  const input = signal(1);
  const query = liveQuery(
    () => ({ number: input.value }),
    async ({ number }) => number,
  );
  await settle();
  const { valueRequest } = query.state.value;
  refresh();
  expect(query.state.value).toMatchObject({ kind: "loading", valueRequest, runningRequest: valueRequest });
  await settle();
  input.value = 2;
  expect(query.state.value).toMatchObject({ kind: "loading", valueRequest });
  expect(query.state.value.runningRequest).not.toBe(valueRequest);
  await settle();
  query.dispose();
});

test("overload counts down and retries", async () => {
  let calls = 0;
  const query = liveQuery(
    () => ({}),
    async () => {
      calls++;
      if (calls === 1) throw overload();
      return "done";
    },
  );
  await settle();
  expect(query.state.value.kind).toBe("loading");
  expect(query.state.value.retryAt).toBe(Date.now() + 3_000);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(query.state.value).toMatchObject({ kind: "done", value: "done" });
  query.dispose();
});

test("retries end", async () => {
  const query = liveQuery(
    () => ({}),
    async () => Promise.reject(overload()),
  );
  await vi.advanceTimersByTimeAsync(60_000);
  expect(query.state.value.kind).toBe("failed");
  query.dispose();
});

test("cancel ends loading and its retries", async () => {
  const run = vi.fn(async () => Promise.reject(overload()));
  const query = liveQuery(() => ({}), run);
  await settle();
  query.cancel();
  expect(query.state.value.kind).toBe("cancelled");
  await vi.advanceTimersByTimeAsync(60_000);
  expect(query.state.value.kind).toBe("cancelled");
  expect(run).toHaveBeenCalledTimes(1);
  query.reload();
  expect(query.state.value.kind).toBe("loading");
  query.dispose();
});

test("value of another tenant is not kept", async () => {
  const query = liveQuery(
    () => ({}),
    async () => currentTenant.peek(),
  );
  setCurrentTenant("a");
  expect(query.state.value.value).toBeUndefined();
  await settle();
  expect(query.state.value.value).toBe("a");
  setCurrentTenant("");
  query.dispose();
});

test("value that another token has read is not kept", async () => {
  const run = vi.fn(async () => token.peek());
  const query = liveQuery(() => ({}), run);
  await settle();
  setToken("b");
  expect(query.state.value.value).toBeUndefined();
  await settle();
  expect(query.state.value.value).toBe("b");
  expect(run).toHaveBeenCalledTimes(2);
  setToken("");
  query.dispose();
});

test("query without a request is idle", () => {
  const query = liveQuery(
    () => undefined,
    async () => 1,
  );
  expect(query.state.value.kind).toBe("idle");
});

test("damaged response is a failure", async () => {
  const query = liveQuery(
    () => ({}),
    async () => {
      throw new RangeError("columns differ");
    },
  );
  await settle();
  expect(query.state.value.error?.code).toBe("invalid_response");
  query.dispose();
});

test("value of another request does not remain after an error", async () => {
  const input = signal(1);
  const query = liveQuery(
    () => input.value,
    async (number) => {
      if (number === 2) throw new ApiError({ status: 400, code: "invalid_argument", message: "refused" });
      return number;
    },
  );
  await settle();
  input.value = 2;
  expect(query.state.value).toMatchObject({ kind: "loading", value: 1 });
  await settle();
  expect(query.state.value.kind).toBe("failed");
  expect(query.state.value.value).toBeUndefined();
  query.dispose();
});

test("value of another request does not remain after a cancel", async () => {
  const input = signal(1);
  const query = liveQuery(
    () => input.value,
    (number) => (number === 1 ? Promise.resolve(number) : new Promise<number>(() => {})),
  );
  await settle();
  input.value = 2;
  query.cancel();
  expect(query.state.value.kind).toBe("cancelled");
  expect(query.state.value.value).toBeUndefined();
  query.dispose();
});

test("value remains after a failed refresh, whose times have moved", async () => {
  let isBroken = false;
  const query = liveQuery(
    () => ({ end: now.value }),
    async () => {
      if (isBroken) throw new ApiError({ status: 400, code: "invalid_argument", message: "refused" });
      return "done";
    },
  );
  await settle();
  isBroken = true;
  await vi.advanceTimersByTimeAsync(1_000);
  refresh();
  await settle();
  expect(query.state.value).toMatchObject({ kind: "failed", value: "done" });
  query.cancel();
  query.dispose();
});
