import { createHash } from "node:crypto";
import { defineConfig, type Plugin } from "vite";

// File names without hashes keep the diff of a committed build small. The page refers to them with a version
// made from their content, so that a browser may cache them for good.
function versionedFiles(): Plugin {
  return {
    name: "versioned-files",
    enforce: "post",
    generateBundle(_options, bundle) {
      const page = bundle["index.html"];
      if (page?.type !== "asset" || typeof page.source !== "string") return;
      const hash = createHash("sha256");
      for (const name of Object.keys(bundle).sort()) {
        const file = bundle[name];
        if (file === undefined || name === "index.html") continue;
        hash.update(name).update(file.type === "chunk" ? file.code : file.source);
      }
      const version = hash.digest("hex").slice(0, 12);
      page.source = page.source.replace(/((?:src|href)="\.\/[^"?]+)"/g, `$1?v=${version}"`);
    },
  };
}

export default defineConfig(({ command }) => ({
  // Relative, so that the page works under any path prefix.
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: "dist",
    target: "es2022",
    sourcemap: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "[name].js",
        assetFileNames: "[name][extname]",
      },
    },
  },
  worker: {
    format: "es",
    rollupOptions: { output: { entryFileNames: "[name].js" } },
  },
  plugins: command === "build" ? [versionedFiles()] : [],
  server: {
    proxy: {
      "^/(querier|athanor|types|settings|version)\\.": process.env["ATHANOR_URL"] ?? "http://127.0.0.1:4040",
      "^/(athanor|pyroscope|ready|shards|metrics|config|query-diagnostics)":
        process.env["ATHANOR_URL"] ?? "http://127.0.0.1:4040",
    },
  },
}));
