// State of a view. The URL is its only store.

export type PageName = "start" | "fleet" | "explore";

/** View of the selected profiles on the Explore page. */
export type ViewName = "flame" | "icicle" | "table" | "tree" | "sandwich";

export type TransformAction =
  | "focus"
  | "ignore"
  | "hide"
  | "show"
  | "showFrom"
  | "collapseRecursion"
  | "collapseBelow";

/** Change of stacks that the server applies. `isRegex` is false for the name of one function. */
export interface TransformState {
  readonly action: TransformAction;
  /** Undefined for all functions, which only `collapseRecursion` accepts. The empty text is a name. */
  readonly pattern: string | undefined;
  readonly isRegex: boolean;
}

/** What a frame of the graph stands for. `label:NAME` puts the values of a label at the first level. */
export type FrameGrouping = "function" | "line" | "file" | "package" | "binary" | `label:${string}`;

export type TimeZoneName = "local" | "utc";

/** Columns by which a table of functions sorts. */
export const TABLE_SORT_COLUMNS: readonly string[] = ["self", "total", "name", "file", "binary"];

/** Columns by which the fleet sorts. */
export const FLEET_SORT_COLUMNS: readonly string[] = ["cost", "name", "change", "types", "services", "seen"];

export interface ViewState {
  readonly page: PageName;
  /** Tenant, as in the header X-Scope-OrgID. Empty for the default one. */
  readonly tenant: string;
  /** Profile type: name:sample_type:sample_unit:period_type:period_unit. Empty picks one. */
  readonly profileType: string;
  /** Selector as in PromQL, `{service_name="shop"}`. */
  readonly selector: string;
  /** Time as text: `now-1h`, `now`, milliseconds since 1970, or any other form that is a time. */
  readonly from: string;
  readonly until: string;
  readonly timeZone: TimeZoneName;
  /** Seconds between refreshes; 0 is off. */
  readonly refreshSeconds: number;
  /** Label that groups the timeline or the fleet. Empty for none. */
  readonly groupBy: string;
  readonly timelineMode: "lines" | "stacked";
  readonly timelineValue: "rate" | "sum";
  /** One view, or two side by side. */
  readonly views: readonly [ViewName] | readonly [ViewName, ViewName];
  readonly transforms: readonly TransformState[];
  readonly frames: FrameGrouping;
  /** Bottom-up graph. */
  readonly inverted: boolean;
  readonly colorBy: "package" | "binary" | "share";
  /** Names of frames from the root to the zoomed node. */
  readonly zoomPath: readonly string[];
  /** Range of a click on merged frames, which have no path: `0.25-0.5` of the root's total, or empty. */
  readonly zoomRange: string;
  /** Names of frames from the root to the selected node. */
  readonly selectedPath: readonly string[];
  /** Function of the sandwich view. Undefined for none; the empty text is a name. */
  readonly sandwichFunction: string | undefined;
  /** Search text, or `/regex/`. */
  readonly search: string;
  readonly tableSort: string;
  readonly tableReversed: boolean;
  readonly fleetSort: string;
  readonly fleetReversed: boolean;
  readonly fleetFilter: string;
  /** Selectors of single profiles, spans or traces; empty for all. */
  readonly profileIds: readonly string[];
  readonly spanIds: readonly string[];
  readonly traceIds: readonly string[];
}

/** State of a link without parameters. */
export const DEFAULT_VIEW: ViewState = {
  page: "fleet",
  tenant: "",
  profileType: "",
  selector: "{}",
  from: "now-1h",
  until: "now",
  timeZone: "local",
  refreshSeconds: 0,
  groupBy: "",
  timelineMode: "lines",
  timelineValue: "rate",
  views: ["flame"],
  transforms: [],
  frames: "function",
  inverted: false,
  colorBy: "package",
  zoomPath: [],
  zoomRange: "",
  selectedPath: [],
  sandwichFunction: undefined,
  search: "",
  tableSort: "self",
  tableReversed: false,
  fleetSort: "cost",
  fleetReversed: false,
  fleetFilter: "",
  profileIds: [],
  spanIds: [],
  traceIds: [],
};
