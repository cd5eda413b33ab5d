// Minimap of a flame graph. Dragging moves the visible part; all it does works by keyboard in the graph itself.

import type { ReadonlySignal } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { DepthRange, GraphDirection } from "../../canvas/geometry";
import { type MinimapScene, paintMinimap, paintMinimapWindow } from "../../canvas/minimap_painter";
import { clampRange, type ZoomRange } from "../../canvas/zoom_range";
import { type ColorScheme, frameColors } from "../../graph/colors";
import type { Graph } from "../../graph/graph";
import { prepareGraph } from "./prepared_graph";

interface MinimapProps {
  readonly graph: Graph;
  readonly direction: GraphDirection;
  readonly isDark: boolean;
  readonly scheme: ColorScheme;
  readonly matches: Uint8Array | undefined;
  readonly range: ReadonlySignal<ZoomRange>;
  readonly rows: ReadonlySignal<DepthRange>;
  onMove(range: ZoomRange): void;
}

export const MINIMAP_HEIGHT = 40;
/** Presses that move less than this center the visible part. */
const CLICK_PIXELS = 3;

export function Minimap(props: MinimapProps) {
  const { graph, direction, isDark, scheme, matches, range, rows, onMove } = props;
  const frame = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const marks = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [maxDepth, setMaxDepth] = useState(0);
  useLayoutEffect(() => {
    const element = frame.current as HTMLDivElement;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, []);
  const size = { width, height: MINIMAP_HEIGHT, pixelRatio: devicePixelRatio };
  // Drawn before the next frame, which also draws the graph. An effect after that frame would cost a second one.
  useLayoutEffect(() => {
    if (base.current === null || width === 0) return;
    const prepared = prepareGraph(graph);
    const colors = frameColors(isDark);
    const scene: MinimapScene = {
      graph,
      columns: prepared.columns,
      colors,
      slots: prepared.slotsOf(scheme),
      matches: matches !== undefined && matches.length >= graph.names.length ? matches : undefined,
      size,
      rootAtBottom: direction === "flame",
    };
    setMaxDepth(paintMinimap(base.current, scene));
  }, [graph, direction, isDark, scheme, matches, width, devicePixelRatio]);
  const visible = range.value;
  const { first, last } = rows.value;
  useLayoutEffect(() => {
    if (marks.current === null || width === 0) return;
    const rootAtBottom = direction === "flame";
    const scene = { size, colors: frameColors(isDark), rootAtBottom, maxDepth };
    paintMinimapWindow(marks.current, scene, { range: visible, rows: { first, last } });
  }, [graph, direction, maxDepth, visible, first, last, isDark, width, devicePixelRatio]);
  return (
    <div
      class="flame-minimap"
      ref={frame}
      aria-hidden="true"
      onPointerDown={(event) => drag(event, range, onMove)}
    >
      <canvas ref={base} />
      <canvas ref={marks} />
    </div>
  );
}

/** Follows one drag: inside the visible part it moves that, elsewhere it selects a new part. */
function drag(
  event: PointerEvent,
  range: ReadonlySignal<ZoomRange>,
  onMove: (range: ZoomRange) => void,
): void {
  if (event.button !== 0) return;
  event.preventDefault();
  const element = event.currentTarget as HTMLElement;
  const bounds = element.getBoundingClientRect();
  const shareAt = (clientX: number) => Math.min(1, Math.max(0, (clientX - bounds.left) / bounds.width));
  const start = shareAt(event.clientX);
  const before = range.peek();
  const isMove = start >= before.from && start <= before.to && before.to - before.from < 1;
  const abort = new AbortController();
  element.setPointerCapture(event.pointerId);
  const move = (moved: PointerEvent) => {
    const current = shareAt(moved.clientX);
    const offset = current - start;
    if (isMove) onMove(clampRange({ from: before.from + offset, to: before.to + offset }));
    else if (Math.abs(offset) * bounds.width >= CLICK_PIXELS) {
      onMove(clampRange({ from: Math.min(start, current), to: Math.max(start, current) }));
    }
  };
  const end = (released: PointerEvent) => {
    abort.abort();
    const hasMoved = Math.abs(shareAt(released.clientX) - start) * bounds.width >= CLICK_PIXELS;
    if (hasMoved || isMove) return;
    const half = (before.to - before.from) / 2;
    onMove(clampRange({ from: start - half, to: start + half }));
  };
  element.addEventListener("pointermove", move, { signal: abort.signal });
  element.addEventListener("pointerup", end, { signal: abort.signal });
  element.addEventListener("pointercancel", () => abort.abort(), { signal: abort.signal });
}
