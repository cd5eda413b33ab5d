// Table of Explore: rows, order, filter and copies equal the API's Functions.
import { formatExact, formatPercent, formatValue } from "../app/theme/format";
import { pushSeries } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { encodePprof } from "./support/pprof";
import { EVENT_TYPE, frameOf, functionsOf, totalOf } from "./support/shop";
import { readTable } from "./support/table";

const FUNCTIONS = "athanor.v1.ExploreService/Functions";

test("rows equal Functions and the plain list of stacks", async ({
  openShop,
  shopQuery,
  callShop,
  shopSite,
}) => {
  const page = await openShop({ w: "table" });
  const grid = page.getByRole("grid", { name: "Functions" });
  await expect(grid.getByRole("row").nth(1)).toContainText(/\d/);
  const response = await callShop(FUNCTIONS, { query: shopQuery(), page: { limit: 10_000 } });
  const rows = await readTable(grid);
  expect(rows).toHaveLength(Number(response.count));
  const whole = BigInt(response.total);
  let sum = 0n;
  for (const [index, row] of response.rows.entries()) {
    const self = BigInt(row.self ?? 0);
    const total = BigInt(row.total ?? 0);
    sum += self;
    expect(rows[index]).toEqual({
      flat: formatValue(self, response.unit),
      "flat %": formatPercent(self, whole),
      "sum %": formatPercent(sum, whole),
      cum: formatValue(total, response.unit),
      "cum %": formatPercent(total, whole),
      Function: row.name,
      File: row.file,
      Binary: row.binary,
    });
    const exact = grid
      .getByRole("row")
      .nth(index + 1)
      .locator("[data-value]");
    expect(await exact.evaluateAll((cells) => cells.map((cell) => cell.getAttribute("data-value")))).toEqual([
      self.toString(),
      total.toString(),
    ]);
  }
  const expected = functionsOf(shopSite.shop.checkout);
  expect(whole).toBe(totalOf(shopSite.shop.checkout));
  expect(response.rows).toHaveLength(expected.size);
  for (const row of response.rows) {
    expect({ self: BigInt(row.self ?? 0), total: BigInt(row.total ?? 0) }).toEqual(expected.get(row.name));
  }
  await expect(page.locator(".table-summary")).toContainText(formatValue(whole, response.unit));
});

for (const [title, order] of [
  ["cum", "FUNCTION_ORDER_TOTAL"],
  ["Function", "FUNCTION_ORDER_NAME"],
  ["File", "FUNCTION_ORDER_FILE"],
  ["Binary", "FUNCTION_ORDER_BINARY"],
  ["flat", "FUNCTION_ORDER_SELF"],
] as const) {
  test(`column ${title} sorts in both directions`, async ({ openShop, shopQuery, callShop }) => {
    const page = await openShop({ w: "table", o: title === "flat" ? "total" : "self" });
    const grid = page.getByRole("grid", { name: "Functions" });
    const namesOf = async (reverse: boolean) => {
      const request = { query: shopQuery(), order, reverse, page: { limit: 10_000 } };
      const { rows } = await callShop(FUNCTIONS, request);
      return rows.map(({ name }: { name: string }) => name);
    };
    const header = grid.getByRole("columnheader", { name: title, exact: true }).getByRole("button");
    for (const reverse of [false, true]) {
      await header.click();
      const names = await namesOf(reverse);
      await expect
        .poll(async () => (await readTable(grid)).map((row) => row["Function"]), `reverse ${reverse}`)
        .toEqual(names);
    }
  });
}

test("search filters the table and states exact totals", async ({ openShop, shopQuery, callShop }) => {
  const page = await openShop({ w: "table" });
  for (const [search, filter] of [
    ["shop/", { substring: "shop/" }],
    ["/json|malloc/", { regex: "json|malloc" }],
  ] as const) {
    await page.getByRole("textbox", { name: /Search functions/ }).fill(search);
    const { count, matchedTotal, total, rows } = await callShop(FUNCTIONS, { query: shopQuery(), filter });
    const share = formatPercent(BigInt(matchedTotal), BigInt(total));
    await expect(page.locator("#search-status")).toHaveText(`${count} functions, ${share}`);
    await expect(page.locator(".table-summary")).toContainText(share);
    const grid = page.getByRole("grid", { name: "Functions" });
    await expect
      .poll(async () => (await readTable(grid)).map((row) => row["Function"]))
      .toEqual(rows.map(({ name }: { name: string }) => name));
  }
});

test("columns hide and the table copies as tab-separated values", async ({
  openShop,
  shopQuery,
  callShop,
}) => {
  const page = await openShop({ w: "table" });
  const grid = page.getByRole("grid", { name: "Functions" });
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("checkbox", { name: "Binary" }).uncheck();
  await page.keyboard.press("Escape");
  await expect(grid.getByRole("columnheader", { name: "Binary" })).toBeHidden();
  await page.getByRole("button", { name: "Copy as TSV" }).click();
  await expect(page.getByText(/Copied \d+ rows/)).toBeVisible();
  const lines = (await page.evaluate(() => navigator.clipboard.readText())).trimEnd().split("\n");
  const { rows, total } = await callShop(FUNCTIONS, { query: shopQuery(), page: { limit: 10_000 } });
  let sum = 0n;
  const expected = rows.map((row: Record<string, string>) => {
    const self = BigInt(row["self"] ?? 0);
    const cum = BigInt(row["total"] ?? 0);
    sum += self;
    const shares = [self, sum, cum].map((value) => formatPercent(value, BigInt(total)));
    return [self, shares[0], shares[1], cum, shares[2], row["name"], row["file"]].join("\t");
  });
  expect(lines).toEqual(["flat\tflat %\tsum %\tcum\tcum %\tFunction\tFile", ...expected]);
});

for (const frames of ["package", "file"]) {
  test(`menu of a row is about its function with frames by ${frames}`, async ({ openShop }) => {
    const name = "encoding/json.Marshal";
    const page = await openShop({ w: "table,icicle", fr: frames });
    const row = page.getByRole("grid", { name: "Functions" }).getByRole("row", { name });
    const parameter = (key: string) => new URL(page.url()).searchParams.get(key);
    await row.click({ button: "right" });
    await page.getByRole("menuitem", { name: "Focus on this function" }).click();
    await expect.poll(() => parameter("x")).toBe(`focus=${name}`);
    await row.click({ button: "right" });
    await page.getByRole("menuitem", { name: "Copy link to its sandwich" }).click();
    await expect(page.getByText("Copied the link.")).toBeVisible();
    await page.goto(await page.evaluate(() => navigator.clipboard.readText()));
    await expect(page.locator(".sandwich-function")).toContainText(name);
  });
}

test("values beyond 2^53 are exact in all views", async ({ page, shopSite, callShop }) => {
  const { start, end } = shopSite.shop;
  const value = 2n ** 53n + 1n;
  const samples = [
    { stack: ["main.main", "big.left"].map(frameOf), value },
    { stack: ["main.main", "big.right"].map(frameOf), value: value + 2n },
  ];
  const profile = encodePprof({
    ...{ type: ["events", "count"], periodType: ["events", "count"], period: 1n },
    ...{ timeMs: end - 60_000, durationMs: 10_000, samples },
  });
  await pushSeries(shopSite.api, [{ labels: { __name__: "events", service_name: "ledger" }, profile }]);
  const selector = '{service_name="ledger"}';
  const view = {
    p: "explore",
    y: EVENT_TYPE,
    q: selector,
    f: String(start),
    u: String(end),
    w: "table,tree",
  };
  await page.goto(linkTo(shopSite.url, view));
  const query = { profileType: EVENT_TYPE, selector, start: String(start), end: String(end) };
  const { total, rows } = await callShop(FUNCTIONS, { query });
  expect(total).toBe("18014398509481988");
  expect(rows[0]).toMatchObject({ name: "big.right", self: "9007199254740995" });
  const grid = page.getByRole("grid", { name: "Functions" });
  await expect(grid.locator('[data-value="9007199254740995"]').first()).toHaveAttribute(
    "title",
    formatExact(9007199254740995n, "count"),
  );
  await expect(grid.locator('[data-value="9007199254740993"]')).toHaveCount(2);
  const tree = page.getByRole("treegrid", { name: "Call tree" });
  await expect(tree.locator('[data-value="18014398509481988"]').first()).toBeVisible();
  await expect(tree.locator('[data-value="9007199254740993"]').first()).toBeVisible();
  await expect(tree.locator('[data-value="9007199254740995"]').first()).toBeVisible();
  const expectSandwich = async (name: string, total: bigint, self: bigint) => {
    await page.goto(linkTo(shopSite.url, { ...view, w: "sandwich", fn: name }));
    const values = page.locator(".sandwich-function strong[title]");
    await expect(values.nth(1)).toHaveAttribute("title", formatExact(total, "count"));
    await expect(values.nth(2)).toHaveAttribute("title", formatExact(self, "count"));
  };
  await expectSandwich("main.main", 18014398509481988n, 0n);
  await expectSandwich("big.right", 9007199254740995n, 9007199254740995n);
});
