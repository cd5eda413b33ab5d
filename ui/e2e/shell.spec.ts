// Shell: profile type, times, refresh, selector, command palette, help, tenants.
import type { Page } from "@playwright/test";
import { formatTime, formatValue } from "../app/theme/format";
import { pushFile } from "./support/api";
import { CHECKOUT_SELECTOR, expect, linkTo, test } from "./support/fixtures";
import { fetchFlame, flamePanel } from "./support/flame";
import { CPU_TYPE, HEAP_TYPE } from "./support/shop";

const GRAPH = "athanor.v1.ExploreService/Graph";
const FUNCTIONS = "athanor.v1.ExploreService/Functions";

function parameter(page: Page, name: string): string | null {
  return new URL(page.url()).searchParams.get(name);
}

test("profile types have human names, and a choice opens the type", async ({
  openShop,
  callShop,
  shopSite,
}) => {
  const page = await openShop({ q: '{service_name="cart"}', w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const select = page.getByRole("combobox", { name: "Profile type" });
  const { start, end } = shopSite.shop;
  const range = { start: String(start), end: String(end) };
  const { profileTypes } = await callShop("querier.v1.QuerierService/ProfileTypes", range);
  const listed = await select
    .locator("option")
    .evaluateAll((options) => options.map((option) => (option as HTMLOptionElement).value));
  expect([...listed].sort()).toEqual(profileTypes.map(({ ID }: { ID: string }) => ID).sort());
  await expect(select.locator("option:checked")).toHaveText("CPU time (cores)");
  await select.selectOption(HEAP_TYPE);
  await expect(select.locator("option:checked")).toHaveText("Memory in use (B)");
  const query = { profileType: HEAP_TYPE, selector: '{service_name="cart"}', ...range };
  const { total } = await callShop(FUNCTIONS, { query });
  await expect(panel.summary).toContainText(formatValue(BigInt(total), "bytes"));
  await page.goBack();
  await expect(select).toHaveValue(CPU_TYPE);
});

test("ranges are presets or two times, in UTC or local time", async ({ openShop, shopSite }) => {
  const page = await openShop({ w: "icicle" });
  await flamePanel(page, "icicle").ready();
  const button = page.getByRole("button", { name: /^Time range/ });
  await button.click();
  await page.getByRole("button", { name: "6 hours" }).click();
  await expect(button).toContainText("Last 6 hours");
  expect([parameter(page, "f"), parameter(page, "u")]).toEqual(["now-6h", null]);
  await button.click();
  const apply = page.getByRole("button", { name: "Apply" });
  await page.getByLabel("From").fill("soon");
  await expect(page.getByRole("alert").filter({ hasText: 'from is "soon"' })).toBeVisible();
  await expect(apply).toBeDisabled();
  await page.getByLabel("From").fill("2026-02-30");
  await expect(page.getByRole("alert").filter({ hasText: "no such day" })).toBeVisible();
  await page.getByLabel("From").fill("now-1000y");
  await expect(page.getByRole("alert").filter({ hasText: "out of range" })).toBeVisible();
  const end = shopSite.shop.end - 1_800_000;
  const start = end - 900_000;
  await page.getByLabel("Until").fill(new Date(end).toISOString());
  await page.getByLabel("From").fill("15m");
  await page.getByLabel("UTC").check();
  await apply.click();
  expect([parameter(page, "f"), parameter(page, "u")]).toEqual([String(start), String(end)]);
  await expect(button).toContainText(formatTime(start, "utc"));
  await page.getByRole("button", { name: /^Zoom out/ }).click();
  await expect.poll(() => Number(parameter(page, "u")) - Number(parameter(page, "f"))).toBe(1_800_000);
  await page.getByRole("button", { name: /^Undo/ }).click();
  await expect.poll(() => parameter(page, "f")).toBe(String(start));
  expect(parameter(page, "tz")).toBe("utc");
});

test.describe("in a zone that is not UTC", () => {
  test.use({ timezoneId: "Asia/Kathmandu" });

  test("typed times are in the zone of the shown ones", async ({ openShop, shopSite }) => {
    const { start, end } = shopSite.shop;
    const page = await openShop({ f: String(start + 123), u: String(end), w: "icicle" });
    const button = page.getByRole("button", { name: /^Time range/ });
    const from = page.getByLabel("From");
    const until = page.getByLabel("Until");
    // Clocks in Kathmandu are 5:45 h ahead of UTC.
    const shown = (ms: number) => formatTime(ms + 345 * 60_000, "utc").replace("Z", "");
    await button.click();
    await expect(from).toHaveValue(shown(start));
    await expect(button).toContainText(shown(start));
    await until.fill(shown(end - 60_000));
    await page.getByRole("button", { name: "Apply" }).click();
    await expect.poll(() => parameter(page, "u")).toBe(String(end - 60_000));
    expect(parameter(page, "f"), "a time that was not typed stays").toBe(String(start + 123));
    await button.click();
    await page.getByLabel("UTC").check();
    await expect(until).toHaveValue(new Date(end - 60_000).toISOString().replace(".000", ""));
    await from.fill("1970-01-02T00:00");
    await page.getByRole("button", { name: "Apply" }).click();
    await expect(button).toContainText("1970-01-02 00:00:00Z");
    await page.reload();
    await expect(button).toContainText("1970-01-02 00:00:00Z");
  });
});

test("refreshes within a step send equal requests, later ones move on", async ({ page, shopSite, calls }) => {
  const stepMs = 15_000;
  await page.clock.install({ time: Math.floor(Date.now() / stepMs) * stepMs + 500 });
  const view = { p: "explore", y: CPU_TYPE, q: CHECKOUT_SELECTOR, w: "table" };
  await page.goto(linkTo(shopSite.url, view));
  const requests = () => calls.filter(({ method }) => method === FUNCTIONS).map(({ message }) => message);
  await expect(page.locator(".table-summary")).toContainText(/\d/);
  const before = requests().length;
  await page.getByRole("button", { name: "Refresh now" }).click();
  await expect.poll(() => requests().length).toBe(before + 1);
  expect(requests().at(-1)).toEqual(requests()[before - 1]);
  await page.getByRole("combobox", { name: "Refresh interval" }).selectOption("30 s");
  await expect.poll(() => parameter(page, "r")).toBe("30");
  await page.clock.fastForward(31_000);
  await expect.poll(() => requests().length).toBeGreaterThan(before + 1);
  const [first, last] = [requests()[0].query, requests().at(-1).query];
  const moved = Number(last.end) - Number(first.end);
  expect(moved).toBeGreaterThan(0);
  expect(moved % stepMs, "ends are multiples of the step").toBe(0);
  expect(Number(last.start) - Number(first.start), "the range keeps its length").toBe(moved);
});

test("chips are added, edited and removed, with the server's counts", async ({
  openShop,
  callShop,
  shopQuery,
  shopSite,
}) => {
  const page = await openShop({ q: "{}", w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await page.getByRole("button", { name: "+ Label" }).click();
  await page.getByRole("combobox", { name: "Label name" }).fill("po");
  await page.getByRole("option", { name: /^pod/ }).click();
  const { start, end } = shopSite.shop;
  const { names, counts } = await callShop("querier.v1.QuerierService/LabelValues", {
    ...{ name: "pod", prefix: "checkout", start: String(start), end: String(end), limit: "100" },
  });
  const value = page.getByRole("combobox", { name: "Label value" });
  await value.fill("checkout");
  const options = page.getByRole("listbox", { name: "Label value" }).getByRole("option");
  await expect(options).toHaveText(
    names.map((name: string, index: number) => name + formatValue(BigInt(counts[index]), "count")),
  );
  const expectSelector = async (selector: string) => {
    await expect.poll(() => parameter(page, "q")?.replaceAll(" ", "")).toBe(selector);
    const { response } = await fetchFlame(shopSite.api, { query: shopQuery({ selector }) });
    await expect(panel.summary).toContainText(formatValue(BigInt(response.total), "nanoseconds"));
  };
  await options.first().click();
  await expectSelector('{pod="checkout-a"}');
  await page.getByTitle(/^Edit pod/).click();
  await page.getByRole("combobox", { name: "Operator" }).selectOption("!~");
  await value.fill("checkout-[ab]");
  await value.press("Enter");
  await expectSelector('{pod!~"checkout-[ab]"}');
  await page.getByRole("button", { name: /^Remove pod/ }).click();
  await expect.poll(() => parameter(page, "q")).toBeNull();
  await page.goBack();
  await expect(page.locator(".chip")).toContainText("checkout-[ab]");
});

test("Enter never applies an empty value, and the focus stays in the selector", async ({
  openShop,
  page,
}) => {
  await openShop({ q: "{}", w: "icicle" });
  await flamePanel(page, "icicle").ready();
  const add = page.getByRole("button", { name: "+ Label" });
  const name = page.getByRole("combobox", { name: "Label name" });
  const value = page.getByRole("combobox", { name: "Label value" });
  await add.focus();
  await page.keyboard.press("Enter");
  await expect(name).toBeFocused();
  await page.keyboard.type("po");
  await page.keyboard.press("Enter");
  await expect(value).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("alert").filter({ hasText: "The value is empty" })).toBeVisible();
  await expect(value).toBeFocused();
  await page.keyboard.type("1");
  await expect(value).toHaveValue("1");
  expect([parameter(page, "q"), parameter(page, "w")]).toEqual([null, "icicle"]);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await expect(add).toBeFocused();
  await page.keyboard.press("Enter");
  await page.keyboard.type("po");
  await expect(page.getByRole("option", { name: /^pod/ })).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(value).toBeFocused();
  await page.keyboard.type("cart-a");
  await page.keyboard.press("Enter");
  await expect.poll(() => parameter(page, "q")).toBe('{pod="cart-a"}');
  await expect(add).toBeFocused();
  await page.getByRole("button", { name: /^Remove pod/ }).press("Enter");
  await expect.poll(() => parameter(page, "q")).toBeNull();
  await expect(add).toBeFocused();
  await page.getByRole("button", { name: "As text" }).click();
  const text = page.getByRole("textbox", { name: "Selector as text" });
  await text.fill('{pod="cart-a"}');
  await text.press("Enter");
  await expect.poll(() => parameter(page, "q")).toBe('{pod="cart-a"}');
  await expect(text).toBeFocused();
});

test("quick changes of the selector add up, and a newer view replaces pending ones", async ({
  openShop,
  page,
}) => {
  const query = '{service_name="checkout",pod="checkout-a",absent=""}';
  await openShop({ q: query, w: "icicle" });
  await flamePanel(page, "icicle").ready();
  const bar = page.getByRole("search", { name: "Selector" });
  const chips = page.locator(".chip");
  const releases: (() => void)[] = [];
  await page.route("**/querier.v1.QuerierService/LabelNames", async (route) => {
    await new Promise<void>((resolve) => releases.push(resolve));
    // The page may have aborted the call.
    await route.continue().catch(() => {});
  });
  const release = () => {
    for (const resolve of releases.splice(0)) resolve();
  };
  await page.getByRole("button", { name: /^Remove pod/ }).click();
  await expect(bar).toHaveAttribute("aria-busy", "true");
  await page.getByRole("button", { name: /^Remove absent/ }).click();
  await expect.poll(() => releases.length).toBe(2);
  release();
  await expect.poll(() => parameter(page, "q")).toBe('{service_name="checkout"}');
  await expect(chips).toHaveCount(1);
  await expect(bar).toHaveAttribute("aria-busy", "false");
  const aborted = page.waitForEvent("requestfailed", (request) =>
    (request.postData() ?? "").includes('"matchers":["{}"]'),
  );
  await page.getByRole("button", { name: /^Remove service_name/ }).click();
  await expect(bar).toHaveAttribute("aria-busy", "true");
  await page.goBack();
  await aborted;
  await expect(bar).toHaveAttribute("aria-busy", "false");
  release();
  await expect(chips).toHaveCount(3);
  expect(parameter(page, "q")?.replaceAll(" ", "")).toBe(query);
});

test("command palette opens functions and pages of the server", async ({ openShop }) => {
  const page = await openShop({ w: "icicle" });
  await flamePanel(page, "icicle").ready();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("tax.Rate");
  await page.getByRole("option", { name: /shop\/tax\.Rate/ }).click();
  await expect(page.locator(".sandwich-function")).toContainText("shop/tax.Rate");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("shards");
  await page.getByRole("option", { name: /Shards/ }).click();
  await expect(page).toHaveURL(/\/shards$/);
});

test("help links the plain pages of the server", async ({ openShop, page }) => {
  await openShop({ p: "fleet", q: "{}" });
  await page.getByRole("button", { name: "Help" }).click();
  const links = page.locator(".help-menu a").filter({ has: page.locator("code") });
  await expect(links).not.toHaveCount(0);
  const addresses = await links.evaluateAll((items) => items.map((item) => (item as HTMLAnchorElement).href));
  for (const address of addresses) expect((await fetch(address)).status, address).toBe(200);
});

test("responses to the page are not compressed on loopback", async ({ openShop, page, calls, shopSite }) => {
  const received = page.waitForResponse(/ExploreService\/Graph/);
  await openShop({ w: "icicle" });
  const response = await received;
  expect(response.status()).toBe(200);
  expect(await response.headerValue("content-encoding")).toBeNull();
  const call = calls.find(({ method }) => method === GRAPH);
  expect(call?.headers["athanor-ui"]).toBe("1");
  const { start, end } = shopSite.shop;
  const query = { profileType: CPU_TYPE, selector: "{}", start: String(start), end: String(end) };
  const other = await fetch(`${shopSite.api}/${GRAPH}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "Accept-Encoding": "gzip" },
    body: JSON.stringify({ query }),
  });
  expect(other.headers.get("content-encoding"), "for other clients").toBe("gzip");
});

test("header lists the tenants of the server", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite({ settings: ["multitenancy_enabled=true"] });
  const fromMs = Date.now() - 60_000;
  for (const tenant of ["team-one", "team-two"])
    await pushFile(api, "main;work 5\n", { name: `shop-${tenant}.cpu`, fromMs, tenant });
  await page.goto(linkTo(url, { t: "team-one" }));
  await expect(page.getByRole("row", { name: /shop-team-one/ })).toBeVisible();
  const select = page.getByRole("combobox", { name: "Tenant" });
  await expect(select.locator("option")).toHaveText(["team-one", "team-two", "Other…"]);
  await select.selectOption("team-two");
  await expect(page.getByRole("row", { name: /shop-team-two/ })).toBeVisible();
  expect(parameter(page, "t")).toBe("team-two");
  await expect(select.locator("option")).toHaveText(["team-two", "team-one", "Other…"]);
});

test("tenants of this browser are listed where the server lists none", async ({ page, startOwnSite }) => {
  const site = await startOwnSite({ settings: ["multitenancy_enabled=true"], needsProxy: true });
  if (site.proxy === undefined) throw new Error("the site has no proxy");
  site.proxy.replace = (path) => (path.startsWith("/athanor/tenants") ? { status: 403 } : undefined);
  const fromMs = Date.now() - 60_000;
  for (const tenant of ["team-one", "team-two", "team-three"])
    await pushFile(site.api, "main;work 5\n", { name: `shop-${tenant}.cpu`, fromMs, tenant });
  const select = page.getByRole("combobox", { name: "Tenant" });
  const openList = async (tenant: string) => {
    const refused = page.waitForResponse(/\/athanor\/tenants/);
    await page.goto(linkTo(site.url, { t: tenant }));
    expect((await refused).status()).toBe(403);
    await expect(page.getByRole("row", { name: `shop-${tenant}` })).toBeVisible();
  };
  await openList("team-one");
  await expect(select.locator("option")).toHaveText(["team-one", "Other…"]);
  await select.selectOption("Other…");
  const dialog = page.getByRole("dialog", { name: "Tenant and token" });
  await dialog.getByLabel("Tenant", { exact: true }).fill("team-two");
  await dialog.getByRole("button", { name: "Apply" }).click();
  await expect(page.getByRole("row", { name: /shop-team-two/ })).toBeVisible();
  await openList("team-one");
  await expect(select.locator("option")).toHaveText(["team-one", "team-two", "Other…"]);
  await select.selectOption("team-two");
  await expect(page.getByRole("row", { name: /shop-team-two/ })).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
});
