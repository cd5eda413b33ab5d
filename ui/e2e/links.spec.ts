// Links: each view is one, Back undoes a step, old and damaged links open the nearest view.
import type { Page } from "@playwright/test";
import { formatValue } from "../app/theme/format";
import { pushFile } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { fetchFlame, flamePanel, nodeAt } from "./support/flame";
import { CPU_TYPE, HEAP_TYPE, type ShopRange } from "./support/shop";

const MARSHAL_PATH = [
  "main.main",
  "net/http.(*Server).Serve",
  "shop/cart.(*Cart).Total",
  "encoding/json.Marshal",
];

/** Returns all that a view shows as text, without times that pass. */
async function readView(page: Page): Promise<string> {
  return (await page.locator("main").innerText()).replace(/\d+ (s|min) ago/g, "");
}

/** Waits until all parts of a view have their results. */
async function expectLoaded(page: Page): Promise<void> {
  const summaries = page.locator(".fleet-count, .flame-summary, .table-summary, .sandwich-function");
  await expect(summaries.first()).toContainText(/\d/);
  await expect(page.locator(".query-progress, [aria-busy=true]")).toHaveCount(0);
  await expect(page.locator("#search-status").filter({ hasText: "…" })).toHaveCount(0);
  for (const view of await page.locator(".explore-view").all()) await expect(view).toContainText(/\d/);
}

const VIEWS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "fleet, sorted and filtered": { p: "fleet", q: "{}", fo: "name", ff: "c" },
  "fleet by pod": { p: "fleet", q: "{}", g: "pod" },
  "zoomed flame graph": { w: "flame", z: MARSHAL_PATH.slice(0, 3).join(";"), c: "binary", tz: "utc" },
  "icicle with transforms": { w: "icicle", x: "hide=encoding/json.Marshal", s: "shop" },
  "table, sorted": { w: "table", o: "-name", g: "pod", tm: "stacked", tv: "sum" },
  tree: { w: "tree" },
  sandwich: { w: "sandwich", fn: "encoding/json.Marshal" },
  "two views": { w: "table,icicle", fr: "package", i: "1" },
};

for (const [title, parameters] of Object.entries(VIEWS)) {
  test(`reload and Back restore: ${title}`, async ({ openShop }) => {
    const page = await openShop(parameters);
    await expectLoaded(page);
    const before = await readView(page);
    const address = page.url();
    await page.reload();
    await expect.poll(() => readView(page)).toBe(before);
    expect(page.url()).toBe(address);
    await page.keyboard.press("[");
    await expect.poll(() => page.url()).not.toBe(address);
    await page.goBack();
    await expect.poll(() => page.url()).toBe(address);
    await expect.poll(() => readView(page)).toBe(before);
  });
}

test("typing does not fill the history", async ({ openShop, page }) => {
  await openShop({ w: "icicle" });
  await flamePanel(page, "icicle").ready();
  const before = await page.evaluate(() => history.length);
  await page.getByRole("textbox", { name: /Search functions/ }).pressSequentially("json.Marshal");
  await expect(page.locator("#search-status")).toContainText("1 function");
  expect((await page.evaluate(() => history.length)) - before).toBeLessThanOrEqual(1);
});

test("copied link has fixed times unless Shift is held", async ({ openShop, page }) => {
  await openShop({ f: "now-1h", u: "now", w: "icicle" });
  await flamePanel(page, "icicle").ready();
  const copied = async (modifiers: "Shift"[]) => {
    await page.evaluate(() => navigator.clipboard.writeText(""));
    await page.getByRole("button", { name: "Copy link" }).click({ modifiers });
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain("/ui/");
    return new URL(await page.evaluate(() => navigator.clipboard.readText()));
  };
  const fixed = await copied([]);
  expect(fixed.searchParams.get("f")).toMatch(/^\d{13}$/);
  expect(fixed.searchParams.get("u")).toMatch(/^\d{13}$/);
  const relative = await copied(["Shift"]);
  expect(relative.searchParams.get("f") ?? "now-1h").toBe("now-1h");
  await page.goto(fixed.href);
  await flamePanel(page, "icicle").ready();
});

const OLD_LINKS: readonly (readonly [path: string, parameters: Record<string, string>, isLeft: boolean])[] = [
  ["/", { query: 'checkout.cpu{pod="checkout-a"}', from: "now-1h" }, false],
  ["/ui/", { query: 'checkout.cpu{pod="checkout-a"}', from: "1h", until: "now" }, false],
  ["/explore", { query: `${CPU_TYPE}{service_name="checkout",pod="checkout-a"}`, from: "now-1h" }, false],
  [
    "/comparison",
    { leftQuery: 'checkout.cpu{pod="checkout-a"}', rightQuery: "b.cpu{}", from: "now-1h" },
    true,
  ],
];

for (const [path, parameters, isLeft] of OLD_LINKS) {
  test(`old Pyroscope link ${path} opens the same view`, async ({ page, shopSite }) => {
    await page.goto(`${shopSite.url}${path}?${new URLSearchParams(parameters)}`);
    await flamePanel(page).ready();
    const { searchParams } = new URL(page.url());
    expect(searchParams.get("v")).toBe("1");
    expect(searchParams.get("q")?.replaceAll(" ", "")).toContain('pod="checkout-a"');
    await expect(page.locator(".chip").filter({ hasText: "checkout-a" })).toBeVisible();
    if (isLeft) await expect(page.locator(".notice")).toContainText("left side");
  });
}

test("old link with an unknown type keeps the application", async ({ page, shopSite }) => {
  await page.goto(`${shopSite.url}/?${new URLSearchParams({ query: "checkout.foo{}", from: "now-1h" })}`);
  await flamePanel(page).ready();
  await expect(page.locator(".notice")).toContainText("checkout.foo");
  await expect(page.locator(".chip")).toContainText("checkout");
});

test("unknown versions, parameters and values give notices and the nearest view", async ({
  openShop,
  page,
}) => {
  await openShop({ v: "9", zz: "1", c: "rainbow", w: "icicle" });
  await flamePanel(page, "icicle").ready();
  const notices = page.locator(".notice");
  await expect(notices.filter({ hasText: "parameter: zz" })).toBeVisible();
  await expect(notices.filter({ hasText: "parameter c" })).toContainText("rainbow");
});

test("unusable times, ids and orders give notices and are not used", async ({ openShop, page, calls }) => {
  await openShop({ f: "banana", u: "now", id: "zzz", o: "foo", w: "table" });
  await expect(page.locator(".table-summary")).toContainText(/\d/);
  const notices = page.locator(".notice");
  for (const [name, value] of [
    ["f", "banana"],
    ["id", "zzz"],
    ["o", "foo"],
  ] as const)
    await expect(notices.filter({ hasText: `parameter ${name} ` })).toContainText(value);
  await expect(page.getByRole("button", { name: /^Time range/ })).toContainText("Last 1 hour");
  const functions = calls.find(({ method }) => method.endsWith("/Functions"));
  expect(functions?.message.query.profileIdSelector).toBeUndefined();
  expect(new URL(page.url()).search).not.toMatch(/banana|zzz|foo/);
});

test("unknown profile type gives a notice and the first type", async ({ openShop, page }) => {
  await openShop({ y: "no:such:type:a:b", w: "icicle" });
  await flamePanel(page, "icicle").ready();
  await expect(page.locator(".notice")).toContainText("no:such:type:a:b. The page shows CPU time");
  await expect(page.getByRole("combobox", { name: "Profile type" })).toHaveValue(CPU_TYPE);
  expect(new URL(page.url()).searchParams.get("y")).toBe(CPU_TYPE);
});

test("profile type without profiles in the range stays", async ({ openShop, page, shopSite }) => {
  const stored = page.waitForResponse(
    (response) =>
      response.url().endsWith("/ProfileTypes") &&
      (response.request().postData() ?? "").includes('"start":"1"'),
  );
  const { end } = shopSite.shop;
  await openShop({ y: HEAP_TYPE, f: String(end - 44 * 60_000), u: String(end - 20 * 60_000), w: "icicle" });
  await stored;
  await expect(page.getByRole("heading", { name: "No profiles in this range" })).toBeVisible();
  await expect(page.getByRole("combobox", { name: "Profile type" })).toHaveValue(HEAP_TYPE);
  await expect(page.locator(".notice")).toHaveCount(0);
});

test("reversed range gives a notice and is shown the other way around", async ({ openShop, page }) => {
  await openShop({ f: "now", u: "now-1h", w: "icicle" });
  await flamePanel(page, "icicle").ready();
  await expect(page.locator(".notice")).toContainText("from now until now-1h");
  await expect(page.getByRole("button", { name: /^Time range/ })).toContainText("Last 1 hour");
});

test("range from 1970 without a profile type shows all data", async ({
  openShop,
  page,
  callShop,
  shopQuery,
}) => {
  await openShop({ f: "0", y: "", w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const query = shopQuery({ start: "1" });
  const { total } = await callShop("athanor.v1.ExploreService/Functions", { query });
  await expect(panel.summary).toContainText(formatValue(BigInt(total), "nanoseconds"));
  await page.goto(linkTo(new URL(page.url()).origin, { f: "0" }));
  await expect(page.getByRole("row", { name: /checkout/ })).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("unknown version gives a notice", async ({ page, shopSite }) => {
  await page.goto(`${shopSite.url}/ui/?v=9`);
  await expect(page.locator(".notice")).toContainText("version 9");
  await expect(page.getByRole("grid", { name: "Services" })).toBeVisible();
});

test("path that no longer exists gives a notice and its nearest frame", async ({ openShop, page }) => {
  const path = [...MARSHAL_PATH.slice(0, 3), "gone.away"];
  await openShop({ w: "icicle", z: path.join(";") });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await expect(page.locator(".notice")).toContainText(/no longer|not in|does not/);
  await expect(panel.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button")).toHaveText([
    "all",
    ...MARSHAL_PATH.slice(0, 3),
  ]);
});

/** Sends a stack of 512 frames with names of a library of long names. */
async function pushDeep(api: string, { end }: ShopRange): Promise<string[]> {
  const names = Array.from({ length: 512 }, (_, depth) => `library/of/long/names.Function${depth}`);
  await pushFile(api, `${names.join(";")} 100\n`, { name: "deep.cpu", fromMs: end - 300_000 });
  return names;
}

test("stack of 512 frames zooms to its end, and its link is compressed", async ({
  openShop,
  page,
  shopSite,
}) => {
  const names = await pushDeep(shopSite.api, shopSite.shop);
  await openShop({ q: '{service_name="deep"}', w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  await expect(panel.summary).toContainText("513 frames");
  const { start, end } = shopSite.shop;
  const query = {
    profileType: CPU_TYPE,
    selector: '{service_name="deep"}',
    start: String(start),
    end: String(end),
  };
  const tree = await fetchFlame(shopSite.api, { query });
  await panel.surface.evaluate((element) => {
    element.scrollTop = element.scrollHeight;
  });
  await expect(async () => {
    await panel.click(tree, nodeAt(tree, names));
    await expect(panel.panel.getByRole("navigation").getByRole("button").last()).toContainText(
      "Function511",
      {
        timeout: 500,
      },
    );
  }).toPass();
  const zoom = new URL(page.url()).searchParams.get("z") ?? "";
  expect(zoom.startsWith("~")).toBe(true);
  expect(page.url().length).toBeLessThan(8_000);
  await page.reload();
  await expect(panel.panel.getByRole("navigation").getByRole("button").last()).toContainText("Function511");
  await page.goto(
    linkTo(shopSite.url, { p: "explore", y: CPU_TYPE, q: '{service_name="deep"}', z: "~damaged!" }),
  );
  await expect(page.locator(".notice")).toContainText("parameter z");
});
