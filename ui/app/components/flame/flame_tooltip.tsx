// Tooltip of a flame graph: facts about the frame under the pointer.

import type { ReadonlySignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Graph } from "../../graph/graph";
import { BoxKind } from "../../graph/layout";
import { nameOfNode } from "../../graph/path";
import { summedValue } from "../../graph/values";
import { formatPercent } from "../../theme/format";
import type { BoxHit } from "./flame_view";
import { type FunctionTotal, useFunctionTotal } from "./function_total";
import type { GraphOrigin } from "./graph_origin";
import { describeNode, displayNodeName, hiddenShare } from "./node_facts";

/** Frame under the pointer, with the pointer's position on the page. */
export interface HoverTarget {
  readonly hit: BoxHit;
  readonly x: number;
  readonly y: number;
}

interface FlameTooltipProps {
  readonly hover: ReadonlySignal<HoverTarget | undefined>;
  readonly graph: Graph;
  readonly zoomedNode: number;
  /** Whether frames are functions, so that the server can state their total over all places. */
  readonly hasFunctions: boolean;
  /** Request of the graph, as far as it is known. */
  readonly origin: GraphOrigin | undefined;
  /** Whether a click opens hidden callees. */
  readonly canOpen: boolean;
}

/** Distance of the tooltip from the pointer and from the edges of the window. */
const POINTER_OFFSET = 14;
const EDGE_DISTANCE = 8;
/** Longer names are cut in the middle; the menu copies them whole. */
const MAX_NAME_CHARACTERS = 400;

export function FlameTooltip({ hover, ...facts }: FlameTooltipProps) {
  const { graph } = facts;
  const box = useRef<HTMLDivElement>(null);
  const target = hover.value;
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null || target === undefined) return;
    const { width, height } = element.getBoundingClientRect();
    const right = target.x + POINTER_OFFSET;
    const below = target.y + POINTER_OFFSET;
    const left = right + width > innerWidth - EDGE_DISTANCE ? target.x - POINTER_OFFSET - width : right;
    const top = below + height > innerHeight - EDGE_DISTANCE ? target.y - POINTER_OFFSET - height : below;
    element.style.left = `${Math.max(EDGE_DISTANCE, left)}px`;
    element.style.top = `${Math.max(EDGE_DISTANCE, top)}px`;
  });
  if (target === undefined || target.hit.node >= graph.nodeCount) return null;
  return (
    <div class="flame-tooltip" role="tooltip" ref={box}>
      <TooltipBody hit={target.hit} {...facts} />
    </div>
  );
}

interface TooltipBodyProps extends Omit<FlameTooltipProps, "hover"> {
  readonly hit: BoxHit;
}

function TooltipBody({ hit, canOpen, ...facts }: TooltipBodyProps) {
  if (hit.kind === BoxKind.merged) return <p>Frames narrower than a pixel. A click zooms in.</p>;
  if (hit.kind === BoxKind.hidden)
    return <HiddenFacts graph={facts.graph} node={hit.node} canOpen={canOpen} />;
  return <FrameFacts {...facts} node={hit.node} />;
}

interface HiddenFactsProps {
  readonly graph: Graph;
  readonly node: number;
  readonly canOpen: boolean;
}

function HiddenFacts({ graph, node, canOpen }: HiddenFactsProps) {
  const ofAll = formatPercent(summedValue(graph, node, "truncated"), graph.queryTotal);
  return (
    <>
      <p class="flame-tooltip-name">
        {hiddenShare(graph, node)} of {cutMiddle(displayNodeName(graph, node))} is hidden
      </p>
      <p class="flame-tooltip-note">
        {ofAll} of all. The graph leaves out its lightest frames.{" "}
        {canOpen ? "A click shows them." : "The flame graph can show them."}
      </p>
    </>
  );
}

interface FrameFactsProps extends Omit<FlameTooltipProps, "hover" | "canOpen"> {
  readonly node: number;
}

function FrameFacts({ graph, node, zoomedNode, hasFunctions, origin }: FrameFactsProps) {
  const facts = describeNode(graph, node, zoomedNode);
  const everywhere = useFunctionTotal(hasFunctions && node > 0 ? nameOfNode(graph, node) : undefined, origin);
  return (
    <>
      <p class="flame-tooltip-name">{cutMiddle(facts.name)}</p>
      <p class="flame-tooltip-place">
        {[facts.location, facts.binary].filter((text) => text !== "").join(" · ")}
      </p>
      <dl>
        <Fact label="Total" value={facts.total} />
        <Fact label="Self" value={facts.self} />
        <Fact label="Of all" value={facts.ofAll} />
        <Fact label="Of zoomed frame" value={facts.ofZoomed} />
        <Fact label="Of caller" value={facts.ofCaller} />
        <Fact label="Samples" value={facts.samples} />
        <Fact label="Hidden below" value={facts.hidden} />
        <Fact label="In all places" value={describeTotal(everywhere)} />
      </dl>
    </>
  );
}

function describeTotal(total: FunctionTotal): string {
  switch (total.kind) {
    case "none":
      return "";
    case "loading":
      return "…";
    case "known":
      return total.text;
    case "failed":
      return `unknown: ${total.text}`;
  }
}

function Fact({ label, value }: { readonly label: string; readonly value: string }) {
  if (value === "") return null;
  return (
    <>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </>
  );
}

function cutMiddle(text: string): string {
  if (text.length <= MAX_NAME_CHARACTERS) return text;
  const half = MAX_NAME_CHARACTERS / 2;
  return `${text.slice(0, half)} … ${text.slice(-half)}`;
}
