// Random graphs of any size, as the server sends them.

import { encodeResponse } from "../app/graph/testing/encode";
import { SeededRandom } from "../app/graph/testing/random";

const NAMES_PER_NODE = 0.1;

/** Columns of a random tree. */
interface RandomTree {
  readonly callees: number[];
  readonly self: bigint[];
}

const MAX_DEPTH = 60;
const ROOT_WEIGHT = 1e9;

/** Appends a subtree. Its weight and its nodes are split among the callees by random shares, the heaviest first. */
function appendSubtree(
  tree: RandomTree,
  random: SeededRandom,
  nodes: number,
  weight: number,
  depth: number,
): void {
  const index = tree.callees.push(0) - 1;
  let rest = nodes - 1;
  const selfWeight = rest === 0 ? weight : Math.floor(weight * random.next() * 0.1);
  tree.self.push(BigInt(Math.floor(selfWeight)));
  if (rest === 0) return;
  const count = depth >= MAX_DEPTH ? rest : Math.min(rest, 1 + random.below(4));
  const shares = Array.from({ length: count }, () => random.next() ** 2 + 0.01).sort(
    (first, second) => second - first,
  );
  const sum = shares.reduce((total, share) => total + share, 0);
  tree.callees[index] = count;
  for (let callee = 0; callee < count; callee++) {
    const share = (shares[callee] as number) / sum;
    const wanted = callee === count - 1 ? rest : Math.round((nodes - 1) * share);
    const given = Math.max(1, Math.min(wanted, rest - (count - 1 - callee)));
    rest -= given;
    appendSubtree(tree, random, given, (weight - selfWeight) * share, depth + 1);
  }
}

/** Encodes a tree with as many nodes, whose siblings are sorted by weight. */
export function encodeRandomTree(nodeCount: number): Uint8Array {
  const random = new SeededRandom(nodeCount);
  const nameCount = Math.ceil(nodeCount * NAMES_PER_NODE);
  const tree: RandomTree = { callees: [], self: [] };
  appendSubtree(tree, random, nodeCount, ROOT_WEIGHT, 0);
  const { callees, self } = tree;
  const name = callees.map((_, node) => (node === 0 ? 0 : 1 + random.below(nameCount - 1)));
  const names = Array.from({ length: nameCount }, (_, index) =>
    index === 0 ? "" : `github.com/acme/shop/package${index % 97}.(*Type${index % 31}).Method${index}`,
  );
  return encodeResponse({
    callees,
    name,
    self,
    truncated: callees.map(() => (random.below(20) === 0 ? BigInt(random.below(1000)) : 0n)),
    divisor: 10_000_000n,
    names,
    nameFile: names.map((_, index) => (index === 0 ? 0 : 1 + (index % 500))),
    nameBinary: names.map(() => 0),
    namePackage: names.map((_, index) => (index === 0 ? 0 : 1 + (index % 97))),
    nameLine: names.map((_, index) => index % 4000),
    files: ["", ...Array.from({ length: 500 }, (_, index) => `/src/shop/file${index}.go`)],
    binaries: ["", "/usr/bin/shop"],
    packages: ["", ...Array.from({ length: 97 }, (_, index) => `github.com/acme/shop/package${index}`)],
    total: 0n,
    unit: "nanoseconds",
    period: 10_000_000n,
    profiles: 1n,
    fullNodes: BigInt(nodeCount),
    rootCallees: 8n,
    warnings: [],
    averagedProfiles: 0n,
    resolution: "raw",
  });
}
