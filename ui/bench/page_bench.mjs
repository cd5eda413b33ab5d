// Bench of pages: first load, fleet, and actions of Explore.

import { readFileSync } from "node:fs";
import { get } from "node:http";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { addProbe, measureAction, settle } from "./page_probe.mjs";
import { median, percentile, report, reportPart } from "./report";

const WINDOW_SIZE = { width: 1_600, height: 900 };
const ROUNDS = 5;
const ACTION_ROUNDS = 3;
/** Pause in typing after which the page requests numbers. It is no work. */
const TYPING_PAUSE_MS = 150;
const KIB = 1024;
const CPU_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/** Folder with a build of the UI in place of the embedded one. */
const UI_DIST = process.env["ATHANOR_UI_DIST"];
const CONTENT_TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

/** Returns the link of a view. A list is a parameter that occurs once for each item. */
export function linkTo(url, parameters) {
  const entries = Object.entries({ v: "1", y: CPU_TYPE, ...parameters });
  return `${url}/ui/?${new URLSearchParams(entries.flatMap(([name, value]) => [value].flat().map((text) => [name, text])))}`;
}

function fileOf(path) {
  return join(UI_DIST, path.endsWith("/") ? "index.html" : path.slice(path.indexOf("/ui/") + 4));
}

export async function openContext(browser) {
  const context = await browser.newContext({ viewport: WINDOW_SIZE, reducedMotion: "reduce" });
  await addProbe(context);
  if (UI_DIST !== undefined) {
    await context.route("**/ui/**", (route) => {
      const path = fileOf(new URL(route.request().url()).pathname);
      const contentType = CONTENT_TYPES[extname(path)] ?? "text/plain";
      return route.fulfill({ body: readFileSync(path), contentType });
    });
  }
  return context;
}

/** Returns the bytes of a file as the server sends it with gzip. */
function gzippedSize(address) {
  if (UI_DIST !== undefined)
    return gzipSync(readFileSync(fileOf(new URL(address).pathname)), { level: 9 }).length;
  return new Promise((done, fail) => {
    get(address, { headers: { "accept-encoding": "gzip" } }, (response) => {
      let bytes = 0;
      response.on("data", (chunk) => {
        bytes += chunk.length;
      });
      response.on("end", () => done(bytes));
    }).on("error", fail);
  });
}

export async function measureFirstLoad(browser, url) {
  const times = [];
  const floors = [];
  const files = new Set();
  for (let round = 0; round < ROUNDS; round++) {
    const context = await openContext(browser);
    const page = await context.newPage();
    page.on("request", (request) => {
      if (request.url().includes("/ui/")) files.add(request.url());
    });
    await page.goto(`${url}/ui/`, { waitUntil: "commit" });
    const shown = await page.waitForFunction(
      () => document.querySelector(".fleet-name") !== null && performance.now(),
      undefined,
      { polling: "raf" },
    );
    times.push(await shown.jsonValue());
    const empty = await context.newPage();
    await empty.goto(`${url}/ready`);
    floors.push(await empty.evaluate(() => performance.getEntriesByType("navigation")[0].duration));
    await context.close();
  }
  const sizes = await Promise.all([...files].map(gzippedSize));
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  reportPart("First load");
  const names = [...files].map((file) => new URL(file).pathname.split("/").pop() || "page").join(" ");
  report({ name: "files, gzipped", measured: bytes / KIB, unit: "KiB", goal: 120, note: names });
  const note = `slowest ${Math.max(...times).toFixed(0)}; the fleet is drawn; floor: the plain page /ready`;
  report({
    name: "interactive, median",
    measured: median(times),
    unit: "ms",
    goal: 1_000,
    floor: median(floors),
    note,
  });
}

const isCall = (request) => request.method() === "POST" && /\/(querier|athanor)\.v1\./.test(request.url());

/** Sends the requests of a page once more, all at once, without drawing. */
function replay(page, calls) {
  return page.evaluate(async (requests) => {
    const started = performance.now();
    await Promise.all(
      requests.map(async ({ url, body, headers }) =>
        (await fetch(url, { method: "POST", body, headers })).text(),
      ),
    );
    return performance.now() - started;
  }, calls);
}

/** Opens the fleet from the start page. Each round has another range, so that no result is cached. */
export async function measureFleet(browser, url, services, goal) {
  const context = await openContext(browser);
  const page = await context.newPage();
  const calls = [];
  page.on("request", (request) => {
    if (!isCall(request)) return;
    const headers = { "content-type": "application/json", "athanor-ui": "1" };
    calls.push({ url: request.url(), body: request.postData(), headers });
  });
  const open = async () => {
    await page.locator(".start-command pre").waitFor();
    await settle(page);
    calls.length = 0;
    const time = await measureAction(page, () => page.locator(".page-links").getByText("Fleet").click());
    return { time, calls: [...calls] };
  };
  const uncached = [];
  const cached = [];
  const floors = [];
  for (let round = 0; round < ROUNDS; round++) {
    await page.goto(linkTo(url, { p: "start", f: `now-${60 + round}m` }));
    uncached.push(await open());
    await page.goBack();
    cached.push(await open());
    floors.push(await replay(page, uncached[round].calls));
  }
  reportPart(`Fleet of ${services} services`);
  const timesOf = (opened) => median(opened.map(({ time }) => time));
  const methods = uncached[0].calls.map((call) => call.url.split("/").pop()).join(" ");
  report({ name: "calls", measured: uncached[0].calls.length, unit: "", goal: 3, note: methods });
  const floor = median(floors);
  const note = "floor: the same calls without a page, cached";
  report({ name: "click to drawn, median", measured: timesOf(uncached), unit: "ms", goal, floor, note });
  report({ name: "the same range once more, median", measured: timesOf(cached), unit: "ms", goal, floor });
  await context.close();
}

/** Actions on Explore, in an order in which each is possible. */
function listActions(page) {
  const view = (name) => () =>
    page.getByRole("group", { name: "View", exact: true }).getByText(name, { exact: true }).click();
  const key = (name) => () => page.keyboard.press(name);
  const graph = page.locator(".flame-scroller").first();
  const onGraph = (name) => async () => {
    await graph.focus();
    await page.keyboard.press(name);
  };
  const select = (label, value) => () =>
    page.locator(".tool-select", { hasText: label }).locator("select").selectOption(value);
  const button = (name) => () => page.getByRole("button", { name, exact: true }).first().click();
  return [
    ["view icicle", view("Icicle")],
    ["click on a frame", () => graph.click({ position: { x: 300, y: 70 } })],
    ["path bar: all", () => page.locator(".flame-path-part").first().click()],
    ["key: heaviest callee", onGraph("ArrowDown")],
    ["key: sibling", onGraph("ArrowRight")],
    ["key: zoom", onGraph("Enter")],
    ["key: back", onGraph("Escape")],
    ["color by binary", select("Color", "binary")],
    ["color by package", select("Color", "package")],
    ["frames by package", select("Frames", "package")],
    ["frames by function", select("Frames", "function")],
    ["invert", button("Invert")],
    ["invert back", button("Invert")],
    ["key: select a frame", onGraph("ArrowDown")],
    ["transform: hide", onGraph("h")],
    ["remove the transform", () => page.locator(".transform-chip button").last().click()],
    ["search", () => page.locator("[data-search-field]").fill("a"), TYPING_PAUSE_MS],
    ["clear the search", () => page.locator("[data-search-field]").fill(""), TYPING_PAUSE_MS],
    ["split", button("Split")],
    ["one view", button("Split")],
    ["view flame", view("Flame")],
    ["view table", view("Table")],
    ["sort by cum", () => page.locator(".table-sort").getByText("cum", { exact: true }).click()],
    ["view tree", view("Tree")],
    ["expand a row", () => page.locator(".tree-twisty[aria-label=Expand]").first().click()],
    ["earlier range", key("[")],
    ["later range", key("]")],
    ["view sandwich", view("Sandwich")],
    ["sandwich of a function", () => page.locator(".virtual-rows .function-name").nth(4).click()],
    ["refresh", () => page.locator(".refresh-control button").first().click()],
    ["another function", button("Choose another")],
    ["back to flame", view("Flame")],
    ["fleet", () => page.locator(".page-links").getByText("Fleet").click()],
    ["open a service", () => page.locator(".fleet-name").first().click()],
  ];
}

export async function measureActions(browser, url, selector) {
  const context = await openContext(browser);
  const page = await context.newPage();
  const times = new Map();
  for (let round = 0; round < ACTION_ROUNDS; round++) {
    await page.goto(linkTo(url, { p: "explore", q: selector, f: "now-6h" }));
    await page.locator(".flame-path").waitFor();
    for (const [name, act, pause = 0] of listActions(page)) {
      const time = await measureAction(page, act);
      times.set(name, [...(times.get(name) ?? []), Math.max(0, time - pause)]);
    }
  }
  const all = [...times.values()].flat();
  reportPart("Click to drawn, R-1k beside 200 services");
  for (const [name, ofAction] of times) report({ name, measured: median(ofAction), unit: "ms" });
  const note = `median ${median(all).toFixed(0)}; each ends with the painted frame; floor: two frames`;
  report({ name: "all actions, p90", measured: percentile(all, 0.9), unit: "ms", goal: 50, floor: 33, note });
  await context.close();
}
