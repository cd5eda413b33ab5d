// Transforms, menus, groupings and keys of the graph. Numbers after each equal those of plain lists of stacks.
import type { Page } from "@playwright/test";
import { formatPercent, formatValue } from "../app/theme/format";
import { pushFile } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { type FlamePanel, fetchFlame, flamePanel, nodeAt } from "./support/flame";
import { CPU_TYPE, totalOf, type WeighedStack } from "./support/shop";
import { readTable } from "./support/table";

const SERVE = "net/http.(*Server).Serve";
const TOTAL = "shop/cart.(*Cart).Total";
const MARSHAL = "encoding/json.Marshal";
const MARSHAL_PATH = ["main.main", SERVE, TOTAL, MARSHAL];

/** Transform by menu and key, and its effect on a plain list of stacks. */
interface TransformCase {
  readonly item: string;
  readonly chip: string;
  readonly key?: string;
  readonly transform: Record<string, { name: string }>;
  apply(stacks: readonly WeighedStack[], name: string): readonly WeighedStack[];
}

const keepNames = (stacks: readonly WeighedStack[], keep: (names: readonly string[]) => readonly string[]) =>
  stacks.map(({ names, value }) => ({ names: keep(names), value })).filter(({ names }) => names.length > 0);

const CASES: readonly TransformCase[] = [
  {
    ...{ item: "Focus on this function", chip: "Focus", key: "f", transform: { focus: { name: MARSHAL } } },
    apply: (stacks, name) => stacks.filter(({ names }) => names.includes(name)),
  },
  {
    ...{ item: "Ignore this function", chip: "Ignore", key: "i", transform: { ignore: { name: MARSHAL } } },
    apply: (stacks, name) => stacks.filter(({ names }) => !names.includes(name)),
  },
  {
    ...{ item: "Hide this function", chip: "Hide", key: "h", transform: { hide: { name: MARSHAL } } },
    apply: (stacks, name) => keepNames(stacks, (names) => names.filter((other) => other !== name)),
  },
  {
    ...{ item: "Show only this function", chip: "Show only", transform: { show: { name: MARSHAL } } },
    apply: (stacks, name) => keepNames(stacks, (names) => names.filter((other) => other === name)),
  },
  {
    ...{ item: "Show from here", chip: "Show from", key: "s", transform: { showFrom: { name: MARSHAL } } },
    apply: (stacks, name) =>
      keepNames(stacks, (names) => (names.includes(name) ? names.slice(names.indexOf(name)) : [])),
  },
  {
    item: "Collapse everything below",
    chip: "Collapse below",
    transform: { collapseBelow: { name: MARSHAL } },
    apply: (stacks, name) =>
      keepNames(stacks, (names) => (names.includes(name) ? names.slice(0, names.indexOf(name) + 1) : names)),
  },
];

/** Returns the number of different paths, with the root. */
function countNodes(stacks: readonly WeighedStack[]): number {
  const paths = new Set<string>();
  for (const { names } of stacks)
    names.forEach((_, depth) => {
      paths.add(names.slice(0, depth + 1).join("\n"));
    });
  return paths.size + 1;
}

async function expectStacks(panel: FlamePanel, stacks: readonly WeighedStack[]): Promise<void> {
  const nodes = countNodes(stacks);
  await expect(panel.summary).toHaveText(`${formatValue(totalOf(stacks), "nanoseconds")} · ${nodes} frames`);
}

for (const { item, chip, key, transform, apply } of CASES) {
  test(`${chip} by menu${key === undefined ? "" : ` and key ${key}`}`, async ({
    openShop,
    shopQuery,
    shopSite,
  }) => {
    const page = await openShop({ w: "icicle" });
    const panel = flamePanel(page, "icicle");
    await panel.ready();
    const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
    const { checkout } = shopSite.shop;
    await panel.click(tree, nodeAt(tree, MARSHAL_PATH), undefined, "right");
    await page.getByRole("menuitem", { name: item }).click();
    const expected = apply(checkout, MARSHAL);
    await expectStacks(panel, expected);
    const { response } = await fetchFlame(shopSite.api, { query: shopQuery({ transforms: [transform] }) });
    expect([BigInt(response.total), Number(response.fullNodes)]).toEqual([
      totalOf(expected),
      countNodes(expected),
    ]);
    const chips = page.getByRole("list", { name: /Transforms/ }).getByRole("listitem");
    await expect(chips).toHaveText([`${chip}${MARSHAL}`]);
    await page.reload();
    await expect(chips).toHaveText([`${chip}${MARSHAL}`]);
    await expectStacks(panel, expected);
    await page.getByRole("button", { name: `Remove ${chip} ${MARSHAL}` }).click();
    await expect(chips).toHaveCount(0);
    await expectStacks(panel, checkout);
    if (key === undefined) return;
    await page.goto(`${page.url()}&n=${encodeURIComponent(MARSHAL_PATH.join(";"))}`);
    await panel.ready();
    await selectByKeys(page, panel, MARSHAL_PATH);
    await page.keyboard.press(key);
    await expect(chips).toHaveText([`${chip}${MARSHAL}`]);
    await expectStacks(panel, expected);
  });
}

/** Selects a node whose path consists of heaviest callees. */
async function selectByKeys(page: Page, panel: FlamePanel, path: readonly string[]): Promise<void> {
  await panel.surface.focus();
  await page.keyboard.press("Home");
  const live = panel.panel.locator('[aria-live="polite"]');
  for (const name of path) {
    await page.keyboard.press("ArrowDown");
    await expect(live).toContainText(name);
  }
}

test("recursion collapses by menu, and transforms apply in their order", async ({
  openShop,
  shopQuery,
  shopSite,
}) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
  await panel.click(tree, nodeAt(tree, ["main.main", "shop/tree.walk"]), undefined, "right");
  await page.getByRole("menuitem", { name: "Collapse recursion" }).click();
  const folded = shopSite.shop.checkout.map(({ names, value }) => ({
    names: names.filter((name, index) => name !== "shop/tree.walk" || names.lastIndexOf(name) === index),
    value,
  }));
  await expectStacks(panel, folded);
  await page.getByTitle("Transform stacks").click();
  await page.getByRole("combobox", { name: "Transform" }).selectOption("ignore");
  await page.getByRole("textbox", { name: /Function, or/ }).fill("/^runtime\\./");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await expectStacks(
    panel,
    folded.filter(({ names }) => !names.some((name) => name.startsWith("runtime."))),
  );
  await expect(page.getByRole("list", { name: /Transforms/ }).getByRole("listitem")).toHaveCount(2);
});

test("menu opens sandwich and table, copies name, stack and link", async ({
  openShop,
  shopQuery,
  shopSite,
}) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
  const choose = async (item: string) => {
    await panel.ready();
    await panel.click(tree, nodeAt(tree, MARSHAL_PATH), undefined, "right");
    await page.getByRole("menuitem", { name: item }).click();
  };
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await choose("Copy name");
  await expect(page.getByText("Copied the name.")).toBeVisible();
  expect(await copied()).toBe(MARSHAL);
  await choose("Copy stack");
  await expect(page.getByText("Copied the stack.")).toBeVisible();
  expect(await copied()).toBe([...MARSHAL_PATH].reverse().join("\n"));
  await choose("Copy link to this frame");
  await expect(page.getByText("Copied the link.")).toBeVisible();
  const link = await copied();
  await choose("Show in table");
  await expect
    .poll(async () =>
      (await readTable(page.getByRole("grid", { name: "Functions" }))).map((row) => row["Function"]),
    )
    .toEqual([MARSHAL]);
  await page.goBack();
  await choose("Open in sandwich");
  await expect(page.locator(".sandwich-function")).toContainText(MARSHAL);
  await page.goto(link);
  await panel.ready();
  await expect(panel.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button")).toHaveText([
    "all",
    ...MARSHAL_PATH,
  ]);
});

test("menu opens by Shift-F10 and returns the focus", async ({ openShop }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await selectByKeys(page, panel, ["main.main", SERVE]);
  await page.keyboard.press("Shift+F10");
  await expect(page.getByRole("menu", { name: SERVE })).toBeVisible();
  await expect(page.getByRole("menuitem").first()).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(page.getByRole("menuitem").nth(1)).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("menu")).toBeHidden();
  await expect(panel.surface).toBeFocused();
});

test("long press opens the menu", async ({ openShop, shopQuery, shopSite }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
  const { x, y } = await panel.pointOf(tree, nodeAt(tree, MARSHAL_PATH));
  const touch = { pointerId: 7, pointerType: "touch", isPrimary: true, clientX: x, clientY: y, button: 0 };
  await panel.surface.dispatchEvent("pointerdown", touch);
  await expect(page.getByRole("menu", { name: MARSHAL })).toBeVisible();
});

test("keys move between frames, zoom, go back and copy", async ({ openShop, shopQuery, shopSite }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
  const live = panel.panel.locator('[aria-live="polite"]');
  await selectByKeys(page, panel, MARSHAL_PATH);
  const node = nodeAt(tree, MARSHAL_PATH);
  await expect(live).toContainText(
    `total ${formatValue(node.total, "nanoseconds")}, ${formatPercent(node.total, totalOf(shopSite.shop.checkout))} of all`,
  );
  await page.keyboard.press("ArrowRight");
  await expect(live).toContainText("shop/tax.Rate");
  await page.keyboard.press("ArrowLeft");
  await expect(live).toContainText(MARSHAL);
  await page.keyboard.press("ArrowUp");
  await expect(live).toContainText(TOTAL);
  const parts = panel.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button");
  await page.keyboard.press("Enter");
  await expect(parts).toHaveText(["all", "main.main", SERVE, TOTAL]);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(parts).toHaveText(["all", ...MARSHAL_PATH]);
  await page.keyboard.press("c");
  await expect(page.getByText("Copied the name.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(MARSHAL);
  await page.keyboard.press("Escape");
  await expect(parts).toHaveText(["all", "main.main", SERVE, TOTAL]);
  await page.keyboard.press("Escape");
  await expect(parts).toHaveText(["all"]);
});

test("screen readers hear of the selection in the graph that is shown", async ({ openShop }) => {
  const path = ["main.main", "net/http.(*Server).Serve", "shop/cart.(*Cart).Total"];
  const page = await openShop({ w: "icicle", n: path.join(";") });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await panel.surface.focus();
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowDown");
  const live = panel.panel.locator('[aria-live="polite"]');
  await expect(live).toContainText("Cart).Total");
  await expect(live).not.toContainText("100 % of all");
  await page.keyboard.press("f");
  await expect(live).toContainText(/Cart\)\.Total; total .*, 100 % of all/);
  await page.keyboard.press("h");
  await expect(live).toContainText("no frame is selected; all; total");
});

test("refresh of a graph without the focus is not spoken", async ({ page, shopSite }) => {
  const { start, end } = shopSite.shop;
  const push = (work: number, fromMs: number) =>
    pushFile(shopSite.api, `main;work ${work}\n`, { name: "spoken.cpu", fromMs });
  await push(50, end - 60_000);
  const range = { y: CPU_TYPE, f: String(start), u: String(end) };
  await page.goto(
    linkTo(shopSite.url, { p: "explore", ...range, q: '{service_name="spoken"}', w: "icicle" }),
  );
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await panel.surface.focus();
  await page.keyboard.press("ArrowDown");
  const live = panel.panel.locator('[aria-live="polite"]');
  await expect(live).toContainText("main; total 500 ms");
  await push(70, end - 50_000);
  await page.getByRole("button", { name: "Refresh now" }).click();
  await expect(panel.summary).toContainText("1.20 s");
  await expect(live).toContainText("main; total 500 ms");
  await push(10, end - 40_000);
  await panel.surface.focus();
  await page.evaluate(() => document.querySelector<HTMLElement>('[aria-label="Refresh now"]')?.click());
  await expect(live).toContainText("main; total 1.30 s");
});

test("Escape follows Back of the browser and other frames", async ({ openShop }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const parts = panel.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button");
  const zoomTwice = async () => {
    await selectByKeys(page, panel, ["main.main"]);
    await page.keyboard.press("Enter");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await expect(parts).toHaveText(["all", "main.main", SERVE]);
  };
  await zoomTwice();
  await page.goBack();
  // The second zoom, and the selection of its frame.
  await page.goBack();
  await expect(parts).toHaveText(["all", "main.main"]);
  await page.keyboard.press("Escape");
  await expect(parts).toHaveText(["all"]);
  await zoomTwice();
  await page.getByRole("combobox", { name: "Frames" }).selectOption("file");
  await expect(parts).toHaveText(["all"]);
  await expect(panel.panel.getByRole("application")).toBeVisible();
  await panel.surface.focus();
  await page.keyboard.press("Escape");
  await expect(parts).toHaveText(["all"]);
  expect(new URL(page.url()).searchParams.get("z")).toBeNull();
  await expect(page.getByText("does not exist in this graph")).toHaveCount(0);
});

for (const [frames, groupBy] of [
  ["line", "GRAPH_GROUP_BY_LINE"],
  ["file", "GRAPH_GROUP_BY_FILE"],
  ["package", "GRAPH_GROUP_BY_PACKAGE"],
  ["binary", "GRAPH_GROUP_BY_BINARY"],
] as const) {
  test(`frames by ${frames} equal the API`, async ({ openShop, shopQuery, shopSite }) => {
    const page = await openShop({ w: "icicle" });
    const panel = flamePanel(page, "icicle");
    await panel.ready();
    await page.getByRole("combobox", { name: "Frames" }).selectOption(frames);
    const { response, nodes } = await fetchFlame(shopSite.api, { query: shopQuery(), groupBy });
    await expect(panel.summary).toHaveText(
      `${formatValue(BigInt(response.total), "nanoseconds")} · ${nodes.length} frames`,
    );
  });
}

test("grouping by a label waits for its name", async ({ openShop, page }) => {
  await openShop({ w: "icicle", fr: "file" });
  await flamePanel(page, "icicle").ready();
  const frames = page.getByRole("combobox", { name: "Frames" });
  await frames.selectOption("label…");
  const label = page.getByRole("combobox", { name: "Label", exact: true });
  await expect(label).toBeVisible();
  expect(new URL(page.url()).searchParams.get("fr")).toBe("file");
  await label.fill("pod");
  await label.press("Enter");
  await expect.poll(() => new URL(page.url()).searchParams.get("fr")).toBe("label:pod");
  await page.goBack();
  await expect(frames).toHaveValue("file");
  await expect(label).toBeHidden();
});

test("frames by a label and the inverted graph equal the API", async ({ openShop, shopQuery, shopSite }) => {
  const page = await openShop({ w: "icicle", fr: "label:pod" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const byPod = await fetchFlame(shopSite.api, { query: shopQuery(), groupByLabel: "pod" });
  await expect(panel.summary).toContainText(`${byPod.nodes.length} frames`);
  const pod = byPod.nodes[1];
  if (pod === undefined) throw new Error("the graph has no pod");
  await panel.hover(byPod, pod);
  await expect(panel.tooltip).toContainText(pod.name);
  await page.getByRole("combobox", { name: "Frames" }).selectOption("function");
  await page.getByRole("button", { name: "Invert" }).click();
  const inverted = await fetchFlame(shopSite.api, { query: shopQuery(), invert: true });
  await expect(panel.summary).toContainText(`${inverted.nodes.length} frames`);
  const leaf = inverted.nodes[1];
  if (leaf === undefined) throw new Error("the inverted graph has no leaf");
  await panel.hover(inverted, leaf);
  await expect(panel.tooltip).toContainText(leaf.name);
  expect((await panel.facts())["Total"]).toBe(formatValue(leaf.total, "nanoseconds"));
});
