// Path from the root to the zoomed frame. Each part zooms to its frame.

import type { ReadonlySignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { ROOT_LABEL } from "../../canvas/flame_painter";
import { isSameRange, type ZoomRange } from "../../canvas/zoom_range";
import { fitLabel, labelForms } from "../../graph/names";
import { formatShareRange } from "../../theme/format";

interface PathBarProps {
  readonly path: readonly string[];
  /** Zoomed range of merged frames, which have no path. */
  readonly zoomRange: ZoomRange | undefined;
  readonly range: ReadonlySignal<ZoomRange>;
  /** Returns the range of the zoomed frame, or undefined before the graph is drawn. */
  readonly zoomedRange: () => ZoomRange | undefined;
  readonly isLoading: boolean;
  /** Facts about the whole graph, at the end of the bar. */
  readonly summary: string;
  onZoom(path: readonly string[]): void;
  onZoomRange(range: ZoomRange): void;
  onReset(): void;
}

/** Frames at the end of a long path that the bar shows. */
const MAX_PARTS = 8;
const MAX_PART_CHARACTERS = 36;

export function PathBar(props: PathBarProps) {
  const { path, zoomRange, isLoading, summary, onZoom, onZoomRange } = props;
  const firstShown = Math.max(0, path.length - MAX_PARTS);
  const nav = useRef<HTMLElement>(null);
  // The zoomed frame is at the end. A narrow bar shows that and lets the beginning be scrolled to.
  useLayoutEffect(() => {
    if (nav.current !== null) nav.current.scrollLeft = nav.current.scrollWidth;
  }, [path.join("\0"), zoomRange]);
  return (
    <div class="flame-path">
      <nav aria-label="Callers of the zoomed frame" ref={nav}>
        <ol>
          <PathPart
            name={ROOT_LABEL}
            title="The whole graph"
            isCurrent={path.length === 0 && zoomRange === undefined}
            onClick={() => onZoom([])}
          />
          {firstShown > 0 ? <li class="flame-path-gap">{`${firstShown} more`}</li> : null}
          {path.slice(firstShown).map((name, offset) => {
            const depth = firstShown + offset + 1;
            return (
              <PathPart
                key={depth}
                name={fitLabel(labelForms(name), MAX_PART_CHARACTERS, (text) => text.length)}
                title={labelForms(name)[0] ?? ""}
                isCurrent={depth === path.length && zoomRange === undefined}
                onClick={() => onZoom(path.slice(0, depth))}
              />
            );
          })}
          {zoomRange === undefined ? null : (
            <PathPart
              name={formatShareRange(zoomRange)}
              title="Merged frames, as a part of the whole graph"
              isCurrent={true}
              onClick={() => onZoomRange(zoomRange)}
            />
          )}
        </ol>
      </nav>
      <span class="flame-summary">{isLoading ? "loading hidden frames…" : summary}</span>
      <ResetButton {...props} />
    </div>
  );
}

/** Button that follows the visible range by itself, so that a free zoom does not render the bar. */
function ResetButton({ path, range, zoomedRange, onReset }: PathBarProps) {
  const zoomed = zoomedRange();
  const isFreeZoom = zoomed !== undefined && !isSameRange(range.value, zoomed);
  return (
    <button
      type="button"
      class="button is-plain flame-reset"
      disabled={path.length === 0 && !isFreeZoom}
      onClick={onReset}
    >
      Reset zoom
    </button>
  );
}

interface PathPartProps {
  readonly name: string;
  readonly title: string;
  readonly isCurrent: boolean;
  onClick(): void;
}

function PathPart({ name, title, isCurrent, onClick }: PathPartProps) {
  return (
    <li>
      <button
        type="button"
        class="flame-path-part"
        title={title}
        aria-current={isCurrent ? "true" : undefined}
        onClick={onClick}
      >
        <bdi>{name}</bdi>
      </button>
    </li>
  );
}
