// Flame graph and icicle graph: canvas, path bar, minimap, tooltip, keyboard, screen reader texts.

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { DepthRange, GraphDirection } from "../../canvas/geometry";
import { WHOLE_RANGE, type ZoomRange } from "../../canvas/zoom_range";
import type { Graph } from "../../graph/graph";
import { findPath, pathOfNode } from "../../graph/path";
import { displayedValue } from "../../graph/values";
import { formatExact, formatValue } from "../../theme/format";
import { isDark } from "../../theme/theme";
import { profilesKeyOf } from "../../url/query_details";
import { view } from "../../url/store";
import { useRequestedJump } from "../search_jump";
import { expansionOf, type SubtreeLoader } from "./expansion";
import {
  clearHover,
  type FlameContext,
  handleJump,
  handleKey,
  mountView,
  openMenu,
  showFocus,
  zoomToPath,
  zoomToRange,
} from "./flame_context";
import { FlameTooltip, type HoverTarget } from "./flame_tooltip";
import type { FlameElements, FlameView } from "./flame_view";
import { originOfGraph } from "./graph_origin";
import { Minimap } from "./minimap";
import { PathBar } from "./path_bar";
import { type FrameSelection, pageSelection } from "./selection";
import { useAnnouncement, useHiddenCallees, useMarks, useZoom } from "./use_flame";
import { useMatches } from "./use_matches";
import { ZoomHistory } from "./zoom_history";
import "./flame_graph.css";

export interface FlameGraphProps {
  readonly graph: Graph;
  readonly direction: GraphDirection;
  /** Selection other than that of the page. For graphs whose paths mean nothing in the link. */
  readonly selection?: FrameSelection;
  /** Loader of hidden callees; null if the graph cannot be opened. */
  readonly loadSubtree?: SubtreeLoader | null;
  /** Name for screen readers. */
  readonly label?: string;
}

export function FlameGraph(props: FlameGraphProps) {
  const flame = useFlame(props);
  const { graph, zoomedNode, expansion, range, rows, contextRef, viewRef, matches } = flame;
  const { colorBy } = view.value;
  const frames = (props.selection ?? pageSelection).frames.value;
  return (
    <div class="flame">
      <PathBar
        path={pathOfNode(graph, zoomedNode)}
        zoomRange={flame.zoomRange}
        range={range}
        zoomedRange={() => viewRef.current?.rangeOf(zoomedNode)}
        isLoading={expansion.loadingCount.value > 0}
        summary={summaryOf(graph)}
        onZoom={(path) => zoomToPath(contextRef.current, path)}
        onZoomRange={(merged) => zoomToRange(contextRef.current, merged)}
        onReset={() => zoomToPath(contextRef.current, [])}
      />
      <Minimap
        {...{ graph, matches, range, rows }}
        direction={props.direction}
        isDark={isDark.value}
        scheme={colorBy}
        onMove={(moved) => viewRef.current?.setRange(moved)}
      />
      <FlameSurface flame={flame} name={props.label ?? DIRECTION_NAMES[props.direction]} />
      <FlameTooltip
        hover={flame.hover}
        graph={graph}
        zoomedNode={zoomedNode}
        hasFunctions={frames === "function"}
        origin={originOfGraph(props.graph)}
        canOpen={props.loadSubtree !== null}
      />
      <div class="visually-hidden" aria-live="polite">
        {flame.announcement.value}
      </div>
    </div>
  );
}

const DIRECTION_NAMES: Readonly<Record<GraphDirection, string>> = {
  flame: "Flame graph",
  icicle: "Icicle graph",
};
const KEYBOARD_HELP =
  "Arrow keys move between frames, Enter zooms, Escape goes back, Shift F10 opens the menu. The table lists the same functions.";

interface FlameSurfaceProps {
  readonly flame: ReturnType<typeof useFlame>;
  readonly name: string;
}

/** Canvases of a graph, in an element that scrolls and takes keys. */
function FlameSurface({ flame, name }: FlameSurfaceProps) {
  const { scroller, spacer, base, marks, viewRef, contextRef } = flame;
  return (
    <div class="flame-frame">
      <div
        class="flame-scroller"
        ref={scroller}
        role="application"
        aria-roledescription="call graph"
        aria-label={`${name}. ${KEYBOARD_HELP}`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the graph is used by keyboard
        tabIndex={0}
        onScroll={(event) => viewRef.current?.setScrollTop(event.currentTarget.scrollTop)}
        onKeyDown={(event) => handleKey(event, contextRef.current)}
        onFocus={() => showFocus(contextRef.current, scroller.current)}
        onBlur={() => viewRef.current?.setMarks({ hasFocus: false })}
      >
        <div class="flame-spacer" ref={spacer}>
          <div class="flame-canvases">
            <canvas ref={base} />
            <canvas ref={marks} />
          </div>
        </div>
      </div>
    </div>
  );
}

/** State of a flame graph, and the view that draws it. */
function useFlame(props: FlameGraphProps) {
  const { direction, selection = pageSelection } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const spacer = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const marks = useRef<HTMLCanvasElement>(null);
  const viewRef = useRef<FlameView | undefined>(undefined);
  const contextRef = useRef<FlameContext | undefined>(undefined);
  const zoomHistory = useMemo(() => new ZoomHistory(), []);
  const range = useSignal<ZoomRange>(WHOLE_RANGE);
  const rows = useSignal<DepthRange>({ first: 0, last: 0 });
  const hover = useSignal<HoverTarget | undefined>(undefined);
  const announcement = useSignal("");
  const expansion = expansionOf(props.graph);
  const graph = expansion.graph.value;
  const zoomPath = selection.zoomPath.value;
  const zoomedNode = useMemo(() => findPath(graph, zoomPath).node, [graph, zoomPath]);
  const selectedPath = selection.selectedPath.value;
  const selected = useMemo(() => findPath(graph, selectedPath), [graph, selectedPath]);
  const isFound = selected.matched === selectedPath.length;
  const selectedNode = isFound ? selected.node : zoomedNode;
  const { search, colorBy, transforms } = view.value;
  const framesKey = JSON.stringify([selection.frames.value, selection.isInverted.value, transforms]);
  zoomHistory.follow({ frames: framesKey, profiles: profilesKeyOf(view.value) });
  const { flags: matches, search: matchedSearch } = useMatches(graph, search);
  const openHidden = useHiddenCallees(props.loadSubtree, expansion);
  useLayoutEffect(() => {
    const elements = {
      scroller: scroller.current,
      spacer: spacer.current,
      base: base.current,
      marks: marks.current,
    };
    return mountView(elements as FlameElements, viewRef, contextRef, { range, rows });
  }, []);
  useLayoutEffect(() => {
    const flameView = viewRef.current as FlameView;
    contextRef.current = {
      ...{ graph, direction, selection, matches, flameView, announcement, hover, openHidden, zoomHistory },
      ...{ zoomedNode, selectedNode },
      openMenuAt: (node, x, y) => openMenu({ graph, selection }, node, x, y, scroller.current),
    };
  });
  useLayoutEffect(() => {
    const flameView = viewRef.current as FlameView;
    flameView.setAppearance({ direction, isDark: isDark.value, scheme: colorBy, matches });
    flameView.setGraph(graph);
    clearHover(contextRef.current);
  }, [graph, direction, isDark.value, colorBy, matches]);
  const zoomRange = selection.zoomRange.value;
  useZoom({ viewRef, baseGraph: props.graph, graph, zoomPath, zoomRange, openHidden, expansion });
  const isSelected = isFound && selectedNode > 0;
  useAnnouncement({ announcement, graph, selectedNode, isSelected, framesKey, surface: scroller });
  useMarks(viewRef, graph, selectedNode, selectedPath);
  useRequestedJump(scroller, matchedSearch, (step) => handleJump(contextRef.current, step));
  return {
    ...{ graph, expansion, zoomedNode, zoomRange, matches, range, rows, hover, announcement },
    ...{ scroller, spacer, base, marks, viewRef, contextRef },
  };
}

function summaryOf(graph: Graph): string {
  const total = formatValue(displayedValue(graph, 0, "total"), graph.unit);
  const shown = BigInt(graph.nodeCount);
  const frames =
    graph.fullNodes > shown
      ? `${formatExact(shown, "")} of ${formatExact(graph.fullNodes, "")} frames`
      : `${formatExact(shown, "")} frames`;
  const average = graph.averagedProfiles > 0n ? " on average" : "";
  return `${total}${average} · ${frames}`;
}
