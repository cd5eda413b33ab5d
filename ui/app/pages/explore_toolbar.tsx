// Toolbar of the Explore page: views, grouping of frames, colors, search, transforms.

import { useState } from "preact/hooks";
import { Choice } from "../components/choice";
import { LabelInput } from "../components/label_input";
import { SearchField } from "../components/search_field";
import { TransformChips } from "../components/transform_chips";
import { navigate, view } from "../url/store";
import type { FrameGrouping, ViewName, ViewState } from "../url/view_state";
import { changeToView, VIEW_TITLES } from "./explore_views";
import { ExportMenu, ViewRequests } from "./view_requests";

const LABEL_PREFIX = "label:";

const GROUPINGS: readonly (readonly [value: string, title: string])[] = [
  ["function", "function"],
  ["line", "line"],
  ["file", "file"],
  ["package", "package"],
  ["binary", "binary"],
  [LABEL_PREFIX, "label…"],
];

/** View that a split adds beside the first one. */
function viewBeside(name: ViewName): ViewName {
  return name === "table" ? "flame" : "table";
}

export function ExploreToolbar() {
  const { views } = view.value;
  const [first, second] = views;
  const isSplit = second !== undefined;
  const drawsGraph = views.some((name) => name === "flame" || name === "icicle");
  const usesGraph = drawsGraph || views.includes("tree");
  return (
    <div class="explore-toolbar" role="toolbar" aria-label="Views">
      <div class="explore-tools">
        {isSplit ? null : (
          <Choice
            label="View"
            value={first}
            options={VIEW_TITLES}
            onChange={(name) => navigate(changeToView(view.peek(), 0, name))}
          />
        )}
        <button
          type="button"
          class="button tool-button"
          aria-pressed={isSplit}
          title="Two views side by side"
          onClick={() => navigate({ views: isSplit ? [first] : [first, viewBeside(first)] })}
        >
          Split
        </button>
        {usesGraph ? <FrameGroupingSelect /> : null}
        {usesGraph ? (
          <button
            type="button"
            class="button tool-button"
            aria-pressed={view.value.inverted}
            title="Bottom-up: functions first, their callers below"
            onClick={() => navigate({ inverted: !view.value.inverted, zoomPath: [], selectedPath: [] })}
          >
            Invert
          </button>
        ) : null}
        {drawsGraph ? <ColorSelect /> : null}
        <div class="explore-tools-end">
          <SearchField />
          <ExportMenu />
          {isSplit ? null : <ViewRequests name={first} />}
        </div>
      </div>
      <TransformChips>
        <SelectionChips />
      </TransformChips>
    </div>
  );
}

function FrameGroupingSelect() {
  const { frames } = view.value;
  // Grouping in which `label…` was chosen. The view has no grouping by a label before its name is known.
  const [replaced, setReplaced] = useState<FrameGrouping>();
  const isLabel = frames.startsWith(LABEL_PREFIX);
  const isChoosing = replaced === frames;
  const group = (grouping: FrameGrouping) => {
    setReplaced(undefined);
    navigate({ frames: grouping, zoomPath: [], selectedPath: [] });
  };
  return (
    <>
      <label class="tool-select">
        <span class="tool-label">Frames</span>
        <select
          value={isLabel || isChoosing ? LABEL_PREFIX : frames}
          onChange={({ currentTarget: { value } }) => {
            if (value === LABEL_PREFIX) setReplaced(frames);
            else group(value as FrameGrouping);
          }}
        >
          {GROUPINGS.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
      </label>
      {isLabel || isChoosing ? (
        <LabelInput
          label="Label"
          placeholder="label"
          value={isLabel ? frames.slice(LABEL_PREFIX.length) : ""}
          onChange={(name) => group(name === "" ? "function" : `${LABEL_PREFIX}${name}`)}
        />
      ) : null}
    </>
  );
}

const COLORS = ["package", "binary", "share"] as const satisfies readonly ViewState["colorBy"][];

function ColorSelect() {
  return (
    <label class="tool-select">
      <span class="tool-label">Color</span>
      <select
        value={view.value.colorBy}
        onChange={(event) => navigate({ colorBy: event.currentTarget.value as ViewState["colorBy"] })}
      >
        {COLORS.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

const SELECTORS = [
  ["profileIds", "profile"],
  ["spanIds", "span"],
  ["traceIds", "trace"],
] as const;

/** Characters of an identifier that a chip shows. */
const SHOWN_ID_CHARS = 8;

/** Chips of the selected profiles, spans and traces. A click removes the selection. */
function SelectionChips() {
  const state = view.value;
  return (
    <>
      {SELECTORS.map(([field, noun]) => {
        const ids = state[field];
        if (ids.length === 0) return null;
        const text =
          ids.length === 1 ? `${noun} ${(ids[0] ?? "").slice(0, SHOWN_ID_CHARS)}` : `${ids.length} ${noun}s`;
        return (
          <span class="selection-chip" key={field} title={ids.join("\n")}>
            {text}
            <button
              type="button"
              class="tool-clear"
              aria-label={`Remove the selection of ${text}`}
              onClick={() => navigate({ [field]: [] })}
            >
              ×
            </button>
          </span>
        );
      })}
    </>
  );
}
