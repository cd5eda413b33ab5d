// Function of Node that tests read files with. The types of Node are no dependency.

declare module "node:fs" {
  export function readFileSync(path: URL, encoding: "utf8"): string;
}
