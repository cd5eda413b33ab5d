// Flame and icicle graphs of Explore: pointer, zoom, tooltip, truncated nodes, search.
import type { Page } from "@playwright/test";
import { formatPercent, formatValue } from "../app/theme/format";
import { pushFile } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { type FlamePanel, fetchFlame, flamePanel, nodeAt } from "./support/flame";
import { CPU_PERIOD, CPU_TYPE, functionsOf, totalOf, totalOfPath } from "./support/shop";

const TOTAL_PATH = ["main.main", "net/http.(*Server).Serve", "shop/cart.(*Cart).Total"];

/** Returns the value of a parameter of the page's address. */
function parameter(page: Page, name: string): string | null {
  return new URL(page.url()).searchParams.get(name);
}

for (const view of ["flame", "icicle"] as const) {
  test(`${view}: click zooms, path bar and Back return`, async ({ openShop, shopQuery, shopSite }) => {
    const page = await openShop({ w: view });
    const panel = flamePanel(page, view);
    await panel.ready();
    const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
    const { checkout } = shopSite.shop;
    await expect(panel.summary).toHaveText(
      `${formatValue(totalOf(checkout), "nanoseconds")} · ${tree.response.fullNodes} frames`,
    );
    const zoomed = nodeAt(tree, TOTAL_PATH);
    expect(zoomed.total).toBe(totalOfPath(checkout, TOTAL_PATH));
    await panel.click(tree, zoomed);
    const path = panel.panel.getByRole("navigation", { name: "Callers of the zoomed frame" });
    await expect(path.getByRole("button")).toHaveText(["all", ...TOTAL_PATH]);
    await expect(path.getByRole("button", { name: "Total" })).toHaveAttribute("aria-current", "true");
    expect(parameter(page, "z")).not.toBeNull();
    await path.getByRole("button", { name: "main.main" }).click();
    await expect(path.getByRole("button")).toHaveText(["all", "main.main"]);
    await page.goBack();
    await expect(path.getByRole("button")).toHaveText(["all", ...TOTAL_PATH]);
    await page.goBack();
    await expect(path.getByRole("button")).toHaveText(["all"]);
    await page.goForward();
    await expect(path.getByRole("button")).toHaveText(["all", ...TOTAL_PATH]);
    await page.reload();
    await expect(path.getByRole("button")).toHaveText(["all", ...TOTAL_PATH]);
    await panel.panel.getByRole("button", { name: "Reset zoom" }).click();
    await expect(path.getByRole("button")).toHaveText(["all"]);
  });

  test(`${view}: tooltip equals the API`, async ({ openShop, shopQuery, callShop, shopSite }) => {
    const page = await openShop({ w: view });
    const panel = flamePanel(page, view);
    await panel.ready();
    const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
    const { checkout } = shopSite.shop;
    const whole = totalOf(checkout);
    for (const path of [
      TOTAL_PATH,
      [...TOTAL_PATH, "encoding/json.Marshal"],
      ["main.main", "shop/tree.walk"],
    ]) {
      const node = nodeAt(tree, path);
      const caller = nodeAt(tree, path.slice(0, -1));
      await panel.hover(tree, node);
      const name = path.at(-1) ?? "";
      await expect(panel.tooltip).toContainText(name);
      const everywhere = functionsOf(checkout).get(name)?.total ?? 0n;
      const { matchedTotal, total, rows } = await callShop("athanor.v1.ExploreService/Functions", {
        query: shopQuery(),
        filter: { regex: `^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$` },
      });
      expect([BigInt(matchedTotal), BigInt(total)]).toEqual([everywhere, whole]);
      await expect(panel.tooltip).not.toContainText("…");
      const samples = node.total / CPU_PERIOD;
      const facts = await panel.facts();
      const margin = facts["Samples"]?.replaceAll("\u202f", "").match(/^(\d+) ± (\d+) \(95 %\)$/);
      expect(BigInt(margin?.[1] ?? -1)).toBe(samples);
      expect(Math.abs(Number(margin?.[2]) - 1.96 * Math.sqrt(Number(samples)))).toBeLessThanOrEqual(1);
      expect(facts).toMatchObject({
        Total: formatValue(node.total, "nanoseconds"),
        Self: formatValue(node.self, "nanoseconds"),
        "Of all": formatPercent(node.total, whole),
        "Of caller": formatPercent(node.total, caller.total),
        "In all places": `${formatValue(everywhere, "nanoseconds")} (${formatPercent(everywhere, whole)})`,
      });
      await expect(panel.tooltip).toContainText(`${rows[0].file}:${10 + name.length}`);
      await expect(panel.tooltip.locator(".flame-tooltip-place")).toContainText(rows[0].binary);
    }
  });

  test(`${view}: Ctrl-wheel and drag zoom freely`, async ({ openShop, shopQuery, shopSite }) => {
    const page = await openShop({ w: view });
    const panel = flamePanel(page, view);
    await panel.ready();
    const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
    const node = nodeAt(tree, TOTAL_PATH);
    const point = await panel.pointOf(tree, node);
    const before = await panel.surface.screenshot();
    await page.mouse.move(point.x, point.y);
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -300);
    await page.keyboard.up("Control");
    const reset = panel.panel.getByRole("button", { name: "Reset zoom" });
    await expect(reset).toBeEnabled();
    // The frame under the pointer stays under it.
    await page.mouse.move(point.x + 1, point.y);
    await expect(panel.tooltip).toContainText("shop/cart.(*Cart).Total");
    expect(parameter(page, "z"), "free zooming is no step of the history").toBeNull();
    const zoomed = await panel.surface.screenshot();
    expect(zoomed.equals(before)).toBe(false);
    await page.mouse.down();
    await page.mouse.move(point.x - 200, point.y, { steps: 5 });
    await page.mouse.up();
    await expect.poll(async () => (await panel.surface.screenshot()).equals(zoomed)).toBe(false);
    await reset.click();
    await expect(reset).toBeHidden();
  });
}

test("zoomed tooltip states the share of the zoomed frame", async ({ openShop, shopQuery, shopSite }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
  const zoomed = nodeAt(tree, TOTAL_PATH);
  const callee = nodeAt(tree, [...TOTAL_PATH, "shop/tax.Rate"]);
  await panel.click(tree, zoomed);
  await expect(panel.panel.getByRole("navigation").getByRole("button")).toHaveCount(4);
  await expect(async () => {
    await panel.hover(tree, callee, zoomed);
    await expect(panel.tooltip).toContainText("shop/tax.Rate", { timeout: 500 });
  }).toPass();
  expect(await panel.facts()).toMatchObject({
    "Of zoomed frame": formatPercent(callee.total, zoomed.total),
    "Of all": formatPercent(callee.total, totalOf(shopSite.shop.checkout)),
  });
});

test("tooltip shows the error of a total that cannot be fetched", async ({
  openShop,
  shopQuery,
  shopSite,
}) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
  await page.route("**/athanor.v1.ExploreService/Functions", (route) =>
    route.fulfill({ status: 400, json: { code: "invalid_argument", message: "query is refused" } }),
  );
  await panel.hover(tree, nodeAt(tree, TOTAL_PATH));
  await expect(panel.tooltip).toContainText("unknown: query is refused");
});

test("drag on the minimap moves the visible part", async ({ openShop }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const box = await panel.panel.locator(".flame-minimap").boundingBox();
  if (box === null) throw new Error("the minimap is not visible");
  await page.mouse.move(box.x + box.width * 0.1, box.y + 10);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 10, { steps: 4 });
  await page.mouse.up();
  await expect(panel.panel.getByRole("button", { name: "Reset zoom" })).toBeEnabled();
});

test("minimap shows the frames of a graph with stacks 512 deep", async ({ page, shopSite }) => {
  const { start, end } = shopSite.shop;
  const deep = Array.from({ length: 512 }, (_, depth) => `f${depth}`).join(";");
  await pushFile(shopSite.api, `${deep} 100\nmain;work 100\n`, {
    name: "flat_and_deep.cpu",
    fromMs: end - 60_000,
  });
  const range = { y: CPU_TYPE, f: String(start), u: String(end) };
  await page.goto(
    linkTo(shopSite.url, { p: "explore", ...range, q: '{service_name="flat_and_deep"}', w: "icicle" }),
  );
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const opaqueRows = () =>
    panel.panel
      .locator(".flame-minimap canvas")
      .first()
      .evaluate((element) => {
        const canvas = element as HTMLCanvasElement;
        const { width, height } = canvas;
        const { data } = (canvas.getContext("2d") as CanvasRenderingContext2D).getImageData(
          0,
          0,
          width,
          height,
        );
        const x = Math.floor(width / 8);
        return Array.from({ length: height }, (_, y) => data[(y * width + x) * 4 + 3]).filter(
          (a) => a === 255,
        ).length;
      });
  await expect.poll(opaqueRows).toBe(40);
});

/** Zooms out to the whole graph by keyboard, and clicks merged frames again. */
async function zoomOutAndClick(
  page: Page,
  panel: FlamePanel,
  point: { x: number; y: number },
): Promise<void> {
  await panel.surface.focus();
  for (let step = 0; step < 8; step++) await page.keyboard.press("-");
  await page.mouse.move(point.x - 1, point.y);
  await expect(panel.tooltip).toContainText("narrower than a pixel");
  await page.mouse.click(point.x, point.y);
}

test("click on merged frames is a step whose link zooms to them", async ({ page, shopSite }) => {
  const { start, end } = shopSite.shop;
  const leaves = Array.from({ length: 1_000 }, (_, leaf) => `main;leaf${leaf} 1`);
  const folded = `main;heavy 1000\n${leaves.join("\n")}\n`;
  await pushFile(shopSite.api, folded, { name: "flat.cpu", fromMs: end - 60_000 });
  const range = { y: CPU_TYPE, f: String(start), u: String(end) };
  await page.goto(linkTo(shopSite.url, { p: "explore", ...range, q: '{service_name="flat"}', w: "icicle" }));
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const box = await panel.surface.boundingBox();
  if (box === null) throw new Error("the graph is not visible");
  const leafAt = { x: box.x + box.width * 0.75, y: box.y + 50 };
  const reset = panel.panel.getByRole("button", { name: "Reset zoom" });
  await page.mouse.click(leafAt.x, leafAt.y);
  await expect.poll(() => parameter(page, "zr")).toMatch(/^0\.(5|4999)\d*-(1|0\.9999)\d*$/);
  const expectLeaves = () =>
    expect(async () => {
      await page.mouse.move(leafAt.x - 1, leafAt.y);
      await page.mouse.move(leafAt.x, leafAt.y);
      await expect(panel.tooltip).toContainText(/leaf\d+/, { timeout: 500 });
    }).toPass();
  await expectLeaves();
  const path = panel.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button");
  await expect(path.last()).toHaveText("50–100 %");
  await expect(path.last()).toHaveAttribute("aria-current", "true");
  await zoomOutAndClick(page, panel, leafAt);
  await expectLeaves();
  await page.keyboard.press("[");
  await expect.poll(() => parameter(page, "zr"), "another range has another graph").toBeNull();
  await page.goBack();
  await expect(path.last()).toHaveText("50–100 %");
  await panel.ready();
  await expectLeaves();
  await page.reload();
  await panel.ready();
  await expect(reset).toBeEnabled();
  await expectLeaves();
  await page.goBack();
  await expect(reset).toBeHidden();
  expect(parameter(page, "zr")).toBeNull();
  await page.goForward();
  await expect(reset).toBeEnabled();
  await reset.click();
  await expect(reset).toBeHidden();
  expect(parameter(page, "zr")).toBeNull();
  await page.goBack();
  await expectLeaves();
  await page.mouse.click(leafAt.x, leafAt.y);
  await expect(path.last()).toHaveText(/^leaf/);
  await page.keyboard.press("Escape");
  await expect(path.last(), "the zoom before").toHaveText("50–100 %");
  await page.keyboard.press("Escape");
  await expect(reset).toBeHidden();
});

/** Sends hubs of one width, so that the pointer reaches each. Their callees become lighter with each hub. */
async function pushHubs(serverUrl: string, end: number, hubs: number, callees: number): Promise<void> {
  for (let first = 0; first < hubs; first += 60) {
    const lines: string[] = [];
    for (let hub = first; hub < first + 60; hub++) {
      lines.push(`main;hub${hub} ${1 + callees * hub}`);
      for (let callee = 0; callee < callees; callee++) lines.push(`main;hub${hub};c${callee} ${hubs - hub}`);
    }
    const push = {
      name: "wide.cpu",
      fromMs: end - 120_000 - first * 1_000,
      extra: { sampleRate: "1000000000" },
    };
    await pushFile(serverUrl, `${lines.join("\n")}\n`, push);
  }
}

test("truncated node states what it hides and opens without movement", async ({
  page,
  shopSite,
  callShop,
  calls,
}) => {
  test.setTimeout(90_000);
  const { start, end } = shopSite.shop;
  // 300 hubs with 250 callees each are more frames than a graph has. The callees of the last hubs are the lightest.
  const hubs = 300;
  const callees = 250;
  await pushHubs(shopSite.api, end, hubs, callees);
  const selector = '{service_name="wide"}';
  const query = { profileType: CPU_TYPE, selector, start: String(start), end: String(end) };
  const tree = await fetchFlame(shopSite.api, { query });
  expect(Number(tree.response.fullNodes)).toBe(2 + hubs + hubs * callees);
  expect(tree.nodes.length).toBeLessThan(Number(tree.response.fullNodes));
  const hidden = tree.nodes.find((node) => node.depth === 2 && node.truncated > 0n && node.self > 0n);
  if (hidden === undefined) throw new Error("no hub is truncated");
  const view = { p: "explore", y: CPU_TYPE, q: selector, f: String(start), u: String(end), w: "icicle" };
  await page.goto(linkTo(shopSite.url, view));
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await expect(panel.summary).toContainText("of 75\u202f302 frames");
  await panel.click(tree, hidden);
  const parts = panel.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button");
  await expect(parts).toHaveText(["all", "main", hidden.name]);
  const subtree = await callShop("athanor.v1.ExploreService/Graph", { query, path: [...hidden.path] });
  expect(Number(subtree.rootCallees)).toBe(callees);
  await expect(panel.summary, "frames of the fetched subtree").toContainText(
    `${(tree.nodes.length + missingOf(tree, hidden, callees)).toLocaleString("en").replaceAll(",", "\u202f")} of`,
  );
  await expect(parts).toHaveText(["all", "main", hidden.name]);
  // The zoomed frame is where it was, and its callees are complete.
  await expect(async () => {
    await panel.hover(tree, hidden, hidden);
    await expect(panel.tooltip).toContainText(hidden.name, { timeout: 500 });
  }).toPass();
  const facts = await panel.facts();
  expect(facts["Hidden below"]).toBeUndefined();
  expect(facts["Total"]).toBe(formatValue(hidden.total, "nanoseconds"));
  const missing = missingOf(tree, hidden, callees);
  const opened = `${(tree.nodes.length + missing).toLocaleString("en").replaceAll(",", "\u202f")} of`;
  const subtreeCalls = () => calls.filter(({ method }) => method.endsWith("/Graph")).length;
  await expectReopened(panel, subtreeCalls, opened);
  const shownKeys = new Set(tree.nodes.map(({ path }) => path.join("\n")));
  const names = Array.from({ length: callees }, (_, index) => `c${index}`);
  const callee = names.find((name) => !shownKeys.has([...hidden.path, name].join("\n"))) ?? "";
  await page.goto(linkTo(shopSite.url, { ...view, z: [...hidden.path, callee].join(";") }));
  await expect(parts).toHaveText(["all", "main", hidden.name, callee]);
  await expectReopened(panel, subtreeCalls, opened);
  await expect(parts).toHaveText(["all", "main", hidden.name, callee]);
  const selected = { ...view, w: "tree", n: [...hidden.path, callee].join(";") };
  await page.goto(linkTo(shopSite.url, selected));
  await expect(page.getByRole("treegrid").getByRole("row", { selected: true })).toContainText(callee);
  await page.goBack();
  await panel.ready();
  await page.route("**/*ExploreService/Graph", (route) =>
    route.request().postDataBuffer()?.includes(hidden.name) ? route.abort() : route.continue(),
  );
  await page.getByRole("button", { name: "Refresh now" }).click();
  await expect(page.getByText("Cannot load hidden frames")).toBeVisible();
  await expect(page.getByText("does not exist in this graph")).toHaveCount(0);
});

/** Refreshes the page, and expects that the zoomed frame opens as before. */
async function expectReopened(panel: FlamePanel, graphCalls: () => number, opened: string) {
  const before = graphCalls();
  await panel.page.getByRole("button", { name: "Refresh now" }).click();
  await expect.poll(graphCalls, "the graph and its hidden part").toBe(before + 2);
  await expect(panel.summary).toContainText(opened);
  await expect(panel.page.getByText("does not exist in this graph")).toHaveCount(0);
}

/** Returns the number of callees that a truncated node lacks. */
function missingOf(
  tree: Awaited<ReturnType<typeof fetchFlame>>,
  hidden: { path: readonly string[] },
  callees: number,
) {
  const prefix = hidden.path.join("\n");
  const shown = tree.nodes.filter(
    ({ path, depth }) => depth === 3 && path.slice(0, -1).join("\n") === prefix,
  );
  return callees - shown.length;
}

test("search states the API's numbers and n jumps through matches", async ({
  openShop,
  shopQuery,
  callShop,
}) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const plain = await panel.surface.screenshot();
  await page.keyboard.press("/");
  await expect(page.getByRole("textbox", { name: /Search functions/ })).toBeFocused();
  await page.keyboard.type("json.Marshal");
  const { count, matchedTotal, total } = await callShop("athanor.v1.ExploreService/Functions", {
    query: shopQuery(),
    filter: { substring: "json.Marshal" },
  });
  expect(count).toBe("1");
  await expect(page.locator("#search-status")).toHaveText(
    `1 function, ${formatPercent(BigInt(matchedTotal), BigInt(total))}`,
  );
  await expect.poll(async () => (await panel.surface.screenshot()).equals(plain)).toBe(false);
  await panel.surface.focus();
  const live = panel.panel.locator('[aria-live="polite"]');
  await page.keyboard.press("n");
  await expect(live).toContainText("encoding/json.Marshal");
  const first = parameter(page, "n");
  expect(first).toContain("Marshal");
  await page.keyboard.press("n");
  await expect.poll(() => parameter(page, "n")).not.toBe(first);
  expect(parameter(page, "n")).toContain("Marshal");
  await page.keyboard.press("Shift+N");
  await expect.poll(() => parameter(page, "n")).toBe(first);
});

test("Enter in the search goes to a match, and Escape returns to the graph", async ({ openShop }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const field = page.getByRole("textbox", { name: /Search functions/ });
  const live = panel.panel.locator('[aria-live="polite"]');
  await page.keyboard.press("/");
  await page.keyboard.type("json.Marshal");
  await page.keyboard.press("Enter");
  await expect(panel.surface).toBeFocused();
  await expect(live).toContainText("encoding/json.Marshal");
  const first = parameter(page, "n");
  await page.keyboard.press("n");
  await expect.poll(() => parameter(page, "n")).not.toBe(first);
  await page.keyboard.press("/");
  await page.keyboard.press("Shift+Enter");
  await expect.poll(() => parameter(page, "n")).toBe(first);
  await expect(panel.surface).toBeFocused();
  await page.keyboard.press("/");
  await page.keyboard.press("Escape");
  await expect(field).toHaveValue("");
  await expect(field).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(panel.surface).toBeFocused();
  await page.keyboard.press("/");
  await page.keyboard.type("no such function");
  await expect(page.locator("#search-status")).toHaveText("no function");
  await page.keyboard.press("Enter");
  await expect(field, "nothing to jump to").toBeFocused();
  await page.keyboard.press("4");
  await expect(field).toHaveValue("no such function4");
});

test("Enter in the search goes to a match of the tree", async ({ openShop }) => {
  const page = await openShop({ w: "tree" });
  const tree = page.getByRole("treegrid", { name: "Call tree" });
  await expect(tree.getByRole("row", { name: "main.main" })).toBeVisible();
  await page.keyboard.press("/");
  await page.keyboard.type("json.Marshal");
  await page.keyboard.press("Enter");
  await expect(tree).toBeFocused();
  await expect(tree.getByRole("row", { selected: true })).toContainText("json.Marshal");
  const first = parameter(page, "n");
  await page.keyboard.press("Home");
  await expect.poll(() => parameter(page, "n")).toBeNull();
  await page.keyboard.press("n");
  await expect.poll(() => parameter(page, "n"), "the first match again").toBe(first);
  await page.keyboard.press("n");
  await expect.poll(() => parameter(page, "n")).not.toBe(first);
  await expect(tree.getByRole("row", { selected: true })).toContainText("json.Marshal");
});
