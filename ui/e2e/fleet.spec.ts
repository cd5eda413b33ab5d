// Fleet: each number equals that of the API, with at most three calls.
import { costChange, formatCost, formatRate } from "../app/theme/cost";
import { formatPercent, formatTime } from "../app/theme/format";
import { callApi, pushFile } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { flamePanel } from "./support/flame";
import { CPU_TYPE, HEAP_TYPE, totalOf } from "./support/shop";
import { readTable } from "./support/table";

const SELECT_SERIES = "querier.v1.QuerierService/SelectSeries";

/** Returns the value of the only point of each series after a time, by the value of a label. */
async function totalsBy(api: string, label: string, profileType: string, start: number, end: number) {
  const { series = [] } = await callApi(api, SELECT_SERIES, {
    ...{ profileTypeID: profileType, labelSelector: "{}", groupBy: [label] },
    ...{ start: String(end), end: String(end), step: (end - start) / 1_000 },
    aggregation:
      profileType === HEAP_TYPE ? "TIME_SERIES_AGGREGATION_TYPE_AVERAGE" : "TIME_SERIES_AGGREGATION_TYPE_SUM",
  });
  const totals = new Map<string, bigint>();
  for (const { labels, points } of series) {
    totals.set(labels?.[0]?.value ?? "", BigInt(Math.round(points[0].value)));
  }
  return totals;
}

test("rows equal SelectSeries and Series, in at most three calls", async ({ openShop, calls, shopSite }) => {
  const page = await openShop({ p: "fleet", q: "{}", tz: "utc" });
  const grid = page.getByRole("grid", { name: "Services" });
  await expect(grid.getByRole("row", { name: /checkout/ })).toBeVisible();
  const fleetCalls = calls.filter(({ method }) => /SelectSeries|\/Series/.test(method));
  expect(fleetCalls.length).toBeLessThanOrEqual(3);
  const points = fleetCalls.filter(({ method, message }) => method === SELECT_SERIES && message.step < 3_600);
  expect(points, "one call returns all sparklines").toHaveLength(1);
  const { start: first, end: last, step } = points[0]?.message ?? {};
  expect((Number(last) - Number(first)) / 1_000 / step + 1).toBeLessThanOrEqual(60);
  const { start, end } = shopSite.shop;
  const now = await totalsBy(shopSite.api, "service_name", CPU_TYPE, start, end);
  const before = await totalsBy(shopSite.api, "service_name", CPU_TYPE, start - (end - start), start);
  expect(now.get("checkout")).toBe(totalOf(shopSite.shop.checkout));
  expect(now.get("cart")).toBe(totalOf(shopSite.shop.cart));
  const { labelsSet } = await callApi(shopSite.api, "querier.v1.QuerierService/Series", {
    ...{ matchers: ["{}"], labelNames: ["service_name", "__profile_type__"] },
    ...{ start: String(start), end: String(end) },
  });
  const services = new Set(
    labelsSet.map(
      ({ labels }: { labels: { name: string; value: string }[] }) =>
        labels.find(({ name }) => name === "service_name")?.value,
    ),
  );
  const rows = await readTable(grid);
  expect(new Set(rows.map((row) => row["Service"]))).toEqual(services);
  const typesOf = new Map<string, string[]>();
  for (const { labels } of labelsSet) {
    const labelOf = (name: string) =>
      labels.find((label: { name: string }) => label.name === name)?.value ?? "";
    typesOf.set(labelOf("service_name"), [
      ...(typesOf.get(labelOf("service_name")) ?? []),
      labelOf("__profile_type__"),
    ]);
  }
  for (const [service, types] of typesOf) {
    const row = grid.getByRole("row").filter({ has: page.getByText(service, { exact: true }) });
    await expect(row.locator(".fleet-types")).toHaveAttribute("title", types.sort().join("\n"));
  }
  const trends = await callApi(shopSite.api, SELECT_SERIES, points[0]?.message);
  for (const { labels, points: steps } of trends.series) {
    const row = grid.getByRole("row").filter({ has: page.getByText(labels[0].value, { exact: true }) });
    const lastSeen = Math.max(...steps.map(({ timestamp }: { timestamp: string }) => Number(timestamp)));
    await expect(row.getByText(/ ago$/)).toHaveAttribute("title", formatTime(lastSeen, "utc"));
  }
  const whole = [...now.values()].reduce((sum, value) => sum + value, 0n);
  for (const row of rows) {
    const value = now.get(row["Service"] ?? "");
    if (value === undefined) continue;
    expect(row).toMatchObject({
      Cost: formatCost(value, end - start, CPU_TYPE),
      Share: formatPercent(value, whole),
      Change: costChange(value, before.get(row["Service"] ?? "") ?? 0n).text,
    });
  }
  await expect(page.locator(".fleet-count")).toContainText(formatRate(whole, end - start, CPU_TYPE));
  const costs = rows.map((row) => now.get(row["Service"] ?? "") ?? -1n);
  expect(costs, "the largest is first").toEqual([...costs].sort((left, right) => (left < right ? 1 : -1)));
});

test("gauges are averages", async ({ openShop, shopSite }) => {
  const page = await openShop({ p: "fleet", q: "{}", y: HEAP_TYPE });
  const grid = page.getByRole("grid", { name: "Services" });
  await expect(grid.getByRole("columnheader", { name: "Average" })).toBeVisible();
  const { start, end } = shopSite.shop;
  const averages = await totalsBy(shopSite.api, "service_name", HEAP_TYPE, start, end);
  const row = (await readTable(grid)).find((candidate) => candidate["Service"] === "cart");
  expect(row?.["Average"]).toBe(formatCost(averages.get("cart") ?? 0n, end - start, HEAP_TYPE));
});

test("rows sort, filter and group by a label", async ({ openShop, shopSite, page }) => {
  await openShop({ p: "fleet", q: "{}" });
  const grid = page.getByRole("grid");
  await expect(grid.getByRole("row", { name: /checkout/ })).toBeVisible();
  const names = async (title: string) => (await readTable(grid)).map((row) => row[title]);
  await grid.getByRole("button", { name: "Service", exact: true }).click();
  const sorted = [...(await names("Service"))].sort();
  await expect.poll(() => names("Service")).toEqual(sorted);
  await grid.getByRole("button", { name: "Service", exact: true }).click();
  await expect.poll(() => names("Service")).toEqual([...sorted].reverse());
  const historyBefore = await page.evaluate(() => history.length);
  await page.getByRole("searchbox", { name: "Filter rows" }).pressSequentially("check");
  await expect.poll(() => names("Service")).toEqual(["checkout"]);
  expect(
    (await page.evaluate(() => history.length)) - historyBefore,
    "typing is one step",
  ).toBeLessThanOrEqual(1);
  await page.getByRole("searchbox", { name: "Filter rows" }).fill("");
  const groupBy = page.getByRole("combobox", { name: "Group by" });
  await groupBy.fill("pod");
  await groupBy.press("Enter");
  await expect(grid.getByRole("columnheader", { name: "pod" })).toBeVisible();
  await expect(grid.getByRole("row", { name: /checkout-a/ })).toBeVisible();
  const { start, end } = shopSite.shop;
  const byPod = await totalsBy(shopSite.api, "pod", CPU_TYPE, start, end);
  for (const row of await readTable(grid)) {
    const value = byPod.get(row["pod"]?.startsWith("(no ") ? "" : (row["pod"] ?? ""));
    if (value !== undefined) expect(row["Cost"]).toBe(formatCost(value, end - start, CPU_TYPE));
  }
});

test("last seen is the age now, also for an old range", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite();
  await pushFile(api, "main;work 5\n", { name: "retired.cpu", fromMs: Date.now() - 61.5 * 86_400_000 });
  await page.goto(linkTo(url, {}));
  await page.getByRole("button", { name: "Go to the newest data" }).click();
  await expect(page.getByRole("row", { name: /retired/ })).toContainText("61 d ago");
  await expect(page.locator(".fleet-count")).toContainText(/^1 service ·/);
});

test("last seen grows without a refresh", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite();
  await pushFile(api, "main;work 5\n", { name: "stopped.cpu", fromMs: Date.now() - 20_000 });
  await page.clock.install();
  await page.goto(linkTo(url, {}));
  const row = page.getByRole("row", { name: /stopped/ });
  await expect(row).toContainText(/ s ago$/);
  await page.clock.fastForward("03:00:00");
  await expect(row).toContainText(/[23] h ago$/);
});

test("small cost is not cut", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite();
  await pushFile(api, "main;work 2\n", { name: "small.cpu", fromMs: Date.now() - 60_000 });
  await page.goto(linkTo(url, { f: "now-3h" }));
  const cell = page
    .getByRole("row", { name: /small/ })
    .getByRole("gridcell")
    .filter({ hasText: /cores$/ });
  await expect(cell).toContainText(/^0\.00000/);
  const boxes = await cell.locator("span").evaluate((text) => {
    const range = document.createRange();
    range.selectNodeContents(text);
    return [range.getBoundingClientRect(), text.closest("[role=gridcell]")?.getBoundingClientRect()];
  });
  expect(boxes[0]?.left).toBeGreaterThanOrEqual(boxes[1]?.left ?? Number.NaN);
  expect(boxes[0]?.right).toBeLessThanOrEqual(boxes[1]?.right ?? Number.NaN);
});

test("row opens Explore by click and by keyboard", async ({ openShop, page }) => {
  await openShop({ p: "fleet", q: "{}" });
  await page.getByRole("row", { name: /checkout/ }).click();
  const panel = flamePanel(page);
  await panel.ready();
  expect(new URL(page.url()).searchParams.get("q")).toBe('{service_name="checkout"}');
  await page.goBack();
  const grid = page.getByRole("grid", { name: "Services" });
  await grid.focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  const active = await grid.getAttribute("aria-activedescendant");
  const name = await page.locator(`#${active} a`).innerText();
  await page.keyboard.press("Enter");
  await panel.ready();
  expect(new URL(page.url()).searchParams.get("q")).toBe(`{service_name="${name}"}`);
});

test("Enter in the filter opens the first row", async ({ openShop, page }) => {
  await openShop({ p: "fleet", q: "{}" });
  await expect(page.getByRole("row", { name: /checkout/ })).toBeVisible();
  await page.keyboard.press("/");
  await page.keyboard.type("cart");
  const filter = page.getByRole("searchbox", { name: "Filter rows" });
  await filter.dispatchEvent("keydown", { key: "Enter", isComposing: true });
  expect(new URL(page.url()).searchParams.get("p"), "Enter of an input method opens nothing").toBeNull();
  await page.keyboard.press("Enter");
  await flamePanel(page).ready();
  expect(new URL(page.url()).searchParams.get("q")).toBe('{service_name="cart"}');
  await page.goBack();
  await expect(filter).toHaveValue("cart");
});

test("fleet and its rows keep nothing of the service before", async ({ openShop, page }) => {
  const details = {
    g: "pod",
    x: "focus=main.main",
    z: "main.main",
    n: "main.main",
    s: "main",
    fn: "main.main",
  };
  const remaining = () =>
    [...new URL(page.url()).searchParams.keys()].filter((name) => Object.hasOwn(details, name));
  await openShop({ q: "{}", ...details });
  await flamePanel(page).ready();
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Fleet" }).click();
  await expect(page.getByRole("grid", { name: "Services" })).toBeVisible();
  expect(remaining()).toEqual([]);
  await openShop({ p: "fleet", q: "{}", id: "00000000-0000-0000-0000-000000000001", ...details, g: "" });
  await page.getByRole("row", { name: /checkout/ }).click();
  await flamePanel(page).ready();
  expect(remaining()).toEqual([]);
  expect(new URL(page.url()).searchParams.get("id")).toBeNull();
});

test("2 000 rows are virtualized", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite();
  const { pushSeries } = await import("./support/api");
  const { encodePprof } = await import("./support/pprof");
  const timeMs = Math.floor(Date.now() / 60_000) * 60_000 - 60_000;
  const profile = encodePprof({
    ...{
      type: ["cpu", "nanoseconds"],
      periodType: ["cpu", "nanoseconds"],
      period: 1n,
      timeMs,
      durationMs: 10_000,
    },
    samples: [{ stack: [{ name: "main" }], value: 1_000_000n }],
  });
  const services = Array.from({ length: 2_000 }, (_, index) => `service-${String(index).padStart(4, "0")}`);
  for (let first = 0; first < services.length; first += 500) {
    const part = services.slice(first, first + 500);
    await pushSeries(
      api,
      part.map((service_name) => ({ labels: { __name__: "process_cpu", service_name }, profile })),
    );
  }
  await page.goto(linkTo(url, { fo: "name" }));
  const grid = page.getByRole("grid", { name: "Services" });
  await expect(grid).toHaveAttribute("aria-rowcount", "2001");
  expect(await grid.getByRole("row").count()).toBeLessThan(150);
  await grid.focus();
  await page.keyboard.press("End");
  await expect(grid.getByRole("row", { name: /service-1999/ })).toBeVisible();
  expect(await grid.getByRole("row").count()).toBeLessThan(150);
});
