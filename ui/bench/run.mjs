// Bundles and runs the benches: `npm run bench`.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "vite";

const folder = mkdtempSync(join(tmpdir(), "athanor-ui-bench-"));
try {
  await build({
    configFile: false,
    logLevel: "error",
    build: {
      outDir: folder,
      target: "node20",
      minify: false,
      ssr: new URL("./graph_bench.ts", import.meta.url).pathname,
      rollupOptions: { output: { entryFileNames: "graph_bench.mjs" } },
    },
  });
  await import(pathToFileURL(join(folder, "graph_bench.mjs")).href);
} finally {
  rmSync(folder, { recursive: true });
}
