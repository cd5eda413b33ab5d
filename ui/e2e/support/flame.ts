// Nodes of a graph and their places on the canvas, computed from the API's response alone.
import { expect, type Locator, type Page } from "@playwright/test";
import { callApi, type JsonMessage } from "./api";

/** Node of a call graph. */
export interface FlameNode {
  readonly name: string;
  readonly path: readonly string[];
  readonly depth: number;
  /** Sum of all weights left of the node, of the same level. */
  readonly start: bigint;
  self: bigint;
  total: bigint;
  truncated: bigint;
}

export interface FlameTree {
  readonly nodes: readonly FlameNode[];
  readonly response: JsonMessage;
}

const ROW_HEIGHT = 20;

/** Texts of a table: each begins with bytes of the one before. */
function textsOfTable(table: JsonMessage): string[] {
  const bytes = Buffer.from(table.text ?? "");
  const texts: string[] = [];
  let before = Buffer.alloc(0);
  let start = 0;
  for (const [index, rest] of table.rest.entries()) {
    before = Buffer.concat([before.subarray(0, table.shared[index]), bytes.subarray(start, start + rest)]);
    start += rest;
    texts.push(before.toString());
  }
  return texts;
}

/** Values by node of a column that states only the nodes with one. */
function valuesByNode(values: readonly string[] = [], gaps: readonly number[] = []): Map<number, bigint> {
  const byNode = new Map<number, bigint>();
  let next = 0;
  for (const [index, value] of values.entries()) {
    next += gaps[index] ?? 0;
    byNode.set(next++, BigInt(value));
  }
  return byNode;
}

/** Calls Graph in JSON and places its nodes. */
export async function fetchFlame(serverUrl: string, request: unknown): Promise<FlameTree> {
  const response = await callApi(serverUrl, "athanor.v1.ExploreService/Graph", request);
  const divisor = BigInt(response.divisor ?? 1);
  const names = textsOfTable(response.names ?? { rest: [] });
  const selfValues = valuesByNode(response.self, response.selfGap);
  const truncatedWeights = valuesByNode(response.truncated, response.truncatedGap);
  const nodes: FlameNode[] = [];
  let next = 0;
  const read = (path: readonly string[], depth: number, start: bigint): FlameNode => {
    const index = next++;
    const name = names[response.name[index]] ?? "";
    const ownPath = index === 0 ? [] : [...path, name];
    const self = (selfValues.get(index) ?? 0n) * divisor;
    const truncated = (truncatedWeights.get(index) ?? 0n) * divisor;
    const node: FlameNode = { name, path: ownPath, depth, start, self, total: 0n, truncated };
    nodes.push(node);
    let total = 0n;
    for (let callee = 0; callee < response.callees[index]; callee++) {
      total += read(ownPath, depth + 1, start + total).total;
    }
    node.total = total + self + truncated;
    return node;
  };
  if ((response.callees ?? []).length > 0) read([], 0, 0n);
  return { nodes, response };
}

export function nodeAt({ nodes }: FlameTree, path: readonly string[]): FlameNode {
  const key = path.join("\n");
  const node = nodes.find((candidate) => candidate.path.join("\n") === key);
  if (node === undefined) throw new Error(`the graph has no node ${path.join(";")}`);
  return node;
}

/** Flame graph on the page. */
export class FlamePanel {
  constructor(
    readonly page: Page,
    readonly panel: Locator,
  ) {}

  get surface(): Locator {
    return this.panel.getByRole("application");
  }

  get summary(): Locator {
    return this.panel.locator(".flame-summary");
  }

  get tooltip(): Locator {
    return this.panel.getByRole("tooltip");
  }

  async ready(): Promise<void> {
    await expect(this.summary).toContainText("frames");
    await expect(this.surface).toBeVisible();
  }

  /** Returns the middle of a node on the page, while another node is zoomed. */
  async pointOf(tree: FlameTree, node: FlameNode, zoomed?: FlameNode): Promise<{ x: number; y: number }> {
    const whole = zoomed ?? (tree.nodes[0] as FlameNode);
    const box = await this.surface.boundingBox();
    if (box === null) throw new Error("the graph is not visible");
    const { clientWidth, clientHeight, scrollTop, scrollHeight } = await this.surface.evaluate((element) => ({
      clientWidth: element.clientWidth,
      clientHeight: element.clientHeight,
      scrollTop: element.scrollTop,
      scrollHeight: element.scrollHeight,
    }));
    const middle = Number(node.start - whole.start) + Number(node.total) / 2;
    const isFlame = await this.isFlame();
    const row = node.depth * ROW_HEIGHT + ROW_HEIGHT / 2;
    const top = isFlame ? Math.max(scrollHeight, clientHeight) - row : row;
    return { x: box.x + (middle / Number(whole.total)) * clientWidth, y: box.y + top - scrollTop };
  }

  async click(tree: FlameTree, node: FlameNode, zoomed?: FlameNode, button: "left" | "right" = "left") {
    const { x, y } = await this.pointOf(tree, node, zoomed);
    await this.page.mouse.click(x, y, { button });
  }

  async hover(tree: FlameTree, node: FlameNode, zoomed?: FlameNode): Promise<void> {
    const { x, y } = await this.pointOf(tree, node, zoomed);
    await this.page.mouse.move(x - 1, y);
    await this.page.mouse.move(x, y);
  }

  /** Returns the facts of the tooltip by their labels. */
  async facts(): Promise<Record<string, string>> {
    const terms = await this.tooltip.locator("dt").allInnerTexts();
    const values = await this.tooltip.locator("dd").allInnerTexts();
    return Object.fromEntries(terms.map((term, index) => [term, values[index] ?? ""]));
  }

  private async isFlame(): Promise<boolean> {
    return ((await this.surface.getAttribute("aria-label")) ?? "").match(/^(Flame graph|Callers)/) !== null;
  }
}

/** Returns the graph of a view of Explore. */
export function flamePanel(page: Page, view: "flame" | "icicle" = "flame"): FlamePanel {
  return new FlamePanel(page, page.locator(`.explore-view[data-view="${view}"]`));
}
