// Writes app/api/types.ts from the .proto files. With --check, fails if the file differs.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseProto } from "./proto_parser.mjs";

const PROTO_FOLDER = new URL("../../proto/protos/", import.meta.url);
const PROTO_FILES = ["types/v1/types.proto", "querier/v1/querier.proto", "athanor/v1/explore.proto"];
const OUTPUT_FILE = fileURLToPath(new URL("../app/api/types.ts", import.meta.url));
// Methods that no page calls. Neither they nor the types that only they use are written.
const UNUSED_METHODS = [
  "SelectMergeStacktraces",
  "SelectMergeSpanProfile",
  "SelectMergeProfile",
  "SelectHeatmap",
  "Diff",
  "Samples",
  "Lines",
  "Changes",
  "Profiles",
  "Subtree",
];
// Requests that are sent as protobuf. Field tables exist only for what these contain.
const PROTOBUF_REQUESTS = ["GraphRequest"];

const TYPESCRIPT_TYPES = {
  bool: "boolean",
  string: "string",
  bytes: "string",
  double: "number",
  float: "number",
  int32: "number",
  uint32: "number",
  sint32: "number",
  int64: "string",
  uint64: "string",
  sint64: "string",
};

const jsonName = (name) => name.replace(/_([a-z0-9])/gi, (_match, letter) => letter.toUpperCase());

function loadProtos() {
  const messages = new Map();
  const enums = new Map();
  const services = [];
  for (const path of PROTO_FILES) {
    const file = parseProto(readFileSync(new URL(path, PROTO_FOLDER), "utf8"), path);
    for (const [kind, list] of [
      [messages, file.messages],
      [enums, file.enums],
    ]) {
      for (const item of list) {
        if (messages.has(item.name) || enums.has(item.name))
          throw new Error(`${path}: second type named ${item.name}`);
        kind.set(item.name, item);
      }
    }
    for (const service of file.services)
      services.push({ ...service, name: `${file.package}.${service.name}` });
  }
  return { messages, enums, services };
}

// Types of other files, such as google.v1.Profile, are not written: no call of the UI reads them.
function typescriptType(type, protos) {
  const scalar = TYPESCRIPT_TYPES[type];
  if (scalar !== undefined) return scalar;
  const name = shortName(type);
  return protos.messages.has(name) || protos.enums.has(name) ? name : "unknown";
}

/** Returns the methods that pages call. */
function calledMethods(service) {
  return service.methods.filter((method) => !UNUSED_METHODS.includes(method.name));
}

/** Returns the names of all types that called methods use. */
function usedTypes(protos) {
  const calls = protos.services.flatMap(calledMethods);
  const used = new Set(calls.flatMap(({ request, response }) => [request, response]).map(shortName));
  for (const name of used) {
    for (const field of protos.messages.get(name)?.fields ?? []) used.add(shortName(field.type));
  }
  return used;
}

function shortName(type) {
  return type.split(".").at(-1);
}

function writeTypes(protos) {
  const lines = [];
  const used = usedTypes(protos);
  for (const { name, values } of protos.enums.values()) {
    if (!used.has(name)) continue;
    lines.push(`export type ${name} =`, ...values.map((value) => `  | "${value.name}"`));
    lines[lines.length - 1] += ";";
    lines.push("");
  }
  for (const { name, fields } of protos.messages.values()) {
    if (!used.has(name)) continue;
    if (fields.length === 0) lines.push(`export type ${name} = Record<string, never>;`, "");
    else {
      lines.push(`export interface ${name} {`);
      for (const field of fields) {
        const type = typescriptType(field.type, protos);
        const written = field.repeated ? `readonly ${type}[]` : type;
        lines.push(`  readonly ${jsonName(field.name)}?: ${written} | undefined;`);
      }
      lines.push("}", "");
    }
  }
  return lines;
}

function writeMethods(protos) {
  const lines = [
    "/** Request and response of each method. The key is its path below the root of the server. */",
  ];
  lines.push("export interface ApiMethods {");
  for (const service of protos.services) {
    for (const method of calledMethods(service)) {
      const request = typescriptType(method.request, protos);
      const response = typescriptType(method.response, protos);
      lines.push(
        `  readonly "${service.name}/${method.name}": { request: ${request}; response: ${response} };`,
      );
    }
  }
  return [...lines, "}", "", "export type MethodName = keyof ApiMethods;", ""];
}

function writeFieldTables(protos) {
  const lines = ["/** Field of a message: name in JSON, number, type, and whether it is a list. */"];
  lines.push(
    "export type FieldEntry = readonly [name: string, number: number, type: string, repeated: boolean];",
    "",
  );
  lines.push("/** Fields of the messages that are sent as protobuf. */");
  lines.push("export const FIELD_TABLES: Readonly<Record<string, readonly FieldEntry[]>> = {");
  const enums = new Set();
  const seen = new Set(PROTOBUF_REQUESTS);
  for (const name of seen) {
    lines.push(`  ${name}: [`);
    for (const field of protos.messages.get(name).fields) {
      const type = shortName(field.type);
      lines.push(`    ["${jsonName(field.name)}", ${field.number}, "${type}", ${field.repeated}],`);
      if (protos.messages.has(type)) seen.add(type);
      else if (protos.enums.has(type)) enums.add(type);
      else if (TYPESCRIPT_TYPES[type] === undefined)
        throw new Error(`${name}.${field.name}: unknown type ${type}`);
    }
    lines.push("  ],");
  }
  lines.push("};", "", "/** Numbers of the values of enums that are sent as protobuf. */");
  lines.push("export const ENUM_TABLES: Readonly<Record<string, Readonly<Record<string, number>>>> = {");
  for (const name of enums) {
    const values = protos.enums.get(name).values.map((value) => `    ${value.name}: ${value.number},`);
    lines.push(`  ${name}: {`, ...values, "  },");
  }
  return [...lines, "};", ""];
}

const protos = loadProtos();
const text = [
  "// Types of the API in their JSON form. Generated by scripts/generate-api.mjs from the .proto files; do not edit.",
  "// 64-bit integers are strings, and fields with their default value are absent.",
  "",
  ...writeTypes(protos),
  ...writeMethods(protos),
  ...writeFieldTables(protos),
].join("\n");

if (process.argv.includes("--check")) {
  if (readFileSync(OUTPUT_FILE, "utf8") !== text) {
    console.error("app/api/types.ts differs from the .proto files; run: npm run generate");
    process.exit(1);
  }
} else writeFileSync(OUTPUT_FILE, text);
