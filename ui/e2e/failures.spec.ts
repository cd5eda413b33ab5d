// Failures: missing token, overload, dead server, bad requests, empty ranges, slow queries, tenants.
import { formatValue } from "../app/theme/format";
import { callApi, type JsonMessage, pushFile } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { flamePanel } from "./support/flame";
import type { ReplacedResponse, TestProxy } from "./support/proxy";
import { CPU_TYPE } from "./support/shop";

const CONNECT_ERROR = { "Content-Type": "application/json" };

function proxyOf(site: { readonly proxy: TestProxy | undefined }): TestProxy {
  if (site.proxy === undefined) throw new Error("the site has no proxy");
  return site.proxy;
}

function connectError(status: number, code: string, message: string, headers = {}): ReplacedResponse {
  return { status, headers: { ...CONNECT_ERROR, ...headers }, body: JSON.stringify({ code, message }) };
}

test("401 asks for a token, which is kept for the tab", async ({ page, startOwnSite }) => {
  const site = await startOwnSite({ needsProxy: true });
  await pushFile(site.api, "main;work 5\n", { name: "shop.cpu", fromMs: Date.now() - 60_000 });
  proxyOf(site).replace = (path, headers) =>
    path.includes(".v1.") && headers.authorization !== "Bearer secret-token"
      ? connectError(401, "unauthenticated", "a token is required")
      : undefined;
  await page.goto(`${site.url}/ui/`);
  const dialog = page.getByRole("dialog", { name: "Tenant and token" });
  await expect(dialog.getByRole("alert")).toBeVisible();
  await dialog.getByLabel("Token").fill("secret-token");
  await dialog.getByRole("button", { name: "Apply" }).click();
  await expect(page.getByRole("row", { name: /shop/ })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("row", { name: /shop/ })).toBeVisible();
  expect(page.url()).not.toContain("secret-token");
  const stored = await page.evaluate(() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage)]);
  expect(stored[0]).not.toContain("secret-token");
  expect(stored[1]).toContain("secret-token");
});

test("failed profile types show an error with Retry, not a wrong selector", async ({
  page,
  startOwnSite,
}) => {
  const site = await startOwnSite({ needsProxy: true });
  await pushFile(site.api, "main;work 5\n", { name: "shop.cpu", fromMs: Date.now() - 60_000 });
  let isBroken = true;
  proxyOf(site).replace = (path) =>
    isBroken && /ProfileTypes|LabelNames/.test(path)
      ? connectError(400, "invalid_argument", "tenant has a bad character")
      : undefined;
  await page.goto(linkTo(site.url, { p: "explore", w: "icicle" }));
  const main = page.getByRole("main");
  await expect(main.getByRole("alert")).toContainText("tenant has a bad character");
  await expect(page.getByRole("alert"), "the selector has no error").toHaveCount(1);
  await expect(page.getByRole("button", { name: "As text" })).toBeEnabled();
  const retry = main.getByRole("button", { name: "Retry" });
  await retry.press("Enter");
  await expect(retry).toBeFocused();
  isBroken = false;
  await retry.press("Enter");
  await flamePanel(page, "icicle").ready();
});

for (const [status, code] of [
  [429, "resource_exhausted"],
  [503, "unavailable"],
] as const) {
  test(`${status} counts down and retries`, async ({ page, startOwnSite }) => {
    const site = await startOwnSite({ needsProxy: true });
    await pushFile(site.api, "main;work 5\n", { name: "shop.cpu", fromMs: Date.now() - 60_000 });
    let rejections = 0;
    proxyOf(site).replace = (path) =>
      path.includes("ExploreService/Graph") && rejections++ === 0
        ? connectError(status, code, "too many queries", { "Retry-After": "3" })
        : undefined;
    await page.goto(linkTo(site.url, { p: "explore", y: CPU_TYPE }));
    await expect(page.getByText(/Retries in [123] s/)).toBeVisible();
    await expect(page.getByText(/Retries in 1 s/)).toBeVisible();
    await flamePanel(page).ready();
    expect(rejections).toBe(2);
  });
}

test("error shows its message and trace id, and can be retried", async ({ page, startOwnSite }) => {
  const site = await startOwnSite({ needsProxy: true });
  await pushFile(site.api, "main;work 5\n", { name: "shop.cpu", fromMs: Date.now() - 60_000 });
  let isBroken = true;
  const message = "query reads 12.4 GiB, limits.max_query_bytes is 8 GiB; narrow the time range";
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  proxyOf(site).replace = (path) =>
    isBroken && path.includes("ExploreService/Graph")
      ? connectError(400, "invalid_argument", message, { traceresponse: `00-${traceId}-b7ad6b7169203331-01` })
      : undefined;
  await page.goto(linkTo(site.url, { p: "explore", y: CPU_TYPE }));
  const alert = page.locator("main").getByRole("alert");
  await expect(alert).toContainText("limits.max_query_bytes is 8 GiB");
  await expect(alert.locator("code")).toHaveText(traceId);
  isBroken = false;
  await page.getByRole("button", { name: "Retry" }).click();
  await flamePanel(page).ready();
});

test("page states that the server died, and recovers by itself", async ({ page, startOwnSite }) => {
  test.setTimeout(60_000);
  const site = await startOwnSite();
  await pushFile(site.api, "main;work 5\n", { name: "shop.cpu", fromMs: Date.now() - 60_000 });
  await page.goto(linkTo(site.url, { p: "explore", y: CPU_TYPE, w: "icicle" }));
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await site.server.kill();
  await page.getByRole("button", { name: "Refresh now" }).click();
  await expect(page.getByText("The server does not respond.")).toBeVisible();
  await site.server.run();
  await expect(page.getByText("The server does not respond.")).toBeHidden({ timeout: 15_000 });
  await expect(panel.summary).toContainText("3 frames");
  await expect(page.locator("main").getByRole("alert")).toHaveCount(0);
});

test("slow query shows elapsed time and what it reads, and can be canceled", async ({ page, openShop }) => {
  // That of the page: a block that is written meanwhile changes the numbers of a later call.
  const analyzed = page.waitForResponse(/QuerierService\/AnalyzeQuery/);
  await page.route("**/athanor.v1.ExploreService/Graph", async (route) => {
    await page.waitForEvent("close").catch(() => undefined);
    await route.abort().catch(() => undefined);
  });
  await openShop({ w: "icicle" });
  await expect(page.getByText(/Running for \d+ s/)).toBeVisible();
  const { queryScopes } = await (await analyzed).json();
  const sum = (...fields: readonly string[]) =>
    queryScopes
      .flatMap((scope: JsonMessage) => fields.map((field) => BigInt(scope[field] ?? 0)))
      .reduce((total: bigint, value: bigint) => total + value, 0n);
  const bytes = formatValue(sum("indexBytes", "profileBytes", "symbolBytes"), "bytes");
  const counts = ["profileCount", "blockCount"].map((field) => formatValue(sum(field), "count"));
  await expect(
    page.getByText(`It reads ${counts[0]} profiles in ${counts[1]} blocks, ${bytes}.`),
  ).toBeVisible();
  await page.getByRole("button", { name: "Cancel" }).click();
  await expect(page.getByText("Canceled.")).toBeVisible();
  await page.unroute("**/athanor.v1.ExploreService/Graph");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await flamePanel(page, "icicle").ready();
});

test("newer query cancels the older one", async ({ page, openShop }) => {
  const aborted: string[] = [];
  page.on("requestfailed", (request) => aborted.push(request.url()));
  let isFirst = true;
  await page.route("**/athanor.v1.ExploreService/Graph", async (route) => {
    if (!isFirst) return route.continue();
    isFirst = false;
    return undefined;
  });
  const started = page.waitForRequest(/ExploreService\/Graph/);
  await openShop({ w: "icicle" });
  await started;
  await page.getByRole("button", { name: "Invert" }).click();
  await flamePanel(page, "icicle").ready();
  expect(aborted.some((url) => url.endsWith("ExploreService/Graph"))).toBe(true);
});

test("failed query leaves no result of the query before", async ({ openShop, page }) => {
  await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await page.route("**/athanor.v1.ExploreService/Graph", (route) =>
    route.fulfill({ status: 400, json: { code: "invalid_argument", message: "refused" } }),
  );
  const alert = panel.panel.getByRole("alert");
  await page.getByRole("button", { name: "Refresh now" }).click();
  await expect(alert).toContainText("refused");
  await expect(panel.surface).toBeVisible();
  await page.getByRole("button", { name: "Invert" }).click();
  await expect(panel.surface).toHaveCount(0);
  await expect(alert).toContainText("refused");
  await page.unroute("**/athanor.v1.ExploreService/Graph");
  await page.getByRole("button", { name: "Retry" }).click();
  await panel.ready();
});

test("invalid regular expression shows the server's error", async ({ openShop, page }) => {
  await openShop({ w: "table", s: "/(/" });
  const status = page.locator("#search-status");
  await expect(status).toContainText(/regex|parenthes|group/i);
  for (const width of [1_280, 720]) {
    await page.setViewportSize({ width, height: 720 });
    const cut = await status.evaluate((element) => {
      const { left, right } = element.getBoundingClientRect();
      return element.scrollWidth > element.clientWidth || left < 0 || right > innerWidth;
    });
    expect(cut, `the whole error is visible at ${width} px`).toBe(false);
  }
  const top = () => page.locator(".explore-views").evaluate((element) => element.getBoundingClientRect().top);
  const before = await top();
  await page.getByRole("textbox", { name: /Search functions/ }).fill("");
  await expect(status).toHaveText("");
  expect(await top(), "the views stay in their place").toBe(before);
  await page.setViewportSize({ width: 1_280, height: 720 });
  await openShop({ w: "icicle", x: "focus~(" });
  await expect(page.locator("main").getByRole("alert")).toContainText(/regex|parenthes|group/i);
  await expect(page.getByRole("button", { name: "Retry" }), "the same query fails again").toHaveCount(0);
  await page.getByRole("button", { name: /Remove Focus/ }).click();
  await flamePanel(page, "icicle").ready();
});

test("invalid selector of a link is stated once", async ({ openShop, page }) => {
  await openShop({ w: "icicle,table", q: '{service_name="checkout",,}' });
  await expect(page.getByRole("search").getByRole("alert")).toContainText("character");
  await expect(page.getByText("Correct the selector to see profiles.")).toHaveCount(3);
  await expect(page.getByRole("alert")).toHaveCount(1);
  await expect(page.getByRole("button", { name: "Retry" })).toHaveCount(0);
});

test("invalid selector underlines the character that the server names", async ({ openShop, page }) => {
  await openShop({ w: "icicle" });
  await page.getByRole("button", { name: "As text" }).click();
  const field = page.getByRole("textbox", { name: "Selector as text" });
  await field.fill('{service_name="checkout",,}');
  await field.press("Enter");
  await expect(page.getByRole("search").getByRole("alert")).toBeVisible();
  await expect(page.locator(".underlined-input-error")).toHaveText(",");
  await expect(field).toHaveAttribute("aria-invalid", "true");
  await field.fill('{service_name="cart"}');
  await field.press("Enter");
  await page.getByRole("button", { name: "As chips" }).click();
  await expect(page.locator(".chip")).toContainText("cart");
  await flamePanel(page, "icicle").ready();
});

test("invalid chip underlines the character of the selector that the server names", async ({
  openShop,
  page,
}) => {
  await openShop({ w: "icicle" });
  await page.getByRole("button", { name: "+ Label" }).click();
  await page.getByRole("combobox", { name: "Label name" }).fill("pod");
  await page.getByRole("combobox", { name: "Operator" }).selectOption("=~");
  const value = page.getByRole("combobox", { name: "Label value" });
  await value.fill("check(");
  await page.getByRole("button", { name: "Apply" }).click();
  await expect(page.getByRole("search").getByRole("alert")).toContainText("character 32");
  await expect(page.locator(".rejected-selector")).toHaveText('{service_name="checkout", pod=~"check("}');
  await expect(page.locator(".rejected-selector .underlined-input-error")).toHaveText('"');
  await value.fill("checkout-a");
  await page.getByRole("button", { name: "Apply" }).click();
  await expect(page.locator(".chip")).toHaveCount(2);
  await expect(page.getByRole("search").getByRole("alert")).toBeHidden();
});

test("partial response shows the server's warnings", async ({ page, openShop }) => {
  await page.route("**/querier.v1.QuerierService/SelectSeries", async (route) => {
    const response = await route.fetch();
    await route.fulfill({
      response,
      json: { ...(await response.json()), warnings: ["shard 3 did not respond"] },
    });
  });
  await openShop({ w: "icicle" });
  await expect(page.locator(".timeline")).toContainText("shard 3 did not respond");
});

test("limits of the server show as warnings, and as errors with value, limit and setting", async ({
  page,
  startOwnSite,
}) => {
  const settings = ["limits.max_query_lookback=90m", "limits.max_query_length=1h"];
  const { api, url } = await startOwnSite({ settings });
  const hourMs = 3_600_000;
  const now = Math.floor(Date.now() / 60_000) * 60_000;
  await pushFile(api, "main;work 5\n", { name: "shop.cpu", fromMs: now - 1.2 * hourMs });
  const open = (start: number, end: number) =>
    page.goto(linkTo(url, { p: "explore", y: CPU_TYPE, w: "icicle", f: String(start), u: String(end) }));
  const callGraph = (start: number, end: number) =>
    callApi(api, "athanor.v1.ExploreService/Graph", {
      query: { profileType: CPU_TYPE, selector: "{}", start: String(start), end: String(end) },
    });
  const view = page.locator(".explore-view");
  await open(now - 2 * hourMs, now - hourMs);
  const { warnings } = await callGraph(now - 2 * hourMs, now - hourMs);
  expect(warnings).toHaveLength(1);
  await expect(view.getByText("Partial result.")).toBeVisible();
  await expect(view.locator(".banner li")).toHaveText(warnings);
  await open(now - 6 * hourMs, now);
  // The limit applies to the part of the range that the query may see.
  await expect(view.getByRole("alert")).toContainText(
    /time range is 1h\S+ long, the limit is 1h \(limits\.max_query_length\); narrow the time range/,
  );
});

test("one click goes to the newest data of the selector", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite();
  const old = Date.now() - 5 * 86_400_000;
  await pushFile(api, "main;old 5\n", { name: "archive.cpu", fromMs: old });
  await pushFile(api, "main;fresh 5\n", { name: "fresh.cpu", fromMs: Date.now() - 600_000 });
  await page.goto(linkTo(url, { p: "explore", y: CPU_TYPE, q: '{service_name="archive"}', w: "icicle" }));
  await page.getByRole("button", { name: "Go to the newest data" }).first().click();
  await expect(page.locator(".flame-summary")).toContainText(/[23] frames/);
  const { searchParams } = new URL(page.url());
  expect(Math.abs(Number(searchParams.get("u")) - old)).toBeLessThan(3_600_000);
});

test("data of another time is named, and one click goes to it", async ({ page, startOwnSite }) => {
  const { api, url } = await startOwnSite();
  const old = Date.now() - 5 * 86_400_000;
  await pushFile(api, "main;old 5\n", { name: "archive.cpu", fromMs: old });
  await pushFile(api, "main;epoch 5\n", { name: "epoch.cpu", fromMs: 1_000 });
  await page.goto(`${url}/ui/`);
  await expect(page.getByRole("heading", { name: "No profiles in this range" })).toBeVisible();
  await page.getByRole("button", { name: "Go to the newest data" }).click();
  await expect(page.getByRole("row", { name: /archive/ })).toBeVisible();
  const { searchParams } = new URL(page.url());
  const from = Number(searchParams.get("f"));
  expect(from, "a profile of 1970 does not stretch the range").toBeGreaterThan(old - 86_400_000);
});

test("tenants are apart, in links, calls and commands", async ({ page, startOwnSite, calls }) => {
  const { api, url } = await startOwnSite({ settings: ["multitenancy_enabled=true"] });
  const fromMs = Date.now() - 60_000;
  await pushFile(api, "main;one 5\n", { name: "shop-one.cpu", fromMs, tenant: "team-one" });
  await pushFile(api, "main;two 5\n", { name: "shop-two.cpu", fromMs, tenant: "team-two" });
  await page.goto(linkTo(url, { t: "team-one" }));
  await expect(page.getByRole("row", { name: /shop-one/ })).toBeVisible();
  await expect(page.getByRole("row", { name: /shop-two/ })).toHaveCount(0);
  expect(calls.every(({ headers }) => headers["x-scope-orgid"] === "team-one")).toBe(true);
  await page.getByRole("button", { name: "Request as a command" }).click();
  await expect(page.locator('[data-command="curl"]').first()).toContainText("X-Scope-OrgID: team-one");
  await expect(page.locator('[data-command="athanor"]')).toContainText("--tenant team-one");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Help" }).click();
  await page.getByRole("button", { name: /Tenant and token/ }).click();
  const dialog = page.getByRole("dialog", { name: "Tenant and token" });
  await dialog.getByLabel("Tenant").fill("team-two");
  await dialog.getByRole("button", { name: "Apply" }).click();
  await expect(page.getByRole("row", { name: /shop-two/ })).toBeVisible();
  await expect(page.getByRole("row", { name: /shop-one/ })).toHaveCount(0);
  expect(new URL(page.url()).searchParams.get("t")).toBe("team-two");
  await page.goBack();
  await expect(page.getByRole("row", { name: /shop-one/ })).toBeVisible();
  await page.getByRole("row", { name: /shop-one/ }).click();
  await flamePanel(page).ready();
});

test("page works under a prefix of a proxy", async ({ page, startOwnSite }) => {
  const site = await startOwnSite({ prefix: "/tools/profiles" });
  await pushFile(site.api, "main;work 5\n", { name: "shop.cpu", fromMs: Date.now() - 60_000 });
  const outside: string[] = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(`${site.url}/`)) outside.push(request.url());
  });
  await page.goto(`${site.url}/`);
  await page.getByRole("row", { name: /shop/ }).click();
  await flamePanel(page).ready();
  await page.getByRole("button", { name: "Request as a command" }).last().click();
  await expect(page.locator('[data-command="curl"]').first()).toContainText(`${site.url}/athanor.v1`);
  expect(outside).toEqual([]);
});
