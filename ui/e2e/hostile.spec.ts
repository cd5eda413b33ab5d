// Hostile names and large sets of labels show as text and stay usable.
import { formatPercent, formatValue } from "../app/theme/format";
import { callApi, pushSeries } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { fetchFlame, flamePanel, nodeAt } from "./support/flame";
import { encodePprof } from "./support/pprof";
import { CPU_TYPE } from "./support/shop";
import { readTable } from "./support/table";

const MARKUP = '<img src=x onerror="alert(1)">';
const RIGHT_TO_LEFT = "safe\u202Egpj.exe\u202C";
const LONG = `long::${"x".repeat(10_240)}::end`;

const NAMES = [MARKUP, RIGHT_TO_LEFT, LONG, "", "__proto__", "a;b\\c\td"];

/** Pushes a profile with a stack for each name. Returns the range that contains it, as parameters of a link. */
async function pushNames(api: string): Promise<{ readonly f: string; readonly u: string }> {
  const end = Math.floor(Date.now() / 60_000) * 60_000;
  const profile = encodePprof({
    ...{ type: ["cpu", "nanoseconds"], periodType: ["cpu", "nanoseconds"], period: 1n },
    ...{ timeMs: end - 60_000, durationMs: 10_000 },
    samples: NAMES.map((name, index) => ({
      stack: [{ name: "main" }, { name, file: MARKUP, binary: MARKUP }, { name: "leaf" }],
      value: BigInt(10 + index),
    })),
  });
  const labels = { __name__: "process_cpu", service_name: MARKUP, pod: RIGHT_TO_LEFT };
  await pushSeries(api, [{ labels, profile }]);
  return { f: String(end - 3_600_000), u: String(end) };
}

test("hostile names are text in every view", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite();
  const range = await pushNames(api);
  await page.goto(linkTo(url, { ...range, y: CPU_TYPE }));
  await expect(page.getByRole("row").filter({ hasText: MARKUP })).toBeVisible();
  await page.getByRole("row").filter({ hasText: MARKUP }).click();
  await flamePanel(page).ready();
  expect(await page.locator("img[src='x']").count()).toBe(0);
  const query = { profileType: CPU_TYPE, selector: "{}", start: range.f, end: range.u };
  const { rows } = await callApi(api, "athanor.v1.ExploreService/Functions", { query });
  await page.goto(linkTo(url, { ...range, p: "explore", y: CPU_TYPE, w: "table,icicle", g: "pod" }));
  const grid = page.getByRole("grid", { name: "Functions" });
  await expect(grid).toHaveAttribute("aria-rowcount", String(rows.length + 1));
  const shown = await readTable(grid);
  expect(shown.map((row) => row["Function"])).toContain(MARKUP);
  expect(await page.locator("img[src='x']").count()).toBe(0);
  for (const row of shown) expect(row["Function"], "no control characters").not.toMatch(/[\u202A-\u202E\t]/);
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await panel.surface.focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  for (let sibling = 0; sibling < NAMES.length; sibling++) {
    await page.keyboard.press("Enter");
    await expect(panel.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button")).toHaveCount(3);
    await page.keyboard.press("Shift+F10");
    await expect(page.getByRole("menu")).toBeVisible();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await page.keyboard.press("ArrowRight");
  }
  const tree = await fetchFlame(api, { query });
  await page.goto(linkTo(url, { ...range, p: "explore", y: CPU_TYPE, w: "icicle" }));
  await panel.ready();
  await panel.hover(tree, nodeAt(tree, ["main", ""]));
  await expect(panel.tooltip).toContainText(
    `In all places${formatValue(10n + BigInt(NAMES.indexOf("")), "nanoseconds")}`,
  );
  for (const view of ["tree", "sandwich"]) {
    await page.goto(linkTo(url, { ...range, p: "explore", y: CPU_TYPE, w: view, fn: MARKUP }));
    await expect(page.locator("main")).toContainText(view === "sandwich" ? MARKUP : "main");
  }
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  expect(overflow).toBeLessThanOrEqual(0);
});

const NO_NAME = "(no name)";

test("function with an empty name has a sandwich, transforms and a search", async ({
  page,
  startOwnSite,
}) => {
  const { api, url } = await startOwnSite();
  const range = await pushNames(api);
  const query = { profileType: CPU_TYPE, selector: "{}", start: range.f, end: range.u };
  const explore = { ...range, p: "explore", y: CPU_TYPE };
  const grid = page.getByRole("grid", { name: "Functions" });
  const row = grid.getByRole("row").filter({ hasText: NO_NAME });
  const openMenuItem = async (name: string) => {
    await row.click({ button: "right" });
    await expect(page.getByRole("menu", { name: NO_NAME })).toBeVisible();
    await page.getByRole("menuitem", { name }).click();
  };
  const bar = page.locator(".sandwich-function");
  const sandwich = await callApi(api, "athanor.v1.ExploreService/Sandwich", { query, function: "" });
  const total = BigInt(sandwich.total);
  expect(total).toBe(10n + BigInt(NAMES.indexOf("")));
  const expectSandwich = async () => {
    await expect(bar.locator("strong").first()).toHaveText(NO_NAME);
    const share = formatPercent(total, BigInt(sandwich.queryTotal));
    await expect(bar).toContainText(`total ${formatValue(total, "nanoseconds")} (${share})`);
    for (const half of ["callers", "callees"]) {
      const part = page.locator(`.sandwich-part${half === "callers" ? ".is-callers" : ":not(.is-callers)"}`);
      await expect(part.locator(".flame-summary")).toContainText(`${sandwich[half].nodes.length} frames`);
    }
  };
  await page.goto(linkTo(url, { ...explore, w: "table" }));
  await openMenuItem("Open in sandwich");
  await expectSandwich();
  expect(new URL(page.url()).searchParams.get("fn")).toBe("");
  await page.reload();
  await expectSandwich();
  await page.goBack();
  await expect(row).toBeVisible();
  expect(new URL(page.url()).searchParams.has("fn")).toBe(false);
  await page.goto(linkTo(url, { ...explore, w: "sandwich", fn: "" }));
  await expectSandwich();
  await page.getByRole("button", { name: "Choose another" }).click();
  await row.click();
  await expectSandwich();

  await page.goto(linkTo(url, { ...explore, w: "table" }));
  await openMenuItem("Show in table");
  await expect(grid).toHaveAttribute("aria-rowcount", "2");
  await expect(row.locator("[data-value]").nth(1)).toHaveAttribute("data-value", String(total));
  for (const [item, chip, transform] of [
    ["Ignore this function", "Ignore", { ignore: { name: "" } }],
    ["Focus on this function", "Focus", { focus: { name: "" } }],
    ["Collapse recursion", "Collapse recursion", { collapseRecursion: { name: "" } }],
  ] as const) {
    await page.goto(linkTo(url, { ...explore, w: "table" }));
    await openMenuItem(item);
    const chips = page.getByRole("list", { name: /Transforms/ }).getByRole("listitem");
    await expect(chips).toHaveText([`${chip}${NO_NAME}`]);
    const transformed = { ...query, transforms: [transform] };
    const { rows, total: rest } = await callApi(api, "athanor.v1.ExploreService/Functions", {
      query: transformed,
    });
    await expect(grid).toHaveAttribute("aria-rowcount", String(rows.length + 1));
    await expect(page.locator(".table-summary")).toContainText(formatValue(BigInt(rest), "nanoseconds"));
    await page.reload();
    await expect(chips).toHaveText([`${chip}${NO_NAME}`]);
  }

  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Service, function/ }).fill("no name");
  await page.getByRole("option", { name: `${NO_NAME} Function` }).click();
  await expect(bar.locator("strong").first()).toHaveText(NO_NAME);
});

const LABEL_VALUES = Number(process.env["UI_LABEL_VALUES"] ?? 100_000);
/** Factor of the times that the server has, compared with the usual number of values. */
const TIME_FACTOR = Math.max(1, LABEL_VALUES / 100_000);
const QUERY_TIMEOUT_MS = 10_000 * TIME_FACTOR;
const SAMPLES_PER_PROFILE = 10_000;

test("labels complete among 100 000 values", async ({ page, startOwnSite }) => {
  test.setTimeout(120_000 * TIME_FACTOR);
  const { api, url } = await startOwnSite({ settings: ["limits.max_label_names_per_series=30"] });
  const end = Math.floor(Date.now() / 60_000) * 60_000;
  for (let first = 0; first < LABEL_VALUES; first += SAMPLES_PER_PROFILE) {
    const samples = Array.from({ length: SAMPLES_PER_PROFILE }, (_, index) => ({
      stack: [{ name: "main" }],
      value: 1n,
      labels: { request: `request-${String(first + index).padStart(6, "0")}` },
    }));
    const profile = encodePprof({
      ...{ type: ["cpu", "nanoseconds"], periodType: ["cpu", "nanoseconds"], period: 1n },
      ...{ timeMs: end - 60_000 - first, durationMs: 1_000, samples },
    });
    await pushSeries(api, [{ labels: { __name__: "process_cpu", service_name: "shop" }, profile }]);
  }
  const range = { start: String(end - 3_600_000), end: String(end) };
  const { names } = await callApi(api, "querier.v1.QuerierService/LabelValues", {
    name: "request",
    ...range,
  });
  expect(names).toHaveLength(LABEL_VALUES);
  await page.goto(linkTo(url, { p: "explore", y: CPU_TYPE, f: range.start, u: range.end }));
  await expect(flamePanel(page).summary).toContainText("frames", { timeout: QUERY_TIMEOUT_MS });
  await page.getByRole("button", { name: "+ Label" }).click();
  const name = page.getByRole("combobox", { name: "Label name" });
  await name.fill("req");
  await page.getByRole("option", { name: /^request/ }).click();
  const value = page.getByRole("combobox", { name: "Label value" });
  await expect(value).toBeFocused();
  const started = Date.now();
  await value.fill("request-04242");
  await expect(page.getByRole("listbox", { name: "Label value" }).getByRole("option")).toHaveCount(10);
  expect(Date.now() - started, "time of a completion").toBeLessThan(3_000);
  await value.fill("request-");
  await expect(page.getByText("More match; type on.")).toBeVisible();
  await value.fill("request-042424");
  await page.getByRole("option", { name: "request-042424" }).click();
  await expect(page.locator(".chip")).toContainText("request-042424");
  await expect(flamePanel(page).summary).toContainText("2 frames", { timeout: QUERY_TIMEOUT_MS });
  expect(new URL(page.url()).searchParams.get("q")).toContain('request="request-042424"');
});
