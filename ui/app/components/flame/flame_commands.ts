// Commands of the keyboard, run on a mounted flame graph.

import { scaleRange } from "../../canvas/zoom_range";
import { nameOfNode, neighborsOfNode, pathOfNode } from "../../graph/path";
import { findMatch } from "../../graph/search";
import type { TransformAction } from "../../url/view_state";
import { copyText } from "../clipboard";
import { addTransform, hasTransforms, transformOfFrame } from "../transforms";
import { type FlameContext, hasMotion, zoomToPath } from "./flame_context";
import type { FlameCommand } from "./flame_keys";
import { announceNode } from "./node_facts";
import { type FrameZoom, WHOLE_ZOOM, zoomOf } from "./selection";

/** Runs a command on the selected frame. */
export function runCommand(command: FlameCommand, context: FlameContext): void {
  const { graph, flameView, selectedNode } = context;
  switch (command.kind) {
    case "move":
      moveSelection(context, command.to === "root" ? 0 : neighborsOfNode(graph, selectedNode)[command.to]);
      break;
    case "zoom":
      zoomSelected(context);
      break;
    case "back":
      goBack(context);
      break;
    case "search":
      document.querySelector<HTMLElement>("[data-search-field]")?.focus();
      break;
    case "copy":
      if (selectedNode > 0) void copyText(nameOfNode(graph, selectedNode), "Copied the name.");
      break;
    case "menu":
      openMenuOfNode(context);
      break;
    case "match":
      jumpToMatch(context, command.step);
      break;
    case "scale":
      flameView.setRange(scaleRange(flameView.range, command.factor, anchorOf(context)));
      break;
    case "transform":
      addTransformOfNode(context, command.action);
      break;
  }
}

function addTransformOfNode({ graph, selectedNode, selection }: FlameContext, action: TransformAction): void {
  const frames = selection.frames.peek();
  const isLabel = frames.startsWith("label:") && graph.depth[selectedNode] === 1;
  if (selectedNode === 0 || isLabel || !hasTransforms(frames)) return;
  addTransform(transformOfFrame(action, nameOfNode(graph, selectedNode), frames));
}

function moveSelection(context: FlameContext, node: number): void {
  if (node >= 0) selectNode(context, node);
}

function selectNode(context: FlameContext, node: number): void {
  const { graph, flameView, selection, announcement } = context;
  flameView.revealNode(node);
  flameView.setMarks({ selectedNode: node });
  selection.select(pathOfNode(graph, node));
  announcement.value = announceNode(graph, node);
}

/** Zooms to the selected frame. A frame that is zoomed already shows its hidden callees. */
function zoomSelected(context: FlameContext): void {
  const { graph, selectedNode, zoomedNode, openHidden } = context;
  zoomToPath(context, pathOfNode(graph, selectedNode));
  if (selectedNode === zoomedNode && (graph.truncated[selectedNode] as number) > 0) openHidden(selectedNode);
}

/** Hides the tooltip and returns to the previous zoom; without one, to the whole graph. The selection stays. */
function goBack({ hover, selection, flameView, graph, zoomHistory }: FlameContext): void {
  hover.value = undefined;
  const current = zoomOf(selection);
  const previous = zoomHistory.takePrevious(graph, current) ?? zoomAround(current);
  if (previous === undefined) flameView.zoomToNode(0, hasMotion());
  else selection.zoomTo(previous, selection.selectedPath.peek());
}

/** Returns the next wider zoom, or undefined for the whole graph. */
function zoomAround({ path, range }: FrameZoom): FrameZoom | undefined {
  if (range !== undefined) return { path, range: undefined };
  return path.length > 0 ? WHOLE_ZOOM : undefined;
}

function jumpToMatch(context: FlameContext, step: 1 | -1): void {
  const { graph, matches, selectedNode, announcement } = context;
  if (matches === undefined) return;
  const node = findMatch(graph, matches, selectedNode, step);
  if (node >= 0) selectNode(context, node);
  else announcement.value = "no frame of this graph matches the search";
}

function openMenuOfNode(context: FlameContext): void {
  const { flameView, selectedNode, openMenuAt } = context;
  const bounds = flameView.pageBounds();
  const rect = flameView.rectOfNode(selectedNode);
  const x = bounds.left + Math.max(0, rect?.x ?? 0);
  openMenuAt(selectedNode, x, bounds.top + Math.max(0, rect?.y ?? 0));
}

/** Point that zooming by keyboard keeps in place: the middle of the selected frame. */
function anchorOf(context: FlameContext): number {
  const { flameView, selectedNode } = context;
  const node = flameView.rangeOf(selectedNode);
  const { from, to } = flameView.range;
  const middle = ((node.from + node.to) / 2 - from) / (to - from);
  return Math.min(1, Math.max(0, middle));
}
