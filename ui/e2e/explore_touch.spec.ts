// Graphs of Explore on a touch screen, and the wheel without and with Ctrl.
import type { CDPSession, Page } from "@playwright/test";
import { pushFile } from "./support/api";
import { expect, linkTo, test } from "./support/fixtures";
import { fetchFlame, flamePanel, nodeAt } from "./support/flame";
import { CPU_TYPE } from "./support/shop";

/** Frames of a stack that is higher than the view. */
const DEEP_STACK = 90;

interface TouchPoint {
  readonly x: number;
  readonly y: number;
}

/** Moves two fingers along straight lines, in steps as a screen reports them. */
async function pinch(page: Page, from: readonly TouchPoint[], to: readonly TouchPoint[]): Promise<void> {
  const session: CDPSession = await page.context().newCDPSession(page);
  const touch = (type: "touchStart" | "touchMove" | "touchEnd", points: readonly TouchPoint[]) =>
    session.send("Input.dispatchTouchEvent", {
      type,
      touchPoints: points.map(({ x, y }, id) => ({ x, y, id })),
    });
  const steps = 8;
  await touch("touchStart", from);
  for (let step = 1; step <= steps; step++) {
    const between = from.map((start, finger) => {
      const end = to[finger] ?? start;
      return {
        x: start.x + ((end.x - start.x) * step) / steps,
        y: start.y + ((end.y - start.y) * step) / steps,
      };
    });
    await touch("touchMove", between);
  }
  await touch("touchEnd", []);
  await session.detach();
}

for (const view of ["flame", "icicle"] as const) {
  test(`${view}: two fingers zoom around the point between them`, async ({
    openShop,
    shopQuery,
    shopSite,
  }) => {
    const page = await openShop({ w: view });
    const panel = flamePanel(page, view);
    await panel.ready();
    const tree = await fetchFlame(shopSite.api, { query: shopQuery() });
    const path = ["main.main", "net/http.(*Server).Serve", "shop/cart.(*Cart).Total"];
    const { x, y } = await panel.pointOf(tree, nodeAt(tree, path));
    const address = page.url();
    const reset = panel.panel.getByRole("button", { name: "Reset zoom" });
    await expect(reset).toBeHidden();
    const apart = [
      { x: x - 160, y },
      { x: x + 160, y },
    ];
    const near = [
      { x: x - 20, y },
      { x: x + 20, y },
    ];
    await pinch(page, near, apart);
    await expect(reset).toBeVisible();
    // The frame between the fingers is still there, and no finger counted as a click.
    await page.mouse.move(x, y);
    await expect(panel.tooltip).toContainText("shop/cart.(*Cart).Total");
    expect(page.url()).toBe(address);
    await pinch(page, apart, near);
    await expect(reset).toBeHidden();
  });
}

test("wheel scrolls, with Ctrl it zooms", async ({ page, shopSite }) => {
  const { start, end } = shopSite.shop;
  const frames = Array.from({ length: DEEP_STACK }, (_, depth) => `level${depth}`);
  await pushFile(shopSite.api, `${frames.join(";")} 100\n`, { name: "tall.cpu", fromMs: end - 120_000 });
  const query = { y: CPU_TYPE, q: '{service_name="tall"}', f: String(start), u: String(end) };
  await page.goto(linkTo(shopSite.url, { p: "explore", w: "icicle", ...query }));
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const reset = panel.panel.getByRole("button", { name: "Reset zoom" });
  const scrollTop = () => panel.surface.evaluate((element) => element.scrollTop);
  await panel.surface.hover();
  await page.mouse.wheel(0, 60);
  await expect.poll(scrollTop).toBeGreaterThan(0);
  await expect(reset).toBeHidden();
  const scrolled = await scrollTop();
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -200);
  await page.keyboard.up("Control");
  await expect(reset).toBeVisible();
  expect(await scrollTop()).toBe(scrolled);
});
