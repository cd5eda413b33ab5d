// Settings of the end-to-end tests, which drive Chromium against real servers.
import { defineConfig } from "@playwright/test";

const chromium = process.env["PLAYWRIGHT_CHROMIUM"] ?? "/usr/bin/chromium";

export default defineConfig({
  testDir: "e2e",
  outputDir: process.env["ATHANOR_E2E_OUTPUT"] ?? "test-results",
  workers: 1,
  retries: 0,
  reporter: "line",
  timeout: 30_000,
  expect: { timeout: 8_000 },
  forbidOnly: process.env["CI"] !== undefined,
  use: {
    browserName: "chromium",
    viewport: { width: 1_440, height: 900 },
    timezoneId: "UTC",
    locale: "en-US",
    permissions: ["clipboard-read", "clipboard-write"],
    launchOptions: { executablePath: chromium, args: ["--no-sandbox"] },
    actionTimeout: 8_000,
    trace: "off",
  },
});
