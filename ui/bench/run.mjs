// Bundles and runs benches: `npm run bench`, or `node bench/run.mjs graph draw server` for some of them.
// `server` and `leaks` measure the program that ATHANOR_BIN names, by default ../target/release/athanor. Its UI is the
// embedded one, or that in the folder ATHANOR_UI_DIST. `leaks` is a long form of a part of `server` and only runs by name.

import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "vite";

const BENCHES = {
  graph: "graph_bench.ts",
  draw: "draw_bench.mjs",
  server: "server_bench.mjs",
  leaks: "leak_bench.mjs",
};
const DEFAULT_BENCHES = ["graph", "draw", "server"];
// Below `node_modules`, where bundles find the packages that are not part of them.
const folder = mkdtempSync(fileURLToPath(new URL("../node_modules/.bench-", import.meta.url)));

async function runBench(name) {
  const file = BENCHES[name];
  if (file === undefined) throw new Error(`no bench ${name}; there are ${Object.keys(BENCHES).join(", ")}`);
  await build({
    configFile: false,
    logLevel: "error",
    build: {
      outDir: folder,
      emptyOutDir: false,
      target: "node20",
      minify: false,
      ssr: fileURLToPath(new URL(file, import.meta.url)),
      rollupOptions: { output: { entryFileNames: `${name}.mjs` } },
    },
  });
  await import(pathToFileURL(join(folder, `${name}.mjs`)).href);
}

const names = process.argv.slice(2);
try {
  for (const name of names.length > 0 ? names : DEFAULT_BENCHES) await runBench(name);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
