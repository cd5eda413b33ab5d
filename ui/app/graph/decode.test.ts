// Tests of the decoder against lists of stacks, at the limits of numbers, and with malformed bytes.

import { describe, expect, it } from "vitest";
import { decodeGraph, GraphFormatError } from "./decode";
import { MAX_SPANS } from "./message_budget";
import { pathOfNode } from "./path";
import {
  encodeBytesField,
  encodeResponse,
  encodeVarints,
  encodeWire,
  frontCode,
  type TableFields,
  wireOfResponse,
} from "./testing/encode";
import { SeededRandom } from "./testing/random";
import {
  buildTree,
  graphOfStacks,
  graphOfTree,
  randomStacks,
  responseOfTree,
  weighPath,
} from "./testing/stacks";
import { buffersOfGraph, packGraph, unpackGraph } from "./transfer";
import { summedValue } from "./values";

const FUZZ_ROUNDS = 5_000;
/** Far more than an idle machine needs. */
const FUZZ_TIMEOUT_MS = 60_000;
const SEEDS = Array.from({ length: 40 }, (_, index) => index + 1);

describe("decodeGraph", () => {
  it.each(SEEDS)("columns_of_random_stacks_equal_sums_of_stacks (seed %i)", (seed) => {
    const random = new SeededRandom(seed);
    const stacks = randomStacks(random, 1 + random.below(60), 12);
    const graph = graphOfStacks(stacks);
    const paths = new Set<string>();
    for (let node = 0; node < graph.nodeCount; node++) {
      const path = pathOfNode(graph, node);
      paths.add(JSON.stringify(path));
      const expected = weighPath(stacks, path);
      expect(summedValue(graph, node, "total")).toBe(expected.total);
      expect(summedValue(graph, node, "self")).toBe(expected.self);
      expect(graph.depth[node]).toBe(path.length);
      const caller = graph.parent[node] as number;
      if (node > 0) expect(graph.end[node]).toBeLessThanOrEqual(graph.end[caller] as number);
    }
    expect(paths.size).toBe(graph.nodeCount);
    const prefixes = new Set(
      stacks.flatMap((stack) => stack.frames.map((_, end) => stack.frames.slice(0, end + 1).join("|"))),
    );
    expect(graph.nodeCount).toBe(prefixes.size + 1);
    expect(graph.end[0]).toBe(graph.nodeCount);
  });

  it("sums_up_to_2_53_need_no_exact_columns", () => {
    const graph = graphOfTree(buildTree([{ frames: ["a", "b"], value: 2n ** 53n - 1n }]), {
      divisor: 1n,
      self: [0n, 0n, 2n ** 53n - 1n],
    });
    expect(graph.exact).toBeUndefined();
    expect(summedValue(graph, 0, "total")).toBe(2n ** 53n - 1n);
  });

  it.each([2n ** 53n + 1n, 2n ** 60n + 3n, 2n ** 63n - 1n])("sum_beyond_2_53_is_exact (%s)", (value) => {
    const stacks = [
      { frames: ["a", "b"], value: value - 7n },
      { frames: ["a"], value: 7n },
    ];
    const graph = graphOfTree(buildTree(stacks), { divisor: 1n, self: [0n, 7n, value - 7n] });
    expect(summedValue(graph, 0, "total")).toBe(value);
    expect(summedValue(graph, 2, "self")).toBe(value - 7n);
    expect(graph.total[0]).toBe(Number(value));
  });

  it("negative_values_are_decoded", () => {
    const graph = graphOfTree(buildTree([{ frames: ["a"], value: -(2n ** 40n) }]));
    expect(summedValue(graph, 1, "self")).toBe(-(2n ** 40n));
  });

  it("total_beyond_64_bits_is_rejected", () => {
    const fields = responseOfTree(
      buildTree([
        { frames: ["a"], value: 1n },
        { frames: ["b"], value: 1n },
      ]),
    );
    const self = [0n, 2n ** 63n - 1n, 2n ** 63n - 1n];
    expect(() => decodeGraph(encodeResponse({ ...fields, self }))).toThrow(GraphFormatError);
  });

  it("empty_message_is_a_root_without_callees", () => {
    const graph = decodeGraph(new Uint8Array());
    expect(graph.nodeCount).toBe(1);
    expect(graph.names).toEqual([""]);
    expect(summedValue(graph, 0, "total")).toBe(0n);
  });

  it("texts_and_facts_are_decoded", () => {
    const stacks = [{ frames: ["naïve", "日本", "\u202eevil", "x".repeat(10_000)], value: 5n }];
    const graph = graphOfTree(buildTree(stacks), { warnings: ["shard 3 timed out"], averagedProfiles: 9n });
    expect(graph.names).toEqual(["", ...(stacks[0]?.frames ?? [])].sort());
    expect(graph.warnings).toEqual(["shard 3 timed out"]);
    expect(graph).toMatchObject({
      unit: "nanoseconds",
      period: 10_000_000n,
      profiles: 3n,
      averagedProfiles: 9n,
    });
    expect(graph).toMatchObject({ queryTotal: 5n, divisor: 5n, resolution: "raw", rootCallees: 1n });
  });

  it("packages_are_beginnings_of_names_or_listed", () => {
    const packages = ["", "größe", "libc"];
    const frames = ["größe.a", "größe.b", "größer", "malloc"];
    const graph = graphOfTree(buildTree([{ frames, value: 1n }]), {
      packages,
      namePackage: ["", ...frames].sort().map((name) => (name === "malloc" ? 2 : name === "" ? 0 : 1)),
    });
    const packageOf = (name: string) =>
      graph.packages[graph.namePackage[graph.names.indexOf(name)] as number];
    expect(["", ...frames].map(packageOf)).toEqual(["", "größe", "größe", "größe", "libc"]);
  });

  it("long_and_similar_texts_are_decoded", () => {
    const frames = ["a".repeat(300), `${"a".repeat(300)}b`, "ä1", "ä2", "äß", "日本", "日木"];
    const graph = graphOfTree(buildTree([{ frames, value: 1n }]));
    expect(graph.names).toEqual(["", ...frames].sort());
  });

  it("packed_column_in_several_parts_is_joined", () => {
    const fields = responseOfTree(buildTree([{ frames: ["a", "b"], value: 1n }]));
    const head = encodeBytesField(1, encodeVarints([1]));
    const rest = encodeResponse({ ...fields, callees: [1, 0] });
    expect(decodeGraph(Uint8Array.from([...head, ...rest])).nodeCount).toBe(3);
  });

  it("graph_survives_transfer", () => {
    const graph = graphOfStacks(randomStacks(new SeededRandom(7), 50, 9));
    const packed = packGraph(graph);
    const copy = structuredClone(packed, { transfer: buffersOfGraph(packed) });
    expect(unpackGraph(copy)).toEqual(graphOfStacks(randomStacks(new SeededRandom(7), 50, 9)));
  });
});

describe("malformed bytes", () => {
  const fields = responseOfTree(buildTree(randomStacks(new SeededRandom(3), 20, 6)));

  const wire = wireOfResponse(fields);
  const utf8 = new TextEncoder();
  const { names } = wire;
  const lastNames = (change: Partial<TableFields>) => ({ names: { ...names, ...change } });

  it.each([
    ["too few callees", { callees: wire.callees.slice(1) }],
    ["too many callees", { callees: [...wire.callees, 0] }],
    ["callees beyond the nodes", { callees: wire.callees.map(() => 2 ** 32 - 1) }],
    ["second root", { callees: wire.callees.map(() => 0) }],
    ["fewer gaps than values", { selfGap: wire.selfGap.slice(0, -1) }],
    ["more gaps than values", { truncatedGap: [0] }],
    ["gap beyond the nodes", { selfGap: wire.selfGap.map(() => 2 ** 32 - 1) }],
    ["gaps that add up beyond the nodes", { selfGap: wire.selfGap.map(() => wire.callees.length - 1) }],
    ["value 0", { self: wire.self.map(() => 0n) }],
    ["missing column", { name: [] }],
    ["name beyond the table", { name: wire.name.map(() => fields.names.length) }],
    ["name of 33 bits", { name: wire.name.map(() => 2 ** 32) }],
    ["file beyond the table", { nameFile: wire.nameFile.map(() => 2) }],
    ["fewer lines than names", { nameLine: wire.nameLine.slice(1) }],
    ["table without the empty text", { files: frontCode(["x", "main.go"]) }],
    ["package longer than its name", { namePackage: wire.namePackage.map(() => 2_000) }],
    ["package beyond the table", { namePackage: wire.namePackage.map(() => 2_001) }],
    ["first text that shares bytes", lastNames({ shared: names.shared.map(() => 1) })],
    ["text that shares more than there is", lastNames({ shared: names.shared.map(() => 200) })],
    ["rest beyond the bytes", lastNames({ rest: names.rest.map(() => 2 ** 32 - 1) })],
    ["fewer rests than texts", lastNames({ rest: names.rest.slice(1) })],
    ["bytes after the last text", lastNames({ text: utf8.encode(`${"x".repeat(10_000)}`) })],
    ["text that is not UTF-8", lastNames({ text: names.text.map(() => 0xff) })],
    ["negative divisor", { divisor: -1n }],
  ])("%s_is_rejected", (_, change) => {
    expect(() => decodeGraph(encodeWire({ ...wire, ...change }))).toThrow(GraphFormatError);
  });

  it("texts_that_grow_beyond_their_bound_are_rejected", () => {
    const count = 1_200_000;
    const text = new Uint8Array(255 + count).fill(0x61);
    const shared = [0, ...new Array<number>(count).fill(255)];
    const rest = [255, ...new Array<number>(count).fill(1)];
    expect(() => decodeGraph(encodeWire({ ...wire, names: { text, shared, rest } }))).toThrow(/longer than/);
  });

  it("parts_of_columns_in_tables_share_one_bound", () => {
    const emptyParts = (count: number) => new Array<number[]>(count).fill([0x12, 0]).flat();
    const zero = Uint8Array.of(0);
    const message = (count: number) => {
      const texts = [...encodeBytesField(2, zero), ...encodeBytesField(3, zero)];
      const names = encodeBytesField(8, Uint8Array.from([...texts, ...emptyParts(MAX_SPANS / 2)]));
      const columns = [9, 10, 11, 12].flatMap((field) => [...encodeBytesField(field, zero)]);
      return Uint8Array.from([
        ...names,
        ...columns,
        ...encodeBytesField(13, Uint8Array.from(emptyParts(count))),
      ]);
    };
    expect(decodeGraph(message(MAX_SPANS / 2 - 8)).names).toEqual([""]);
    expect(() => decodeGraph(message(MAX_SPANS / 2 - 7))).toThrow(/more than 100000 fields/);
  });

  it("text_that_shares_more_than_255_bytes_is_rejected", () => {
    const text = new Uint8Array(302).fill(0x61);
    const table = { text, shared: [0, 256], rest: [300, 2] };
    expect(() => decodeGraph(encodeWire({ ...wire, names: table }))).toThrow(/shares 256 of 300/);
  });

  it.each([
    ["length beyond the message", [0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]],
    ["length of 33 bits", [0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f]],
    ["unterminated varint of a column", [0x0a, 0x02, 0x80, 0x80]],
    ["endless varint", [0x28, ...new Array<number>(11).fill(0x80)]],
    ["unknown wire type", [0x07]],
    ["field 0", [0x00]],
    ["wrong wire type", [0x08, 0x01]],
    ["group", [0xfb, 0x07]],
  ])("%s_is_rejected", (_, bytes) => {
    expect(() => decodeGraph(Uint8Array.from(bytes))).toThrow(GraphFormatError);
  });

  it("tree_deeper_than_its_column_is_rejected", () => {
    const count = 70_000;
    const callees = Array.from({ length: count }, (_, node) => (node === count - 1 ? 0 : 1));
    const zeros = callees.map(() => 0);
    const deep = {
      ...fields,
      callees,
      name: zeros,
      self: [],
      truncated: [],
    };
    expect(() => decodeGraph(encodeResponse(deep))).toThrow(/deeper/);
  });

  it(
    "mutated_bytes_give_a_graph_or_a_format_error",
    () => {
      const original = encodeResponse(fields);
      const random = new SeededRandom(11);
      for (let round = 0; round < FUZZ_ROUNDS; round++) {
        const bytes = original.slice(
          0,
          random.below(4) === 0 ? random.below(original.length) : original.length,
        );
        for (let change = random.below(5); change >= 0 && bytes.length > 0; change--) {
          bytes[random.below(bytes.length)] = random.below(256);
        }
        try {
          const graph = decodeGraph(bytes);
          expect(graph.end[0]).toBe(graph.nodeCount);
          expect(graph.nodeCount).toBeLessThanOrEqual(Math.max(1, bytes.length));
        } catch (error) {
          if (!(error instanceof GraphFormatError)) throw error;
        }
      }
    },
    FUZZ_TIMEOUT_MS,
  );
});
