// Memory of a page after many zooms, transforms and refreshes.

import { linkTo, openContext } from "./page_bench.mjs";
import { replayResponses, settle } from "./page_probe.mjs";
import { report, reportPart } from "./report";

const WARM_UP_ROUNDS = 15;
/** Transforms of the view. Each round replaces one, so after the warm-up half of them have been replaced. */
const TRANSFORM_COUNT = 30;
const KIB = 1024;
/** Growth that caches and the collector explain, whatever the number of rounds. */
const LIMITS = { usedSize: 1_024 * KIB, nodes: 50, jsEventListeners: 20 };

async function readMemory(session) {
  await session.send("HeapProfiler.collectGarbage");
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  const { nodes, jsEventListeners } = await session.send("Memory.getDOMCounters");
  return { usedSize, nodes, jsEventListeners };
}

/** Adds a transform of the selected frame, and removes the oldest. */
async function replaceTransform(page) {
  await page.locator(".flame-scroller").first().press("i");
  await page.locator(".transform-chip button").first().click();
}

/** Zooms, replaces transforms and refreshes many times. Returns whether memory stays as it is. */
export async function measureLeaks(browser, url, selector, rounds) {
  const context = await openContext(browser);
  const page = await context.newPage();
  const transforms = Array.from({ length: TRANSFORM_COUNT }, (_, index) => `ignore=absent${index}`);
  await page.goto(linkTo(url, { p: "explore", q: selector, f: "now-6h", w: "icicle", x: transforms }));
  const session = await context.newCDPSession(page);
  const graph = page.locator(".flame-scroller").first();
  const run = async (count) => {
    for (let round = 0; round < count; round++) {
      await graph.click({ position: { x: 200 + ((round * 97) % 1_200), y: 50 } });
      await replaceTransform(page);
      await page.locator(".flame-path-part").first().click();
      await page.locator(".refresh-control button").first().click();
      await page.waitForFunction(() => document.querySelector('[aria-busy="true"]') === null);
    }
    await page.locator(".flame-path").hover();
    await settle(page);
  };
  await settle(page);
  await replayResponses(page);
  await run(WARM_UP_ROUNDS);
  const before = await readMemory(session);
  await run(rounds);
  const after = await readMemory(session);
  reportPart(`${rounds} zooms, transforms and refreshes`);
  const grown = (name, key, unit, scale = 1) =>
    report({
      name,
      measured: (after[key] - before[key]) / scale,
      unit,
      goal: LIMITS[key] / scale,
      note: `after ${Math.round(after[key] / scale)}`,
    });
  grown("growth of the heap after garbage collection", "usedSize", "KiB", KIB);
  grown("growth of the number of elements and texts", "nodes", "");
  grown("growth of the number of event listeners", "jsEventListeners", "");
  await context.close();
  return Object.entries(LIMITS).every(([key, limit]) => after[key] - before[key] <= limit);
}
