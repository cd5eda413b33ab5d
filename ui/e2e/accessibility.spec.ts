// Accessibility: axe on each page in both themes, keyboard alone, reduced motion, narrow and enlarged pages.
import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";
import { expect, test } from "./support/fixtures";
import { flamePanel } from "./support/flame";

const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** Checks a page, or the part of it that a selector names. */
async function expectNoViolations(page: Page, part = "html"): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).include(part).withTags(TAGS).analyze();
  const found = violations.map(({ id, help, nodes }) => ({
    id,
    help,
    nodes: nodes
      .slice(0, 4)
      .map(({ html, failureSummary }) => `${html.slice(0, 300)} ${failureSummary ?? ""}`),
  }));
  expect(found).toEqual([]);
}

const PAGES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  start: { p: "start", q: "{}" },
  fleet: { p: "fleet", q: "{}" },
  flame: { w: "flame", g: "pod", s: "json" },
  icicle: { w: "icicle", x: "hide=shop/tax.Rate" },
  table: { w: "table" },
  tree: { w: "tree" },
  sandwich: { w: "sandwich", fn: "encoding/json.Marshal" },
  "two views": { w: "icicle,table", g: "pod", tm: "stacked" },
};

/** Waits until a page has all its parts. */
async function expectLoaded(page: Page): Promise<void> {
  await expect(page.locator("main")).toBeVisible();
  await expect(page.locator("main")).toContainText(/\w{3}/);
  await expect(page.locator(".query-progress, [aria-busy=true]")).toHaveCount(0);
}

for (const colorScheme of ["light", "dark"] as const) {
  for (const [title, parameters] of Object.entries(PAGES)) {
    test(`${title} has no violations in the ${colorScheme} theme`, async ({ page, openShop }) => {
      await page.emulateMedia({ colorScheme });
      await openShop(parameters);
      await expectLoaded(page);
      await expectNoViolations(page);
    });
  }

  test(`dialogs and menus have no violations in the ${colorScheme} theme`, async ({ page, openShop }) => {
    await page.emulateMedia({ colorScheme });
    await openShop({ w: "icicle" });
    const panel = flamePanel(page, "icicle");
    await panel.ready();
    await page.keyboard.press("?");
    await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
    await expectNoViolations(page, "dialog");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await expect(page.getByRole("option", { name: /checkout/ }).first()).toBeVisible();
    await expectNoViolations(page, "dialog");
    await page.keyboard.press("Escape");
    await panel.surface.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Shift+F10");
    await expect(page.getByRole("menu")).toBeVisible();
    await expectNoViolations(page, ".frame-menu");
    await page.keyboard.press("Escape");
    for (const title of ["Time range", "Request as a command", "Save the query as a file", "Help"]) {
      await page.getByRole("button", { name: title }).last().click();
      await expectNoViolations(page, ".menu-panel");
      await page.keyboard.press("Escape");
    }
  });
}

test("theme button switches the theme, which the browser keeps", async ({ page, openShop }) => {
  await page.emulateMedia({ colorScheme: "light" });
  await openShop({ w: "icicle" });
  await flamePanel(page, "icicle").ready();
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole("button", { name: "Theme: system" }).click();
  await page.getByRole("button", { name: "Theme: light" }).click();
  await expect(page.getByRole("button", { name: "Theme: dark" })).toBeVisible();
  await expect.poll(background).not.toBe(light);
  await page.reload();
  await expect(page.getByRole("button", { name: "Theme: dark" })).toBeVisible();
  expect(await background()).not.toBe(light);
});

/** Presses Tab until an element has the focus. Each focused element is visible. */
async function tabTo(page: Page, description: RegExp): Promise<void> {
  for (let step = 0; step < 80; step++) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => {
      const element = document.activeElement;
      if (!(element instanceof HTMLElement)) return { text: "", isVisible: true };
      const { width, height } = element.getBoundingClientRect();
      const labels = (element as HTMLInputElement).labels;
      const label =
        labels === null || labels === undefined ? "" : [...labels].map((item) => item.textContent).join(" ");
      const text = [element.getAttribute("aria-label"), element.title, element.textContent, label].join(" ");
      return { text, isVisible: width > 0 && height > 0 };
    });
    expect(focused.isVisible, `the focus is visible: ${focused.text}`).toBe(true);
    if (description.test(focused.text)) return;
  }
  throw new Error(`Tab does not reach ${description}`);
}

test("Explore works by keyboard alone", async ({ page, openShop }) => {
  await openShop({ p: "fleet", q: "{}" });
  await expect(page.getByRole("row", { name: /checkout/ })).toBeVisible();
  await tabTo(page, /^Services/);
  await page.keyboard.press("End");
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  const panel = flamePanel(page);
  await panel.ready();
  await tabTo(page, /^Timeline\./);
  await tabTo(page, /Split/);
  await page.keyboard.press("Enter");
  await expect(page.locator(".explore-view")).toHaveCount(2);
  await tabTo(page, /^Flame graph\./);
  await page.keyboard.press("ArrowUp");
  await expect(panel.panel.locator('[aria-live="polite"]')).toContainText("main.main");
  await page.keyboard.press("Enter");
  await expect(panel.panel.getByRole("navigation", { name: /Callers/ }).getByRole("button")).toHaveCount(2);
  await page.keyboard.press("h");
  await expect(page.getByRole("list", { name: /Transforms/ }).getByRole("listitem")).toHaveCount(1);
  await page.keyboard.press("/");
  await page.keyboard.type("json");
  await expect(page.locator("#search-status")).toContainText("function");
  await tabTo(page, /^Functions/);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Shift+F10");
  await expect(page.getByRole("menu")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("grid", { name: "Functions" })).toBeFocused();
});

test("graph has a focus ring and announces its selection", async ({ page, openShop }) => {
  await openShop({ w: "icicle" });
  const panel = flamePanel(page, "icicle");
  await panel.ready();
  const before = await panel.surface.screenshot();
  await page
    .getByRole("button", { name: "Reset zoom" })
    .or(panel.panel.getByRole("button").first())
    .first()
    .focus();
  await page.keyboard.press("Tab");
  await expect(panel.surface).toBeFocused();
  await expect.poll(async () => (await panel.surface.screenshot()).equals(before)).toBe(false);
  await expect(panel.panel.locator('[aria-live="polite"]')).toContainText("all; total");
});

test("zoom has no motion if the user prefers that", async ({ page, openShop }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  await openShop({ w: "icicle" });
  await flamePanel(page, "icicle").ready();
  const moving = await page.evaluate(() =>
    [...document.querySelectorAll("*")]
      .filter((element) => {
        const style = getComputedStyle(element);
        const seconds = [...style.transitionDuration.split(","), ...style.animationDuration.split(",")];
        return seconds.some((text) => Number.parseFloat(text) > 0.05);
      })
      .map((element) => element.className),
  );
  expect(moving).toEqual([]);
});

/** Returns controls that are cut by the window or by an ancestor that does not scroll. */
async function clippedControls(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const controls = [
      ...document.querySelectorAll<HTMLElement>("button, input, select, a[href], [role=application]"),
    ];
    const isHidden = (element: HTMLElement) =>
      !element.checkVisibility({ visibilityProperty: true }) ||
      element.closest(".visually-hidden, .skip-link") !== null;
    const isWithinScroller = (element: HTMLElement) => {
      for (let parent = element.parentElement; parent !== null; parent = parent.parentElement) {
        const { overflowX, overflowY } = getComputedStyle(parent);
        if (/auto|scroll/.test(overflowX + overflowY)) return true;
      }
      return false;
    };
    const clipped = controls.filter((element) => {
      if (isHidden(element) || element.classList.contains("skip-link")) return false;
      const box = element.getBoundingClientRect();
      const isOutside = box.left < -1 || box.right > innerWidth + 1;
      return (isOutside || box.width < 4 || box.height < 4) && !isWithinScroller(element);
    });
    return clipped.map((element) => element.outerHTML.slice(0, 160));
  });
}

for (const [title, width, height, scale] of [
  ["1024 px", 1_024, 768, 1],
  // A page at 200 % has half of the pixels of a window of 1440 by 900.
  ["200 % zoom", 720, 450, 2],
] as const) {
  test(`${title} loses no control`, async ({ browser, shopSite, page, openShop }) => {
    expect([browser.isConnected(), shopSite.url.length > 0, scale > 0]).toEqual([true, true, true]);
    await page.setViewportSize({ width, height });
    for (const parameters of Object.values(PAGES)) {
      await openShop(parameters ?? {});
      await expectLoaded(page);
      expect(await clippedControls(page), JSON.stringify(parameters)).toEqual([]);
      for (const close of await page.getByRole("button", { name: "Close this view" }).all()) {
        const pane = close.locator("xpath=ancestor::*[@data-view]");
        const [outer, inner] = [await pane.boundingBox(), await close.boundingBox()];
        const right = (box: typeof outer) => (box?.x ?? 0) + (box?.width ?? 0);
        expect(right(inner), "the close button is in its pane").toBeLessThanOrEqual(right(outer));
      }
      expect(
        await page.evaluate(() => document.documentElement.scrollWidth - innerWidth),
      ).toBeLessThanOrEqual(0);
    }
  });
}
