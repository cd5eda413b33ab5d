// Chart of the timeline: uPlot with a range to drag, a cursor for keys, and dots of profiles.

import type { Signal } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { formatTime } from "../../theme/format";
import { isDark } from "../../theme/theme";
import { navigate, view } from "../../url/store";
import { storeTime } from "../../url/time";
import { type ChartMode, chartModel, type ExemplarDot, exemplarDots, pointText } from "./chart_model";
import { chartOptions, dotPosition } from "./chart_options";
import { stepStart, type TimelineData } from "./series_data";

/** Distance from a dot within which a click opens its profile, in pixels. */
const DOT_REACH = 10;
/** Width of the chart for each dot. */
const PIXELS_PER_DOT = 36;

export interface ChartProps {
  readonly data: TimelineData;
  readonly mode: ChartMode;
  readonly hidden: ReadonlySet<string>;
  /** Index of the point under the pointer or the key cursor. */
  readonly hovered: Signal<number | undefined>;
}

interface KeySelection {
  /** Index of the point at the cursor. */
  readonly cursor: number;
  /** Index of the point at which a range begins. */
  readonly anchor: number | undefined;
}

/** Opens the profile of an exemplar. */
function openProfile({ exemplar }: ExemplarDot) {
  navigate({ profileIds: [exemplar.profileId] });
}

/** Narrows the range to the steps between two points, both included. */
function openRange(data: TimelineData, first: number, last: number) {
  const from = stepStart(data, Math.min(first, last));
  const until = data.times[Math.max(first, last)] ?? 0;
  navigate({ from: storeTime(from), until: storeTime(until) });
}

export function TimelineChart({ data, mode, hidden, hovered }: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot>();
  const dots = useRef<readonly ExemplarDot[]>([]);
  const [keys, setKeys] = useState<KeySelection>();
  const dark = isDark.value;
  const zone = view.value.timeZone;
  useLayoutEffect(() => {
    const element = host.current;
    if (element === null) return;
    const model = chartModel(data, mode, hidden);
    const { width, height } = element.getBoundingClientRect();
    dots.current = exemplarDots(data, model.visible, Math.floor(width / PIXELS_PER_DOT));
    const options = chartOptions({
      data,
      mode,
      model,
      dots: dots.current,
      zone,
      style: getComputedStyle(element),
      onCursor: (place) => {
        hovered.value = place;
      },
      onRange: (fromSeconds, untilSeconds) =>
        navigate({ from: storeTime(fromSeconds * 1000), until: storeTime(untilSeconds * 1000) }),
    });
    const plot = new uPlot({ ...options, width, height }, [model.times, ...model.heights], element);
    chart.current = plot;
    const follow = followDots(plot, dots.current);
    const observer = new ResizeObserver(() => {
      const box = element.getBoundingClientRect();
      plot.setSize({ width: box.width, height: box.height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      follow();
      plot.destroy();
      chart.current = undefined;
    };
  }, [data, mode.isStacked, mode.isRate, mode.profileType, hidden, dark, zone]);

  const showKeys = (next: KeySelection | undefined) => {
    setKeys(next);
    if (chart.current !== undefined) drawKeys(chart.current, data, next);
  };
  return (
    <>
      <div
        class="timeline-chart"
        ref={host}
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the chart takes keys.
        tabIndex={0}
        aria-label="Timeline. Left and right move the cursor, with Shift they extend a range, Enter opens the range or the profile at the cursor, Escape clears."
        onKeyDown={(event) => chartKey(event, data, dots.current, keys, showKeys)}
        onBlur={() => showKeys(undefined)}
      />
      <div class="visually-hidden" role="status">
        {keys === undefined ? "" : keyText(keys, data, mode, dots.current)}
      </div>
    </>
  );
}

/** Opens profiles by clicks on dots. Returns a function that ends it. */
function followDots(plot: uPlot, dots: readonly ExemplarDot[]): () => void {
  const nearest = (event: MouseEvent): ExemplarDot | undefined => {
    const box = plot.over.getBoundingClientRect();
    let best: ExemplarDot | undefined;
    let reach = DOT_REACH;
    for (const dot of dots) {
      const position = dotPosition(plot, dot, false);
      if (position === undefined) continue;
      const distance = Math.hypot(
        position.x - (event.clientX - box.left),
        position.y - (event.clientY - box.top),
      );
      if (distance < reach) {
        best = dot;
        reach = distance;
      }
    }
    return best;
  };
  const onMove = (event: MouseEvent) => {
    const dot = nearest(event);
    plot.over.style.cursor = dot === undefined ? "" : "pointer";
    plot.over.title =
      dot === undefined ? "" : `Open the profile ${dot.exemplar.profileId}\n${dot.exemplar.labels}`;
  };
  const onClick = (event: MouseEvent) => {
    const dot = nearest(event);
    if (dot !== undefined) openProfile(dot);
  };
  plot.over.addEventListener("mousemove", onMove);
  plot.over.addEventListener("click", onClick);
  return () => {
    plot.over.removeEventListener("mousemove", onMove);
    plot.over.removeEventListener("click", onClick);
  };
}

function drawKeys(plot: uPlot, data: TimelineData, keys: KeySelection | undefined) {
  const left = (place: number) => plot.valToPos((data.times[place] ?? 0) / 1000, "x");
  if (keys === undefined) {
    plot.setCursor({ left: -10, top: -10 });
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    return;
  }
  plot.setCursor({ left: left(keys.cursor), top: plot.over.clientHeight / 2 });
  const first = Math.min(keys.anchor ?? keys.cursor, keys.cursor);
  const last = Math.max(keys.anchor ?? keys.cursor, keys.cursor);
  const start = plot.valToPos(stepStart(data, first) / 1000, "x");
  const width = keys.anchor === undefined ? 0 : left(last) - start;
  plot.setSelect({ left: start, top: 0, width, height: plot.over.clientHeight }, false);
}

function chartKey(
  event: KeyboardEvent,
  data: TimelineData,
  dots: readonly ExemplarDot[],
  keys: KeySelection | undefined,
  show: (next: KeySelection | undefined) => void,
) {
  const last = data.times.length - 1;
  const from = keys?.cursor ?? last;
  const targets: Record<string, number> = {
    ArrowLeft: keys === undefined ? last : from - 1,
    ArrowRight: keys === undefined ? 0 : from + 1,
    PageUp: from - 10,
    PageDown: from + 10,
    Home: 0,
    End: last,
  };
  const target = targets[event.key];
  if (target !== undefined) {
    const cursor = Math.max(0, Math.min(last, target));
    show({ cursor, anchor: event.shiftKey ? (keys?.anchor ?? from) : undefined });
  } else if (event.key === "Enter" && keys !== undefined) {
    const dot = dots.find(({ exemplar }) => exemplar.place === keys.cursor);
    if (keys.anchor !== undefined) openRange(data, keys.anchor, keys.cursor);
    else if (dot !== undefined) openProfile(dot);
    show(undefined);
  } else if (event.key === "Escape" && keys !== undefined) {
    show(undefined);
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}

function keyText(
  { cursor, anchor }: KeySelection,
  data: TimelineData,
  mode: ChartMode,
  dots: readonly ExemplarDot[],
): string {
  const zone = view.peek().timeZone;
  const time = (place: number) => formatTime(data.times[place] ?? 0, zone);
  if (anchor !== undefined) {
    return `Range from ${time(Math.min(anchor, cursor))} to ${time(Math.max(anchor, cursor))}`;
  }
  const values = data.series.map((series) => `${series.name} ${pointText(series, cursor, data, mode)}`);
  const hasDot = dots.some(({ exemplar }) => exemplar.place === cursor);
  return `${time(cursor)}: ${values.join(", ")}${hasDot ? ". Enter opens its profile" : ""}`;
}
