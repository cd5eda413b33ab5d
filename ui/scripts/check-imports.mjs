// Lint of imports: a folder imports only from folders before it, and only the files in `app` that exist.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const APP_FOLDER = fileURLToPath(new URL("../app", import.meta.url));
const PACKAGES = ["preact", "preact/hooks", "@preact/signals", "uplot", "uplot/dist/uPlot.min.css"];
const TEST_PACKAGES = ["vitest", "node:fs", "node:zlib"];
const FOUNDATION = ["graph", "url", "api", "theme"];

// `types` lists folders of which only types may be imported.
const FOLDER_RULES = {
  graph: { values: ["graph"], types: ["api"] },
  theme: { values: ["theme"], types: [] },
  url: { values: ["url"], types: ["api"] },
  api: { values: ["api", "url"], types: [] },
  canvas: { values: ["canvas", "graph", "theme"], types: [] },
  components: { values: ["components", "canvas", ...FOUNDATION], types: [] },
  pages: { values: ["pages", "components", "canvas", ...FOUNDATION], types: [] },
  "": { values: ["pages", "components", "canvas", ...FOUNDATION], types: [] },
};

const IMPORT_PATTERN =
  /(?:^|\n)\s*(?:import|export)\s+(type\s+)?(?:[^"';]*?\sfrom\s+)?"([^"]+)"|new URL\("([^"]+)",\s*import\.meta\.url\)|import\("([^"]+)"\)/g;

function listFiles(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((item) => {
    const path = join(folder, item.name);
    return item.isDirectory() ? listFiles(path) : /\.tsx?$/.test(item.name) ? [path] : [];
  });
}

function folderOf(path) {
  const [first, ...rest] = relative(APP_FOLDER, path).split("/");
  return rest.length === 0 ? "" : first;
}

function resolveFile(path) {
  return ["", ".ts", ".tsx"].map((end) => path + end).find((name) => existsSync(name) && /\.\w+$/.test(name));
}

/** Returns what is wrong with one import, or undefined. */
function importProblem(file, target, isTypeOnly) {
  const isTest = /\.test\.tsx?$/.test(file) || file.includes("/testing/");
  if (!target.startsWith(".")) {
    if (PACKAGES.includes(target) || (isTest && TEST_PACKAGES.includes(target))) return undefined;
    return `package ${target} is no dependency`;
  }
  const path = resolveFile(resolve(dirname(file), target.replace(/\?(raw|worker)$/, "")));
  if (path === undefined) return `${target} does not exist`;
  const rule = FOLDER_RULES[folderOf(file)];
  const targetFolder = folderOf(path);
  if (rule === undefined) return `folder ${folderOf(file)} has no rule`;
  if (rule.values.includes(targetFolder)) return undefined;
  if (isTypeOnly && rule.types.includes(targetFolder)) return undefined;
  return `${folderOf(file) || "main"} imports ${target}, but may import only from ${rule.values.join(", ")}`;
}

const problems = [];
for (const file of listFiles(APP_FOLDER)) {
  for (const [, type, from, worker, dynamic] of readFileSync(file, "utf8").matchAll(IMPORT_PATTERN)) {
    const target = from ?? worker ?? dynamic;
    const problem = importProblem(file, target, type !== undefined);
    if (problem !== undefined) problems.push(`app/${relative(APP_FOLDER, file)}: ${problem}`);
  }
}
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
