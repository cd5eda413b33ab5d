// Timeline, tree, sandwich and split views of Explore.
import { formatCost, formatRate } from "../app/theme/cost";
import { formatExact, formatValue } from "../app/theme/format";
import { callApi, pushFile } from "./support/api";
import { CHECKOUT_SELECTOR, expect, linkTo, test } from "./support/fixtures";
import { fetchFlame, flamePanel, nodeAt } from "./support/flame";
import { CPU_TYPE, HEAP_TYPE, totalOf, totalOfPath } from "./support/shop";
import { readTable } from "./support/table";

const SELECT_SERIES = "querier.v1.QuerierService/SelectSeries";
const CART_SELECTOR = '{service_name="cart"}';

test("timeline shows the series of the API as rate and sum", async ({ openShop, calls, shopSite }) => {
  const page = await openShop({ tz: "utc" });
  const readout = page.locator(".timeline-readout");
  const { start, end, checkout } = shopSite.shop;
  await expect(readout).toContainText(formatRate(totalOf(checkout), end - start, CPU_TYPE));
  await expect(page.locator(".timeline table tbody tr")).not.toHaveCount(0);
  // Steps of the call are merged until most of them have a profile.
  const call = calls.findLast(({ method }) => method === SELECT_SERIES);
  const { series } = await callApi(shopSite.api, SELECT_SERIES, call?.message);
  const points: { timestamp: string; value: number }[] = series[0].points;
  const shown = await page
    .locator(".timeline table tbody tr")
    .evaluateAll((elements) =>
      elements.map((row) => [...row.children].map((cell) => cell.textContent ?? "")),
    );
  let before = start;
  for (const [title = "", text] of shown) {
    const time = Date.parse(title);
    const inStep = points.filter(({ timestamp }) => Number(timestamp) > before && Number(timestamp) <= time);
    const sum = inStep.reduce((whole, { value }) => whole + BigInt(value), 0n);
    expect(text, title).toBe(inStep.length === 0 ? "–" : formatRate(sum, time - before, CPU_TYPE));
    before = time;
  }
  expect(before).toBe(end);
  await page.getByRole("group", { name: "Value" }).getByRole("button", { name: "sum" }).click();
  await expect(readout).toContainText(formatValue(totalOf(checkout), "nanoseconds"));
  expect(new URL(page.url()).searchParams.get("tv")).toBe("sum");
});

test("timeline by label lists the groups of the API, stacked or as lines", async ({ openShop, shopSite }) => {
  const page = await openShop();
  const by = page.getByRole("combobox", { name: "By", exact: true });
  await by.fill("pod");
  await by.press("Enter");
  const legend = page.getByRole("list", { name: "Values of pod" }).getByRole("listitem");
  await expect(legend).toHaveCount(3);
  const { start, end } = shopSite.shop;
  const { series } = await callApi(shopSite.api, SELECT_SERIES, {
    ...{ profileTypeID: CPU_TYPE, labelSelector: '{service_name="checkout"}', groupBy: ["pod"] },
    ...{ start: String(end), end: String(end), step: (end - start) / 1_000 },
  });
  for (const { labels, points } of series) {
    await expect(legend.filter({ hasText: labels[0].value })).toContainText(
      formatRate(BigInt(points[0].value), end - start, CPU_TYPE),
    );
  }
  await page.getByRole("group", { name: "Drawing" }).getByRole("button", { name: "stacked" }).click();
  await expect.poll(() => new URL(page.url()).searchParams.get("tm")).toBe("stacked");
  await legend.first().getByRole("button").click();
  await expect(legend.first().getByRole("button")).toHaveAttribute("aria-pressed", "false");
});

test("timeline by a label with many values has the ten largest and the rest", async ({
  openShop,
  shopSite,
}) => {
  const { end } = shopSite.shop;
  const values = Array.from({ length: 13 }, (_, index) => 10n + BigInt(index * index));
  for (const [index, value] of values.entries()) {
    const push = { fromMs: end - 600_000, extra: { sampleRate: "1000000000" } };
    await pushFile(shopSite.api, `main;work ${value}\n`, { ...push, name: `shard.cpu{node=node-${index}}` });
  }
  const page = await openShop({ q: '{service_name="shard"}', g: "node", tv: "sum" });
  const legend = page.getByRole("list", { name: "Values of node" }).getByRole("listitem");
  await expect(legend).toHaveCount(11);
  const shown = values.map((value, index) => ({ name: `node-${index}`, value })).reverse();
  for (const { name, value } of shown.slice(0, 10))
    await expect(legend.filter({ has: page.getByText(name, { exact: true }) })).toContainText(
      formatValue(value, "nanoseconds"),
    );
  const rest = shown.slice(10).reduce((sum, { value }) => sum + value, 0n);
  await expect(legend.filter({ hasText: "other" })).toContainText(formatValue(rest, "nanoseconds"));
});

test("gauges of the timeline are labeled as averages", async ({ openShop, calls, callShop, shopQuery }) => {
  const page = await openShop({ y: HEAP_TYPE, q: CART_SELECTOR, w: "flame,table" });
  await expect(page.locator(".timeline-note")).toContainText("average");
  const query = shopQuery({ profileType: HEAP_TYPE, selector: CART_SELECTOR });
  const { total, unit, averagedProfiles, rows } = await callShop("athanor.v1.ExploreService/Functions", {
    query,
  });
  expect(averagedProfiles).toBe("3");
  await expect(page.locator(".table-summary")).toContainText(
    `${formatValue(BigInt(total), unit)} on average`,
  );
  await expect(flamePanel(page).summary).toContainText(formatValue(BigInt(total), unit));
  const shown = await readTable(page.getByRole("grid", { name: "Functions" }));
  expect(shown.map((row) => row["cum"])).toEqual(
    rows.map((row: { total: string }) => formatValue(BigInt(row.total), unit)),
  );
  const call = calls.findLast(({ method }) => method === SELECT_SERIES);
  expect(call?.message.aggregation).toBe("TIME_SERIES_AGGREGATION_TYPE_AVERAGE");
  const { series } = await callShop(SELECT_SERIES, call?.message);
  const max = Math.max(...series[0].points.map(({ value }: { value: number }) => value));
  const maxText = formatCost(BigInt(Math.round(max)), 1, HEAP_TYPE);
  await expect(page.locator(".timeline-readout")).toHaveText(`max ${maxText}`);
});

test("range dragged on the timeline drives everything below, and undo returns", async ({
  openShop,
  shopSite,
  shopQuery,
}) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const before = await panel.summary.innerText();
  const plot = page.locator(".timeline-chart .u-over");
  const box = await plot.boundingBox();
  if (box === null) throw new Error("the timeline is not visible");
  await page.mouse.move(box.x + box.width * 0.5, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.75, box.y + box.height / 2, { steps: 6 });
  await page.mouse.up();
  await expect(panel.summary).not.toHaveText(before);
  const { searchParams } = new URL(page.url());
  const from = Number(searchParams.get("f"));
  const until = Number(searchParams.get("u"));
  const { start, end } = shopSite.shop;
  expect(Math.abs(from - (start + (end - start) * 0.5))).toBeLessThan(60_000);
  expect(Math.abs(until - (start + (end - start) * 0.75))).toBeLessThan(60_000);
  await page.getByRole("button", { name: "Request as a command" }).last().click();
  const curl = await page.locator('[data-command="curl"]').first().innerText();
  const request = JSON.parse(/-d '([\s\S]*?)' \\/.exec(curl)?.[1] ?? "{}");
  expect(Number(request.query.start)).toBeLessThanOrEqual(from);
  expect(Number(request.query.end)).toBeGreaterThanOrEqual(until);
  const { response } = await fetchFlame(shopSite.api, {
    query: shopQuery({ start: request.query.start, end: request.query.end }),
  });
  await page.keyboard.press("Escape");
  await expect(panel.summary).toContainText(formatValue(BigInt(response.total), "nanoseconds"));
  await page.getByRole("button", { name: "Undo the last change of the range" }).click();
  await expect(panel.summary).toHaveText(before);
});

test("range opens from the timeline by keyboard", async ({ openShop }) => {
  const page = await openShop({ w: "icicle" });
  await flamePanel(page, "icicle").ready();
  await page.getByRole("application", { name: /^Timeline/ }).focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Shift+PageUp");
  const before = new URL(page.url()).searchParams.get("f");
  await page.keyboard.press("Enter");
  await expect.poll(() => new URL(page.url()).searchParams.get("f")).not.toBe(before);
});

test("dot of an exemplar opens its profile", async ({ openShop, callShop, shopQuery }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const chart = page.getByRole("application", { name: /^Timeline/ });
  await chart.focus();
  await expect(async () => {
    await page.keyboard.press("ArrowLeft");
    await expect(page.locator(".timeline [role=status]").last()).toContainText("opens its profile", {
      timeout: 50,
    });
  }).toPass();
  await page.keyboard.press("Enter");
  await expect.poll(() => new URL(page.url()).searchParams.get("id")).not.toBeNull();
  const id = new URL(page.url()).searchParams.get("id");
  const { rows, total } = await callShop("athanor.v1.ExploreService/Functions", {
    query: shopQuery({ profileIdSelector: [id] }),
  });
  expect(rows.length).toBeGreaterThan(0);
  await expect(panel.summary).toContainText(formatValue(BigInt(total), "nanoseconds"));
  await page.getByRole("button", { name: /Remove the selection of profile/ }).click();
  await expect.poll(() => new URL(page.url()).searchParams.get("id")).toBeNull();
});

test("click on the dot of an exemplar opens its profile", async ({ openShop, shopQuery, callShop }) => {
  const page = await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const over = page.locator(".timeline-chart .u-over");
  // The title of the chart names the profile whose dot is below the mouse.
  const dot = await over.evaluate((element: HTMLElement) => {
    const box = element.getBoundingClientRect();
    for (let x = box.left; x < box.right; x += 4) {
      for (let y = box.top; y < box.bottom; y += 4) {
        element.dispatchEvent(new MouseEvent("mousemove", { clientX: x, clientY: y }));
        const id = /^Open the profile (\S+)/.exec(element.title)?.[1];
        if (id !== undefined) return { x, y, id };
      }
    }
    return undefined;
  });
  if (dot === undefined) throw new Error("the timeline has no dot");
  await page.mouse.click(dot.x, dot.y);
  await expect.poll(() => new URL(page.url()).searchParams.get("id")).toBe(dot.id);
  const query = shopQuery({ profileIdSelector: [dot.id] });
  const { total } = await callShop("athanor.v1.ExploreService/Functions", { query });
  await expect(panel.summary).toContainText(formatValue(BigInt(total), "nanoseconds"));
  await page.goBack();
  await expect.poll(() => new URL(page.url()).searchParams.get("id")).toBeNull();
});

test("tree expands to the values of all paths", async ({ openShop, shopSite }) => {
  const page = await openShop({ w: "tree" });
  const tree = page.getByRole("treegrid", { name: "Call tree" });
  await expect(tree.getByRole("row", { name: /main\.main/ })).toBeVisible();
  await tree.focus();
  await page.keyboard.press("Home");
  const { checkout } = shopSite.shop;
  const expectRow = async (path: readonly string[]) => {
    const values = tree
      .getByRole("row", { name: path.at(-1) ?? "all" })
      .first()
      .locator("[data-value]");
    const total = totalOfPath(checkout, path);
    const self = totalOf(checkout.filter(({ names }) => names.join("\n") === path.join("\n")));
    await expect(values.first()).toHaveAttribute("data-value", total.toString());
    await expect(values.first()).toHaveAttribute("title", formatExact(total, "nanoseconds"));
    await expect(values.last()).toHaveAttribute("data-value", self.toString());
    await expect(values.first()).toHaveText(formatValue(total, "nanoseconds"));
  };
  await expectRow(["main.main"]);
  const path = ["main.main", "net/http.(*Server).Serve", "shop/cart.(*Cart).Total", "shop/tax.Rate"];
  for (const name of path.slice(0, -1)) {
    const row = tree.getByRole("row", { name }).first();
    const twisty = row.getByRole("button", { name: "Expand" });
    if (await twisty.isVisible()) await twisty.click();
    await expect(row).toHaveAttribute("aria-expanded", "true");
  }
  await expectRow(path);
  const cart = tree.getByRole("row", { name: "shop/cart.(*Cart).Total" }).first();
  await cart.getByRole("button", { name: "Collapse" }).click();
  await expect(tree.getByRole("row", { name: "shop/tax.Rate" })).toHaveCount(0);
});

test("keys of the tree select in the link, and 5 opens the sandwich of the row", async ({ openShop }) => {
  const page = await openShop({ w: "tree" });
  const tree = page.getByRole("treegrid", { name: "Call tree" });
  await expect(tree.getByRole("row", { name: "main.main" })).toBeVisible();
  await tree.focus();
  const selected = () => new URL(page.url()).searchParams.get("n");
  await page.keyboard.press("ArrowDown");
  await expect.poll(selected).toBe("main.main");
  await page.keyboard.press("ArrowDown");
  await expect.poll(selected).toBe("main.main;net/http.(*Server).Serve");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  await expect.poll(selected).toBe("main.main");
  await page.reload();
  await expect(tree.getByRole("row", { selected: true })).toContainText("main.main");
  await tree.focus();
  await page.keyboard.press("5");
  await expect(page.locator(".sandwich-function .function-name")).toHaveText("main.main");
});

test("tree follows search and zoom of the graph", async ({ openShop, shopQuery, shopSite }) => {
  const page = await openShop({ w: "icicle,tree" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const graph = await fetchFlame(shopSite.api, { query: shopQuery() });
  const tree = page.getByRole("treegrid", { name: "Call tree" });
  const charge = ["main.main", "net/http.(*Server).Serve", "shop/pay.(*Client).Charge"];
  const path = [...charge, "net/http.(*Transport).RoundTrip"];
  const row = tree.getByRole("row", { name: path.at(-1) ?? "" });
  await expect(tree.getByRole("row", { name: "main.main" })).toBeVisible();
  await expect(row).toHaveCount(0);
  await panel.click(graph, nodeAt(graph, path));
  await expect(row).toHaveClass(/is-selected/);
  await expect(row).toHaveAttribute("aria-selected", "true");
  await page.getByRole("textbox", { name: /Search functions/ }).fill("Transport");
  await expect(row).toHaveClass(/is-match/);
  await expect(tree.getByRole("row", { name: "main.main" })).toHaveClass(/is-dimmed/);
  await page.getByRole("combobox", { name: "Frames" }).selectOption("file");
  await expect(page.locator("#search-status")).toHaveText(/^1 function, .* %; the graph highlights files$/);
  const { start, end } = shopSite.shop;
  const zoomed = { p: "explore", y: CPU_TYPE, q: CHECKOUT_SELECTOR, f: String(start), u: String(end) };
  await page.goto(linkTo(shopSite.url, { ...zoomed, w: "tree", z: path.join(";") }));
  await expect(row, "a deep link that only zooms").toBeVisible();
  await tree.focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowLeft"]) await page.keyboard.press(key);
  await expect(row, "collapsed").toHaveCount(0);
  await page.keyboard.press("ArrowDown");
  await expect.poll(() => new URL(page.url()).searchParams.get("n")).not.toContain(path[1] ?? "");
  await expect(row, "still collapsed").toHaveCount(0);
});

test("tree stays where it is while lighter callees arrive", async ({ page, shopSite }) => {
  const { start, end } = shopSite.shop;
  const functions = Array.from({ length: 60 }, (_, index) => `work${index} ${1_000 - index}`);
  await pushFile(shopSite.api, `main 2000\n${functions.join("\n")}\n`, {
    name: "light.cpu",
    fromMs: end - 60_000,
  });
  const graphs = "**/athanor.v1.ExploreService/Graph";
  // The field max_nodes with a value of 20. The last value of a field counts.
  const maxNodes = Buffer.from([0x20, 20]);
  await page.route(graphs, (route) =>
    route.continue({ postData: Buffer.concat([route.request().postDataBuffer() ?? Buffer.of(), maxNodes]) }),
  );
  const range = { y: CPU_TYPE, f: String(start), u: String(end) };
  await page.goto(linkTo(shopSite.url, { p: "explore", ...range, q: '{service_name="light"}', w: "tree" }));
  const tree = page.getByRole("treegrid", { name: "Call tree" });
  await expect(tree.getByRole("row", { name: "lighter callees" })).toHaveCount(1);
  await page.unroute(graphs);
  await tree.focus();
  await page.keyboard.press("ArrowDown");
  await expect.poll(() => new URL(page.url()).searchParams.get("n")).toBe("main");
  await page.keyboard.press("End");
  const activeRow = () => tree.getAttribute("aria-activedescendant");
  const restRow = await activeRow();
  await page.keyboard.press("Enter");
  await expect(tree).toHaveAttribute("aria-rowcount", String(2 + 1 + functions.length));
  await expect(tree.getByRole("row", { name: "lighter callees" })).toHaveCount(0);
  expect(await activeRow()).toBe(restRow);
});

test("two views are linked: hover, selection, search and zoom", async ({ openShop, shopQuery, shopSite }) => {
  const page = await openShop({ w: "icicle,table" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
  const rate = ["main.main", "net/http.(*Server).Serve", "shop/cart.(*Cart).Total", "shop/tax.Rate"];
  const grid = page.getByRole("grid", { name: "Functions" });
  const row = grid.getByRole("row", { name: /shop\/tax\.Rate/ });
  await panel.hover(tree, nodeAt(tree, rate));
  await expect(row).toHaveClass(/is-linked/);
  const before = await panel.surface.screenshot();
  await row.hover();
  await expect.poll(async () => (await panel.surface.screenshot()).equals(before), "hover marks").toBe(false);
  await row.click();
  await expect.poll(() => new URL(page.url()).searchParams.get("n")).toContain("shop/tax.Rate");
  await expect(row).toHaveClass(/is-selected/);
  await panel.click(tree, nodeAt(tree, rate.slice(0, 3)));
  await expect(grid.getByRole("row", { name: /Cart\)\.Total/ })).toHaveClass(/is-selected/);
  await page.getByRole("textbox", { name: /Search functions/ }).fill("tax");
  await expect(grid.getByRole("row")).toHaveCount(2);
  await page.getByRole("textbox", { name: /Search functions/ }).fill("");
  await page.getByRole("group", { name: "Second view" }).getByRole("button", { name: "Flame" }).click();
  const second = flamePanel(page, "flame");
  await expect(second.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button")).toHaveCount(4);
  await page.getByRole("button", { name: "Close this view" }).last().click();
  await expect(page.locator(".explore-view")).toHaveCount(1);
});

test("keys choose views, ranges, pages and the list of keys", async ({ openShop, page }) => {
  await openShop({ f: "now-1h", u: "now" });
  await flamePanel(page).ready();
  for (const [key, view] of [
    ["2", "icicle"],
    ["3", "table"],
    ["4", "tree"],
    ["5", "sandwich"],
    ["1", "flame"],
  ] as const) {
    await page.keyboard.press(key);
    await expect(page.locator(`.explore-view[data-view="${view}"]`)).toBeVisible();
  }
  await page.keyboard.press("[");
  await expect.poll(() => new URL(page.url()).searchParams.get("u")).not.toBeNull();
  const until = Number(new URL(page.url()).searchParams.get("u"));
  await page.keyboard.press("]");
  await expect
    .poll(() => Number(new URL(page.url()).searchParams.get("u") ?? Date.now()))
    .toBeGreaterThan(until);
  await page.keyboard.press("?");
  const help = page.getByRole("dialog", { name: "Keys" });
  for (const key of [
    "Enter",
    "Shift",
    "F10",
    "/",
    "n",
    "N",
    "f",
    "i",
    "h",
    "s",
    "c",
    "1",
    "5",
    "[",
    "g",
    "?",
  ]) {
    await expect(help.locator("kbd").getByText(key, { exact: true }).first()).toBeVisible();
  }
  await page.keyboard.press("Escape");
  await expect(help).toBeHidden();
  await page.keyboard.press("g");
  await page.keyboard.type("fleet");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("grid", { name: "Services" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("ART");
  // Functions of the name may arrive first, services are above them.
  await expect(page.locator("#palette-0")).toHaveText(/cart\s*Service$/);
  await page.keyboard.press("Enter");
  await flamePanel(page).ready();
  expect(new URL(page.url()).searchParams.get("q")).toContain("cart");
});

test("view that replaces another one takes over its focus", async ({ openShop, page }) => {
  await openShop({ w: "flame", n: "main.main" });
  const flame = flamePanel(page);
  await flame.ready();
  await flame.surface.focus();
  await page.keyboard.press("2");
  const icicle = flamePanel(page, "icicle");
  await expect(icicle.surface).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(icicle.panel.locator('[aria-live="polite"]')).toContainText("net/http.(*Server).Serve");
  for (const [key, name] of [
    ["3", "Functions"],
    ["4", "Call tree"],
  ] as const) {
    await page.keyboard.press(key);
    await expect(page.getByLabel(name, { exact: true }).and(page.locator(".virtual-table"))).toBeFocused();
  }
  await page.keyboard.press("5");
  await expect(page.getByRole("application", { name: /^Callers/ })).toBeFocused();
  await page.goBack();
  await expect(page.getByRole("treegrid")).toBeFocused();
  await page.keyboard.press("1");
  await expect(flame.surface).toBeFocused();
  for (const key of ["f", "i"]) {
    await page.keyboard.press(key);
    await expect.poll(() => new URL(page.url()).searchParams.getAll("x").length).toBe(key === "f" ? 1 : 2);
  }
  await expect(page.getByRole("button", { name: "Remove all transforms" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(flame.surface).toBeFocused();
  await flame.summary.click();
  await expect(flame.surface).not.toBeFocused();
  await page.keyboard.press("2");
  await icicle.ready();
  await expect(icicle.surface).not.toBeFocused();
});
