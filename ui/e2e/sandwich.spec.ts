// Sandwich: callers and callees of a function, from all of its places.
import type { Page } from "@playwright/test";
import { formatExact, formatPercent, formatValue } from "../app/theme/format";
import { type JsonMessage, pushFile } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { type FlameNode, FlamePanel, type FlameTree, fetchFlame, flamePanel, nodeAt } from "./support/flame";
import { CPU_TYPE, functionsOf, HEAP_TYPE } from "./support/shop";

const SANDWICH = "athanor.v1.ExploreService/Sandwich";
const MARSHAL = "encoding/json.Marshal";

function halfOf(page: Page, half: "callers" | "callees"): FlamePanel {
  const part = half === "callers" ? ".is-callers" : ":not(.is-callers)";
  return new FlamePanel(page, page.locator(`.sandwich-part${part}`));
}

/** Fetches the graphs of both halves, each with the function as its first level. */
async function fetchHalves(serverUrl: string, query: Record<string, unknown>, name: string) {
  const withTransform = (transform: unknown) => ({ ...query, transforms: [transform] });
  // All stacks are inverted here, those with the function in the page.
  const below = await fetchFlame(serverUrl, {
    query: withTransform({ collapseBelow: { name } }),
    path: [name],
    invert: true,
  });
  const nodes = below.nodes.map((node) => ({ ...node, path: [name, ...node.path], depth: node.depth + 1 }));
  const root = { ...(below.nodes[0] as FlameNode), path: [], depth: 0, self: 0n, truncated: 0n };
  const callers: FlameTree = { ...below, nodes: [root, ...nodes] };
  const callees = await fetchFlame(serverUrl, { query: withTransform({ showFrom: { name } }) });
  return { callers, callees };
}

/** Returns the total of each path in a tree of the response. */
function totalsOfTree({ names, nodes }: JsonMessage): Map<string, bigint> {
  const paths: string[][] = [];
  const totals = new Map<string, bigint>();
  for (const [index, node] of nodes.entries()) {
    const path = index === 0 ? [] : [...(paths[node.parent ?? 0] as string[]), names[node.name ?? 0]];
    paths.push(path);
    totals.set(path.join("\n"), BigInt(node.total ?? 0));
  }
  return totals;
}

for (const name of [MARSHAL, "shop/tree.walk"]) {
  test(`numbers of ${name} equal the API and the plain list of stacks`, async ({
    openShop,
    callShop,
    shopQuery,
    shopSite,
  }) => {
    const page = await openShop({ w: "sandwich" });
    await page.getByRole("grid", { name: "Functions" }).getByRole("row", { name }).click();
    const response = await callShop(SANDWICH, { query: shopQuery(), function: name });
    const total = BigInt(response.total);
    const self = BigInt(response.self);
    expect(functionsOf(shopSite.shop.checkout).get(name)).toEqual({ self, total });
    const bar = page.locator(".sandwich-function");
    await expect(bar).toContainText(name);
    await expect(bar.locator("strong[title]").nth(1)).toHaveAttribute(
      "title",
      formatExact(total, "nanoseconds"),
    );
    await expect(bar).toContainText(
      `total ${formatValue(total, "nanoseconds")} (${formatPercent(total, BigInt(response.queryTotal))})`,
    );
    await expect(bar).toContainText(
      `self ${formatValue(self, "nanoseconds")} (${formatPercent(self, total)} of its total)`,
    );
    const halves = await fetchHalves(shopSite.api, shopQuery(), name);
    for (const half of ["callers", "callees"] as const) {
      const panel = halfOf(page, half);
      const tree = halves[half];
      const expected = totalsOfTree(response[half]);
      await expect(panel.summary).toContainText(`${expected.size} frames`);
      expect(tree.nodes.map(({ path, total }) => [path.join("\n"), total]).sort()).toEqual(
        [...expected].sort(),
      );
      for (const node of tree.nodes.slice(1, 6)) {
        await expect(async () => {
          await panel.hover(tree, node);
          await expect(panel.tooltip).toContainText(node.name, { timeout: 500 });
        }).toPass();
        const facts = await panel.facts();
        expect(facts["Total"]).toContain(formatValue(node.total, "nanoseconds"));
        expect(Object.values(facts)).toContain(formatPercent(node.total, BigInt(response.queryTotal)));
      }
      await page.mouse.move(0, 0);
    }
    await page.reload();
    await expect(bar).toContainText(name);
    await page.getByRole("button", { name: "Choose another" }).click();
    await expect(page.getByRole("grid", { name: "Functions" })).toBeVisible();
  });
}

test("view with too many transforms says how many a sandwich allows", async ({ openShop, page }) => {
  const ignored = Array.from({ length: 31 }, (_, index) => `ignore=none${index}`);
  await openShop({ w: "sandwich", fn: MARSHAL, x: ignored });
  await expect(page.getByRole("alert")).toContainText(/limit is 32, but this view has 31\. Remove one\./);
  await page.getByRole("button", { name: "Remove Ignore none0" }).click();
  await expect(page.locator(".sandwich-function")).toContainText(MARSHAL);
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("parts of different times are loaded until they agree", async ({ page, startOwnSite, calls }) => {
  const { api, url, proxy } = await startOwnSite({ needsProxy: true });
  if (proxy === undefined) throw new Error("the site has no proxy");
  const end = Math.floor(Date.now() / 60_000) * 60_000;
  const push = { name: "shop.cpu", fromMs: end - 120_000, extra: { sampleRate: "1000000000" } };
  await pushFile(api, "main;work 3000\nmain;rest 1000\n", push);
  const older = { total: "1500", self: "1500", queryTotal: "2000", unit: "nanoseconds" };
  let olderResponses = 1;
  proxy.replace = (path) =>
    path.endsWith(SANDWICH) && olderResponses-- > 0
      ? { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify(older) }
      : undefined;
  const view = { p: "explore", y: CPU_TYPE, f: String(end - 3_600_000), u: String(end), w: "sandwich" };
  const bar = page.locator(".sandwich-function");
  const sandwichCalls = () => calls.filter(({ method }) => method === SANDWICH).length;
  await page.goto(linkTo(url, { ...view, fn: "work" }));
  await expect(bar).toContainText(`total ${formatValue(3_000n, "nanoseconds")} (${formatPercent(3n, 4n)})`);
  await expect(bar).not.toContainText("profiles arrived");
  expect(sandwichCalls()).toBe(2);
  olderResponses = Number.POSITIVE_INFINITY;
  await page.getByRole("button", { name: "Refresh now" }).click();
  await expect(bar).toContainText("profiles arrived while it loaded");
  await expect(bar).toContainText(`total ${formatValue(1_500n, "nanoseconds")} (${formatPercent(3n, 4n)})`);
  expect(sandwichCalls()).toBe(4);
  const { callees } = await fetchHalves(
    api,
    { profileType: CPU_TYPE, selector: "{}", start: view.f, end: view.u },
    "work",
  );
  const panel = halfOf(page, "callees");
  await panel.hover(callees, nodeAt(callees, ["work"]));
  await expect(panel.tooltip).toContainText("work");
  expect(Object.values(await panel.facts())).toContain(formatPercent(3n, 4n));
});

test("values of gauges are averages in the bar and in both halves", async ({
  openShop,
  page,
  callShop,
  shopQuery,
  shopSite,
}) => {
  const selector = '{service_name="cart"}';
  const name = "shop/cart.(*Cart).Add";
  const query = shopQuery({ profileType: HEAP_TYPE, selector });
  const { callees: tree, ...response } = await callShop(SANDWICH, { query, function: name });
  await openShop({ y: HEAP_TYPE, q: selector, w: "sandwich", fn: name });
  const bar = page.locator(".sandwich-function");
  const total = formatValue(BigInt(response.total), "bytes");
  await expect(bar).toContainText(`total ${total} (${formatPercent(1n, 1n)})`);
  await expect(bar).toContainText("averages");
  const panel = halfOf(page, "callees");
  await expect(panel.summary).toContainText(`${total} on average`);
  const { callees } = await fetchHalves(shopSite.api, query, name);
  for (const node of callees.nodes.slice(1)) {
    await panel.hover(callees, node);
    await expect(panel.tooltip).toContainText(node.name);
    const average = totalsOfTree(tree).get(node.path.join("\n"));
    expect((await panel.facts())["Total"]).toContain(formatValue(average ?? -1n, "bytes"));
  }
});

test("hidden callers and callees open where they are", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite({ settings: ["limits.max_flamegraph_nodes_max=4000"] });
  const end = Math.floor(Date.now() / 60_000) * 60_000;
  // Each half has more frames than a graph. The last groups are the lightest.
  const groups = 20;
  const members = 300;
  const lines: string[] = [];
  for (let group = 0; group < groups; group++) {
    for (let member = 0; member < members; member++)
      lines.push(`in${member};from${group};target;to${group};out${member} ${groups - group}`);
  }
  const push = { name: "crowd.cpu", fromMs: end - 120_000, extra: { sampleRate: "1000000000" } };
  await pushFile(api, `${lines.join("\n")}\n`, push);
  const range = { start: String(end - 3_600_000), end: String(end) };
  const halves = await fetchHalves(api, { profileType: CPU_TYPE, selector: "{}", ...range }, "target");
  const view = { p: "explore", y: CPU_TYPE, f: range.start, u: range.end, w: "sandwich", fn: "target" };
  await page.goto(linkTo(url, view));
  for (const [half, prefix] of [
    ["callers", "from"],
    ["callees", "to"],
  ] as const) {
    const panel = halfOf(page, half);
    const tree = halves[half];
    const all = 2 + groups + groups * members;
    await expect(panel.summary).toContainText(`${formatExact(BigInt(tree.nodes.length), "")} of`);
    await expect(panel.summary).toContainText(formatExact(BigInt(all), ""));
    const hidden = tree.nodes.find(({ total, truncated }) => truncated > 0n && truncated === total);
    if (hidden === undefined) throw new Error(`no frame of ${half} is truncated`);
    expect(hidden.name.startsWith(prefix)).toBe(true);
    const box = { ...hidden, depth: hidden.depth + 1 };
    await expect(async () => {
      await panel.hover(tree, box);
      await expect(panel.tooltip).toContainText(/hidden/i, { timeout: 500 });
    }).toPass();
    await panel.click(tree, box);
    await expect(panel.summary).toContainText(`${formatExact(BigInt(tree.nodes.length + members), "")} of`);
    // The view has not moved: the frame is where it was.
    await expect(async () => {
      await panel.hover(tree, hidden);
      await expect(panel.tooltip).toContainText(hidden.name, { timeout: 500 });
    }).toPass();
    const facts = await panel.facts();
    expect(facts["Hidden below"]).toBeUndefined();
    expect(facts["Total"]).toContain(formatValue(hidden.total, "nanoseconds"));
    await page.mouse.move(0, 0);
  }
});

test("menu and keys of both halves mean functions, whatever the frames of the graph are", async ({
  openShop,
  page,
  shopSite,
  shopQuery,
}) => {
  const serve = "net/http.(*Server).Serve";
  const total = "shop/cart.(*Cart).Total";
  await openShop({ w: "sandwich", fn: MARSHAL, fr: "package" });
  const { callers, callees } = await fetchHalves(shopSite.api, shopQuery(), MARSHAL);
  const panel = halfOf(page, "callers");
  await panel.ready();
  const copied = async (item: string, message: string) => {
    await panel.click(callers, nodeAt(callers, [MARSHAL, total, serve]), undefined, "right");
    await page.getByRole("menuitem", { name: item }).click();
    await expect(page.getByText(message)).toBeVisible();
    return page.evaluate(() => navigator.clipboard.readText());
  };
  expect(await copied("Copy stack", "Copied the stack.")).toBe([MARSHAL, total, serve].join("\n"));
  const link = await copied("Copy link to its sandwich", "Copied the link.");
  expect(new URL(link).searchParams.get("fn")).toBe(serve);
  await halfOf(page, "callees").click(callees, nodeAt(callees, [MARSHAL, "runtime.mallocgc"]));
  await halfOf(page, "callees").surface.focus();
  await page.keyboard.press("i");
  await expect(page.getByRole("list", { name: /Transforms/ }).getByRole("listitem")).toHaveText([
    "Ignoreruntime.mallocgc",
  ]);
});

/** Returns the color that the canvas of a graph has at a node. */
async function colorAt(panel: FlamePanel, tree: FlameTree, node: FlameNode): Promise<string> {
  const { x, y } = await panel.pointOf(tree, node);
  return panel.panel
    .locator(".flame-canvases canvas")
    .first()
    .evaluate(
      (canvas: HTMLCanvasElement, point) => {
        const bounds = canvas.getBoundingClientRect();
        const scale = canvas.width / bounds.width;
        const context = canvas.getContext("2d") as CanvasRenderingContext2D;
        const at = [(point.x - bounds.left) * scale, (point.y - bounds.top) * scale] as const;
        return [...context.getImageData(Math.round(at[0]), Math.round(at[1]), 1, 1).data].join(" ");
      },
      // Above the text of the frame.
      { x, y: y - 8 },
    );
}

test("frames have the colors of their packages, as in the graph", async ({
  openShop,
  page,
  shopSite,
  shopQuery,
}) => {
  const name = "shop/cart.(*Cart).Total";
  await openShop({ w: "sandwich,icicle", fn: name });
  const graph = flamePanel(page, "icicle");
  await graph.ready();
  const whole = await fetchFlame(shopSite.api, { query: shopQuery() });
  const { callers, callees } = await fetchHalves(shopSite.api, shopQuery(), name);
  const colorOf = (panel: FlamePanel, tree: FlameTree, ...path: string[]) =>
    colorAt(panel, tree, nodeAt(tree, path));
  const serve = ["main.main", "net/http.(*Server).Serve"];
  const colors = {
    total: await colorOf(halfOf(page, "callees"), callees, name),
    marshal: await colorOf(halfOf(page, "callees"), callees, name, MARSHAL),
    serve: await colorOf(halfOf(page, "callers"), callers, name, "net/http.(*Server).Serve"),
  };
  expect(new Set(Object.values(colors)).size, JSON.stringify(colors)).toBe(3);
  expect(colors).toEqual({
    total: await colorOf(graph, whole, ...serve, name),
    marshal: await colorOf(graph, whole, ...serve, name, MARSHAL),
    serve: await colorOf(graph, whole, ...serve),
  });
});
