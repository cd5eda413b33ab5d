// Explore as a whole: stable layout, sharp canvases, damaged responses.
import type { Page } from "@playwright/test";
import { expect, test } from "./support/fixtures";
import { flamePanel } from "./support/flame";

/** Returns the places of the parts of Explore. */
async function readLayout(page: Page): Promise<unknown> {
  const boxes = [".header", ".timeline", ".explore-toolbar", ".explore-views", ".explore-view"];
  return page.evaluate(
    (selectors) =>
      selectors.flatMap((selector) =>
        [...document.querySelectorAll(selector)].map((element) => {
          const { x, y, width, height } = element.getBoundingClientRect();
          return [selector, x, y, width, height].join(" ");
        }),
      ),
    boxes,
  );
}

test("nothing moves while results load, and the graph fills the window", async ({ openShop, page }) => {
  const held: (() => void)[] = [];
  let isHolding = true;
  await page.route(/SelectSeries|ExploreService\/(Graph|Functions)/, async (route) => {
    if (isHolding) await new Promise<void>((release) => held.push(release));
    await route.continue();
  });
  const release = () => {
    isHolding = false;
    for (const pass of held.splice(0)) pass();
  };
  await openShop({ w: "icicle,table" });
  await expect(page.locator(".explore-view")).toHaveCount(2);
  await expect.poll(() => held.length).toBeGreaterThanOrEqual(3);
  const loading = await readLayout(page);
  release();
  await flamePanel(page, "icicle").ready();
  await expect(page.locator(".table-summary")).toContainText(/\d/);
  expect(await readLayout(page)).toEqual(loading);
  const bottom = await page
    .locator(".explore-view")
    .first()
    .evaluate((element) => element.getBoundingClientRect().bottom);
  expect(Math.abs(bottom - 900)).toBeLessThanOrEqual(1);
  isHolding = true;
  await page.getByRole("button", { name: "Refresh now" }).click();
  await expect.poll(() => held.length).toBeGreaterThanOrEqual(3);
  await expect(page.getByText(/Running for \d+ s/).first()).toBeVisible();
  expect(await readLayout(page)).toEqual(loading);
  release();
  await expect(page.getByText(/Running for \d+ s/)).toHaveCount(0);
  expect(await readLayout(page)).toEqual(loading);
});

test("transforms move nothing, and the request button stays beside the search", async ({
  openShop,
  page,
}) => {
  const toolbar = page.getByRole("toolbar", { name: "Views" });
  const topOf = (label: string) =>
    toolbar.getByLabel(label).evaluate((element) => {
      const { top, height } = element.getBoundingClientRect();
      return top + height / 2;
    });
  const names = ["main.main", "shop/cart.(*Cart).Total", "net/http.(*Server).Serve", "encoding/json.Marshal"];
  for (const width of [1_280, 1_024]) {
    await page.setViewportSize({ width, height: 720 });
    await openShop({ w: "icicle" });
    await flamePanel(page, "icicle").ready();
    const search = await topOf("Search functions by text or /regex/");
    expect(Math.abs((await topOf("Request as a command")) - search)).toBeLessThan(2);
    const plain = await readLayout(page);
    const transforms = names.map((name) => `focus=${name}`);
    await openShop({ w: "icicle", x: transforms, id: "7b8f6c1e-6a0f-4a8e-9d3f-000000000000" });
    const chips = page.getByRole("list", { name: /Transforms/ }).getByRole("listitem");
    await expect(chips).toHaveCount(4);
    await expect(chips.last(), "the latest chip").toBeInViewport({ ratio: 0.99 });
    await expect(page.locator(".selection-chip")).toBeInViewport({ ratio: 0.99 });
    await expect(page.locator(".transform-chips-row")).toHaveCSS("scrollbar-width", "thin");
    const withoutTimeline = (layout: unknown) =>
      (layout as string[]).filter((box) => !box.startsWith(".timeline"));
    expect(withoutTimeline(await readLayout(page))).toEqual(withoutTimeline(plain));
  }
});

for (const deviceScaleFactor of [1.5, 2]) {
  test.describe(`at ${deviceScaleFactor} pixels a dot`, () => {
    test.use({ deviceScaleFactor });
    test("canvases are sharp", async ({ openShop, page }) => {
      await openShop({ w: "icicle" });
      await flamePanel(page, "icicle").ready();
      const scales = await page.locator(".flame-canvases canvas").evaluateAll((canvases) =>
        canvases.map((item) => {
          const canvas = item as HTMLCanvasElement;
          const { width, height } = canvas.getBoundingClientRect();
          return [canvas.width / width, canvas.height / height];
        }),
      );
      expect(scales).toHaveLength(2);
      for (const scale of scales.flat()) expect(Math.abs(scale - deviceScaleFactor)).toBeLessThan(0.01);
    });
  });
}

/** Damages a response of Graph. */
const DAMAGES: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  "cut off": (bytes) => bytes.subarray(0, bytes.length - 7),
  "no message": () => Buffer.from("<html>hello</html>"),
  // 1 048 576 nodes of which none has a value.
  "columns of different lengths": () =>
    Buffer.concat([Buffer.from([0x0a, 0x80, 0x80, 0x40]), Buffer.alloc(1_048_576, 1)]),
  // A column that would have 2^34 bytes.
  "length beyond the message": () => Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0x3f, 1]),
};

for (const [title, damage] of Object.entries(DAMAGES)) {
  test(`graph with ${title} is an error that a retry ends`, async ({ openShop, page }) => {
    const path = "**/athanor.v1.ExploreService/Graph";
    await page.route(path, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: damage(await response.body()) });
    });
    await openShop({ w: "icicle" });
    await expect(page.locator("main").getByRole("alert")).toContainText("cannot decode the graph");
    await page.unroute(path);
    await page.getByRole("button", { name: "Retry" }).click();
    await flamePanel(page, "icicle").ready();
    await expect(page.locator("main").getByRole("alert")).toHaveCount(0);
  });
}
