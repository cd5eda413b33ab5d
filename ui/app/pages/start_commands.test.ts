// Tests of the commands of the start page.
import { expect, test } from "vitest";
import { startCommands } from "./start_commands";

const HOSTILE_TENANT = `a'b"; rm -rf / \\`;

test("all commands have the address and no tenant unless there is one", () => {
  const commands = startCommands({ url: "https://host/prefix", tenant: "" });
  expect(commands.map(({ title }) => title)).toEqual(
    expect.arrayContaining(["Go", "Java", "Python", "Node", "Rust", "Ruby", ".NET", "perf", "curl"]),
  );
  for (const { title, text } of commands) {
    expect(text, title).toContain("https://host/prefix");
    expect(text, title).not.toMatch(/tenant|OrgID/i);
  }
});

test("tenant is quoted for shells and languages", () => {
  for (const { title, text } of startCommands({ url: "http://h:4040", tenant: HOSTILE_TENANT })) {
    const quotedForShell = HOSTILE_TENANT.replaceAll("'", "'\\''");
    const isQuoted = text.includes(quotedForShell) || text.includes(JSON.stringify(HOSTILE_TENANT));
    expect(isQuoted, title).toBe(true);
  }
});

test("Ruby does not evaluate a tenant", () => {
  const ruby = startCommands({ url: "http://h:4040", tenant: "#{exit}" }).find(
    ({ title }) => title === "Ruby",
  );
  expect(ruby?.text).toContain('"\\#{exit}"');
});
