// Server, address of the page and checks that all tests share.
import { test as base, type Page, type Request } from "@playwright/test";
import { callApi, type JsonMessage } from "./api";
import { TestProxy } from "./proxy";
import { type ServerOptions, TestServer } from "./server";
import { CPU_TYPE, pushShop, type Shop } from "./shop";

export { expect } from "@playwright/test";

/** Folder with a build of the UI to test in place of the embedded files. */
const UI_DIST = process.env["ATHANOR_UI_DIST"];

/** Server together with the address at which a browser opens its page. */
export interface Site {
  readonly server: TestServer;
  /** Address of the server for calls of the test. */
  readonly api: string;
  /** Address of the page's root, without a slash at its end. */
  readonly url: string;
  readonly proxy: TestProxy | undefined;
}

export interface SiteOptions extends ServerOptions {
  readonly prefix?: string;
  /** Whether the test replaces responses. */
  readonly needsProxy?: boolean;
}

/** Server with the shop's profiles. */
export interface ShopSite extends Site {
  readonly shop: Shop;
}

async function startSite(options: SiteOptions = {}): Promise<Site> {
  const server = await TestServer.start(options);
  const { prefix = "", needsProxy = false } = options;
  const hasProxy = UI_DIST !== undefined || prefix !== "" || needsProxy;
  const proxy = hasProxy ? await TestProxy.start({ target: server.url, prefix, dist: UI_DIST }) : undefined;
  return { server, api: server.url, url: proxy?.url ?? server.url, proxy };
}

async function stopSite({ server, proxy }: Site): Promise<void> {
  await proxy?.stop();
  await server.stop();
}

/** Call that the page made. */
export interface PageCall {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Message of a JSON call, undefined for others. */
  readonly message: JsonMessage;
}

function readCall(request: Request): PageCall | undefined {
  const method = /\/((?:querier|athanor)\.v1\.\w+\/\w+)$/.exec(new URL(request.url()).pathname)?.[1];
  if (method === undefined || request.method() !== "POST") return undefined;
  const headers = request.headers();
  const isJson = headers["content-type"] === "application/json";
  return { method, headers, message: isJson ? JSON.parse(request.postData() ?? "{}") : undefined };
}

interface TestFixtures {
  /** Starts a server for one test. */
  startOwnSite: (options?: SiteOptions) => Promise<Site>;
  /** Calls of the page so far. */
  calls: PageCall[];
  /** Fails the test on a violation of the content security policy or an error of a script. */
  pageGuard: undefined;
  /** Opens a view of the shop. */
  openShop: (parameters?: ViewParameters) => Promise<Page>;
  /** Calls the API with the query of a service of the shop. */
  shopQuery: (change?: Readonly<Record<string, unknown>>) => Record<string, unknown>;
  callShop: (method: string, request: unknown) => Promise<JsonMessage>;
}

interface WorkerFixtures {
  shopSite: ShopSite;
}

/** Parameters of a link without its version. */
export type ViewParameters = Readonly<Record<string, string | readonly string[]>>;

/** Returns the address of a view. */
export function linkTo(siteUrl: string, parameters: ViewParameters): string {
  const search = new URLSearchParams([["v", "1"]]);
  for (const [name, value] of Object.entries(parameters)) {
    for (const text of typeof value === "string" ? [value] : value) search.append(name, text);
  }
  return `${siteUrl}/ui/?${search}`;
}

export const CHECKOUT_SELECTOR = '{service_name="checkout"}';

export const test = base.extend<TestFixtures, WorkerFixtures>({
  shopSite: [
    // biome-ignore lint/correctness/noEmptyPattern: Playwright reads the names of fixtures from the pattern
    async ({}, use) => {
      const site = await startSite();
      const shop = await pushShop(site.api);
      await use({ ...site, shop });
      await stopSite(site);
    },
    { scope: "worker" },
  ],
  // biome-ignore lint/correctness/noEmptyPattern: Playwright reads the names of fixtures from the pattern
  startOwnSite: async ({}, use) => {
    const sites: Site[] = [];
    await use(async (options) => {
      const site = await startSite(options);
      sites.push(site);
      return site;
    });
    for (const site of sites) await stopSite(site);
  },
  calls: async ({ page }, use) => {
    const calls: PageCall[] = [];
    page.on("request", (request) => {
      const call = readCall(request);
      if (call !== undefined) calls.push(call);
    });
    await use(calls);
  },
  pageGuard: [
    async ({ context }, use) => {
      const problems: string[] = [];
      await context.addInitScript(() => {
        document.addEventListener("securitypolicyviolation", (event) => {
          console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI}`);
        });
      });
      context.on("weberror", (error) => problems.push(String(error.error())));
      context.on("console", (message) => {
        if (/Content.Security.Policy/i.test(message.text())) problems.push(message.text());
      });
      context.on("dialog", (dialog) => {
        problems.push(`a dialog opened: ${dialog.message()}`);
        void dialog.dismiss();
      });
      await use(undefined);
      base.expect(problems, "errors of scripts and of the content security policy").toEqual([]);
    },
    { auto: true },
  ],
  openShop: async ({ page, shopSite }, use) => {
    await use(async (parameters = {}) => {
      const { start, end } = shopSite.shop;
      const defaults = { p: "explore", y: CPU_TYPE, q: CHECKOUT_SELECTOR, f: String(start), u: String(end) };
      await page.goto(linkTo(shopSite.url, { ...defaults, ...parameters }));
      return page;
    });
  },
  shopQuery: async ({ shopSite }, use) => {
    const { start, end } = shopSite.shop;
    await use((change = {}) => ({
      ...{ profileType: CPU_TYPE, selector: CHECKOUT_SELECTOR, start: String(start), end: String(end) },
      ...change,
    }));
  },
  callShop: async ({ shopSite }, use) => {
    await use((method, request) => callApi(shopSite.api, method, request));
  },
});
