// Profiles of a small shop, and what the server must make of them: plain lists of stacks.
import { type PushedSeries, pushSeries } from "./api";
import { encodePprof, type PprofFrame } from "./pprof";

export const CPU_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
export const HEAP_TYPE = "memory:inuse_space:bytes:space:bytes";
export const EVENT_TYPE = "events:events:count:events:count";

const MINUTE_MS = 60_000;
export const CPU_PERIOD = 10_000_000n;

/** Stack with its value, in the unit of the profile type. */
export interface WeighedStack {
  readonly names: readonly string[];
  readonly value: bigint;
}

const HANDLER = "main.main;net/http.(*Server).Serve";
const CHECKOUT_STACKS: readonly (readonly [stack: string, weight: number])[] = [
  [`${HANDLER};shop/cart.(*Cart).Total;encoding/json.Marshal`, 31],
  [`${HANDLER};shop/cart.(*Cart).Total;encoding/json.Marshal;runtime.mallocgc`, 17],
  [`${HANDLER};shop/cart.(*Cart).Total`, 5],
  [`${HANDLER};shop/cart.(*Cart).Total;shop/tax.Rate`, 13],
  [`${HANDLER};shop/pay.(*Client).Charge;net/http.(*Transport).RoundTrip`, 23],
  [`${HANDLER};shop/pay.(*Client).Charge;encoding/json.Marshal`, 11],
  [`${HANDLER};shop/pay.(*Client).Charge;encoding/json.Marshal;runtime.mallocgc`, 3],
  ["main.main;shop/tree.walk;shop/tree.walk;shop/tree.walk;runtime.memmove", 7],
  ["main.main;shop/tree.walk;shop/tree.walk", 2],
  ["runtime.gcBgMarkWorker;runtime.scanobject", 19],
];
const CART_STACKS: readonly (readonly [stack: string, weight: number])[] = [
  [`${HANDLER};shop/cart.(*Cart).Add;database/sql.(*DB).Query`, 29],
  [`${HANDLER};shop/cart.(*Cart).Add`, 3],
  ["runtime.gcBgMarkWorker;runtime.scanobject", 4],
];
const HEAP_STACKS: readonly (readonly [stack: string, weight: number])[] = [
  [`${HANDLER};shop/cart.(*Cart).Add;bytes.growSlice`, 4_096],
  [`${HANDLER};shop/cart.(*Cart).Add;runtime.mallocgc`, 1_365],
];

/** Returns the place of a function, made of its name. */
export function frameOf(name: string): PprofFrame {
  const packagePath = name.replace(/\.[^/]*$/, "");
  return { name, file: `${packagePath}.go`, line: 10 + name.length, binary: "/usr/bin/shop" };
}

/** Time range of the shop's profiles. Both ends are full minutes, so the page changes neither. */
export interface ShopRange {
  readonly start: number;
  readonly end: number;
}

export interface Shop extends ShopRange {
  readonly checkout: readonly WeighedStack[];
  readonly cart: readonly WeighedStack[];
}

interface SeriesPlan {
  readonly service: string;
  readonly pod: string;
  readonly type: "cpu" | "heap";
  readonly stacks: readonly (readonly [stack: string, weight: number])[];
  readonly minutes: readonly number[];
}

function seriesOf(plan: SeriesPlan, end: number): { series: PushedSeries[]; merged: WeighedStack[] } {
  const merged: WeighedStack[] = [];
  const isCpu = plan.type === "cpu";
  const series = plan.minutes.map((minute) => {
    const samples = plan.stacks.map(([stack, weight], index) => {
      const factor = BigInt(1 + ((minute * 7 + index * 3) % 5));
      const value = BigInt(weight) * factor * (isCpu ? CPU_PERIOD : 1_000n);
      const names = stack.split(";");
      merged.push({ names, value });
      return { stack: names.map(frameOf), value };
    });
    const profile = encodePprof({
      type: isCpu ? ["cpu", "nanoseconds"] : ["inuse_space", "bytes"],
      periodType: isCpu ? ["cpu", "nanoseconds"] : ["space", "bytes"],
      period: isCpu ? CPU_PERIOD : 524_288n,
      timeMs: end - minute * MINUTE_MS,
      durationMs: 10_000,
      samples,
    });
    const name = isCpu ? "process_cpu" : "memory";
    const labels = { __name__: name, service_name: plan.service, pod: plan.pod, region: "eu" };
    return { labels, profile };
  });
  return { series, merged };
}

const minutesFrom = (last: number, first: number, step: number) =>
  Array.from({ length: Math.floor((first - last) / step) + 1 }, (_, index) => last + index * step);

/** Sends the profiles of the shop. */
export async function pushShop(serverUrl: string, tenant = ""): Promise<Shop> {
  const end = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  const recent = minutesFrom(2, 44, 2);
  const plans: readonly SeriesPlan[] = [
    ...["checkout-a", "checkout-b", "checkout-c"].map((pod) => ({
      ...{ service: "checkout", pod, type: "cpu", stacks: CHECKOUT_STACKS, minutes: recent },
    })),
    { service: "cart", pod: "cart-a", type: "cpu", stacks: CART_STACKS, minutes: recent },
    { service: "cart", pod: "cart-a", type: "heap", stacks: HEAP_STACKS, minutes: [3, 9, 15] },
  ] as const satisfies readonly SeriesPlan[];
  const before: readonly SeriesPlan[] = [
    { service: "checkout", pod: "checkout-a", type: "cpu", stacks: CHECKOUT_STACKS, minutes: [70, 80, 90] },
    { service: "cart", pod: "cart-a", type: "cpu", stacks: CART_STACKS, minutes: minutesFrom(62, 118, 1) },
  ];
  const built = [...plans, ...before].map((plan) => seriesOf(plan, end));
  await pushSeries(
    serverUrl,
    built.flatMap(({ series }) => series),
    { tenant },
  );
  const recentCpu = (service: string) =>
    plans.flatMap((plan, index) =>
      plan.service === service && plan.type === "cpu" ? (built[index]?.merged ?? []) : [],
    );
  return { start: end - 60 * MINUTE_MS, end, checkout: recentCpu("checkout"), cart: recentCpu("cart") };
}

/** Returns the sum of all stacks. */
export function totalOf(stacks: readonly WeighedStack[]): bigint {
  return stacks.reduce((sum, { value }) => sum + value, 0n);
}

/** Values of a function. */
export interface FunctionValues {
  readonly self: bigint;
  readonly total: bigint;
}

/** Returns the values of all functions. A stack counts once, however often a function is in it. */
export function functionsOf(stacks: readonly WeighedStack[]): ReadonlyMap<string, FunctionValues> {
  const functions = new Map<string, FunctionValues>();
  for (const { names, value } of stacks) {
    for (const name of new Set(names)) {
      const before = functions.get(name) ?? { self: 0n, total: 0n };
      const self = names.at(-1) === name ? value : 0n;
      functions.set(name, { self: before.self + self, total: before.total + value });
    }
  }
  return functions;
}

/** Returns the sum of the stacks that begin with a path. */
export function totalOfPath(stacks: readonly WeighedStack[], path: readonly string[]): bigint {
  return totalOf(stacks.filter(({ names }) => path.every((name, depth) => names[depth] === name)));
}
