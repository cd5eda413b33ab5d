// Hostile names and large sets of labels show as text and stay usable.
import { formatValue } from "../app/theme/format";
import { callApi, pushSeries } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { fetchFlame, flamePanel, nodeAt } from "./support/flame";
import { encodePprof } from "./support/pprof";
import { CPU_TYPE } from "./support/shop";
import { readTable } from "./support/table";

const MARKUP = '<img src=x onerror="alert(1)">';
const RIGHT_TO_LEFT = "safe\u202Egpj.exe\u202C";
const LONG = `long::${"x".repeat(10_240)}::end`;

test("hostile names are text in every view", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite();
  const end = Math.floor(Date.now() / 60_000) * 60_000;
  const names = [MARKUP, RIGHT_TO_LEFT, LONG, "", "__proto__", "a;b\\c\td"];
  const profile = encodePprof({
    ...{ type: ["cpu", "nanoseconds"], periodType: ["cpu", "nanoseconds"], period: 1n },
    ...{ timeMs: end - 60_000, durationMs: 10_000 },
    samples: names.map((name, index) => ({
      stack: [{ name: "main" }, { name, file: MARKUP, binary: MARKUP }, { name: "leaf" }],
      value: BigInt(10 + index),
    })),
  });
  const labels = { __name__: "process_cpu", service_name: MARKUP, pod: RIGHT_TO_LEFT };
  await pushSeries(api, [{ labels, profile }]);
  const range = { f: String(end - 3_600_000), u: String(end) };
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
  for (let sibling = 0; sibling < names.length; sibling++) {
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
    `In all places${formatValue(10n + BigInt(names.indexOf("")), "nanoseconds")}`,
  );
  for (const view of ["tree", "sandwich"]) {
    await page.goto(linkTo(url, { ...range, p: "explore", y: CPU_TYPE, w: view, fn: MARKUP }));
    await expect(page.locator("main")).toContainText(view === "sandwich" ? MARKUP : "main");
  }
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  expect(overflow).toBeLessThanOrEqual(0);
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
