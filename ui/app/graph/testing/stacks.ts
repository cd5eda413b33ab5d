// Oracle of graphs: plain lists of stacks, summed by paths, and a tree that is built from them node by node.

import { decodeGraph } from "../decode";
import type { Graph } from "../graph";
import { greatestCommonDivisor } from "../merge_subtree";
import { encodeResponse, type ResponseFields } from "./encode";
import type { SeededRandom } from "./random";

/** Frames from the root to the leaf, with the weight of the samples. */
export interface WeightedStack {
  readonly frames: readonly string[];
  readonly value: bigint;
}

/** Node of the tree that the oracle builds. */
export interface OracleNode {
  readonly name: string;
  readonly callees: OracleNode[];
  self: bigint;
  truncated: bigint;
}

export function randomStacks(random: SeededRandom, count: number, maxDepth: number): WeightedStack[] {
  const stacks: WeightedStack[] = [];
  for (let index = 0; index < count; index++) {
    const frames: string[] = [];
    const depth = 1 + random.below(maxDepth);
    for (let level = 0; level < depth; level++) frames.push(`pkg${level % 5}.fn${random.below(1 + level)}`);
    stacks.push({ frames, value: BigInt(1 + random.below(1000)) * 10n });
  }
  return stacks;
}

export function buildTree(stacks: readonly WeightedStack[]): OracleNode {
  const root: OracleNode = { name: "", callees: [], self: 0n, truncated: 0n };
  for (const stack of stacks) {
    let node = root;
    for (const name of stack.frames) {
      let callee = node.callees.find((candidate) => candidate.name === name);
      if (callee === undefined) {
        callee = { name, callees: [], self: 0n, truncated: 0n };
        node.callees.push(callee);
      }
      node = callee;
    }
    node.self += stack.value;
  }
  sortTree(root);
  return root;
}

export function totalOfTree(node: OracleNode): bigint {
  return node.callees.reduce((sum, callee) => sum + totalOfTree(callee), node.self + node.truncated);
}

function sortTree(node: OracleNode): void {
  const totals = new Map(node.callees.map((callee) => [callee, totalOfTree(callee)]));
  node.callees.sort((first, second) => {
    const difference = (totals.get(second) ?? 0n) - (totals.get(first) ?? 0n);
    if (difference !== 0n) return difference > 0n ? 1 : -1;
    return first.name < second.name ? -1 : 1;
  });
  for (const callee of node.callees) sortTree(callee);
}

/** Keeps the heaviest `count` callees of each node and truncates the rest. */
export function truncateTree(node: OracleNode, count: number): OracleNode {
  const rest = node.callees.slice(count);
  const truncated = rest.reduce((sum, callee) => sum + totalOfTree(callee), node.truncated);
  const callees = node.callees.slice(0, count).map((callee) => truncateTree(callee, count));
  return { name: node.name, callees, self: node.self, truncated };
}

export function responseOfTree(root: OracleNode, overrides: Partial<ResponseFields> = {}): ResponseFields {
  const nodes: OracleNode[] = [];
  const visit = (node: OracleNode) => {
    nodes.push(node);
    for (const callee of node.callees) visit(callee);
  };
  visit(root);
  const names = [...new Set(nodes.map((node) => node.name))].sort();
  const indexes = new Map(names.map((name, index) => [name, index]));
  let divisor = 0n;
  for (const node of nodes) {
    divisor = greatestCommonDivisor(greatestCommonDivisor(divisor, node.self), node.truncated);
  }
  if (divisor === 0n) divisor = 1n;
  const packages = ["", ...new Set(names.map(packageOfName).filter((name) => name !== ""))];
  return {
    callees: nodes.map((node) => node.callees.length),
    name: nodes.map((node) => indexes.get(node.name) as number),
    self: nodes.map((node) => node.self / divisor),
    truncated: nodes.map((node) => node.truncated / divisor),
    divisor,
    names,
    nameFile: names.map((name) => (name === "" ? 0 : 1)),
    nameBinary: names.map((name) => (name === "" ? 0 : 1)),
    namePackage: names.map((name) => packages.indexOf(packageOfName(name))),
    nameLine: names.map((_, index) => index * 7),
    files: ["", "main.go"],
    binaries: ["", "/usr/bin/shop"],
    packages,
    total: totalOfTree(root),
    unit: "nanoseconds",
    period: 10_000_000n,
    profiles: 3n,
    fullNodes: BigInt(nodes.length),
    rootCallees: BigInt(root.callees.length),
    warnings: [],
    averagedProfiles: 0n,
    resolution: "raw",
    ...overrides,
  };
}

function packageOfName(name: string): string {
  return name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : "";
}

export function graphOfTree(root: OracleNode, overrides: Partial<ResponseFields> = {}): Graph {
  return decodeGraph(encodeResponse(responseOfTree(root, overrides)));
}

export function graphOfStacks(stacks: readonly WeightedStack[]): Graph {
  return graphOfTree(buildTree(stacks));
}

/** Weight of a path in the stacks, without any tree. */
export function weighPath(
  stacks: readonly WeightedStack[],
  path: readonly string[],
): { self: bigint; total: bigint } {
  let self = 0n;
  let total = 0n;
  for (const stack of stacks) {
    if (!path.every((name, index) => stack.frames[index] === name)) continue;
    total += stack.value;
    if (stack.frames.length === path.length) self += stack.value;
  }
  return { self, total };
}
