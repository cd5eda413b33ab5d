// State of a view as parameters of its link, and back.
import { decodePath, encodePath } from "./frame_path";
import { isRoundedTime, parseFrom, parseUntil, storeRange, storeTime } from "./time";
import {
  DEFAULT_VIEW,
  FLEET_SORT_COLUMNS,
  type FrameGrouping,
  TABLE_SORT_COLUMNS,
  type TransformAction,
  type TransformState,
  type ViewName,
  type ViewState,
} from "./view_state";
import { parseZoomRange } from "./zoom_text";

/** Version of the parameters. */
export const URL_VERSION = 1;
const MAX_LIST_ITEMS = 100;
const MIN_REFRESH_SECONDS = 10;
const MAX_REFRESH_SECONDS = 86_400;

/** State of a link, and one text for each parameter that could not be used. */
export interface DecodedView {
  readonly state: ViewState;
  readonly notices: readonly string[];
}

type WritableState = { -readonly [Field in keyof ViewState]: ViewState[Field] };

/** One parameter. `read` returns false if it cannot use the values. */
interface Parameter {
  readonly name: string;
  /** Values of the parameter; none if the state has the default. */
  write(state: ViewState): readonly string[];
  read(values: readonly string[], state: WritableState): boolean;
}

type FieldOf<Value> = {
  [Field in keyof ViewState]: ViewState[Field] extends Value
    ? Value extends ViewState[Field]
      ? Field
      : never
    : never;
}[keyof ViewState];

function textParameter(name: string, field: FieldOf<string>): Parameter {
  return {
    name,
    write: (state) => (state[field] === DEFAULT_VIEW[field] ? [] : [state[field]]),
    read: (values, state) => {
      state[field] = values[0] ?? "";
      return true;
    },
  };
}

function choiceParameter<Field extends keyof ViewState>(
  name: string,
  field: Field,
  words: readonly (readonly [value: ViewState[Field], word: string])[],
): Parameter {
  return {
    name,
    write: (state) => {
      if (state[field] === DEFAULT_VIEW[field]) return [];
      return words.filter(([value]) => value === state[field]).map(([, word]) => word);
    },
    read: (values, state) => {
      const entry = words.find(([, word]) => word === values[0]);
      if (entry === undefined) return false;
      (state as Record<Field, ViewState[Field]>)[field] = entry[0];
      return true;
    },
  };
}

/** Returns the parameter of a time. It keeps the text, since relative times move with the current one. */
function timeParameter(name: string, field: "from" | "until"): Parameter {
  return {
    ...textParameter(name, field),
    read: ([value = ""], state) => {
      const now = Date.now();
      const time = field === "from" ? parseFrom(value, now, now) : parseUntil(value, now);
      // No range ends before 1970.
      if (time === undefined || (field === "until" && time <= 0)) return false;
      state[field] = value;
      return true;
    },
  };
}

function sortParameter(
  name: string,
  field: FieldOf<string>,
  reversed: FieldOf<boolean>,
  columns: readonly string[],
): Parameter {
  return {
    name,
    write: (state) => {
      if (state[field] === DEFAULT_VIEW[field] && state[reversed] === DEFAULT_VIEW[reversed]) return [];
      return [(state[reversed] ? "-" : "") + state[field]];
    },
    read: ([value = ""], state) => {
      const column = value.replace(/^-/, "");
      if (!columns.includes(column)) return false;
      state[reversed] = value.startsWith("-");
      state[field] = column;
      return true;
    },
  };
}

function pathParameter(name: string, field: "zoomPath" | "selectedPath"): Parameter {
  return {
    name,
    write: (state) => (state[field].length === 0 ? [] : [encodePath(state[field])]),
    read: ([value = ""], state) => {
      const path = decodePath(value);
      if (path !== undefined) state[field] = path;
      return path !== undefined;
    },
  };
}

const zoomRangeParameter: Parameter = {
  ...textParameter("zr", "zoomRange"),
  read: ([value = ""], state) => {
    const isRange = parseZoomRange(value) !== undefined;
    if (isRange) state.zoomRange = value;
    return isRange;
  },
};

/** Forms of ids that the server reads. */
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const SPAN_ID = /^[0-9a-f]{16}$/i;
const TRACE_ID = /^[0-9a-f]{32}$/i;

function idsParameter(name: string, field: "profileIds" | "spanIds" | "traceIds", form: RegExp): Parameter {
  return {
    name,
    write: (state) => (state[field].length === 0 ? [] : [state[field].join(",")]),
    read: ([value = ""], state) => {
      const items = value.split(",").filter((item) => item !== "");
      const ids = items.filter((item) => form.test(item)).slice(0, MAX_LIST_ITEMS);
      state[field] = ids;
      return ids.length === items.length;
    },
  };
}

const VIEW_NAMES: readonly ViewName[] = ["flame", "icicle", "table", "tree", "sandwich"];

const viewsParameter: Parameter = {
  name: "w",
  write: ({ views }) => (views.length === 1 && views[0] === "flame" ? [] : [views.join(",")]),
  read: ([value = ""], state) => {
    const words = value.split(",");
    const views = words.filter((word): word is ViewName => VIEW_NAMES.includes(word as ViewName));
    const [first, second] = views;
    if (first !== undefined) state.views = second === undefined ? [first] : [first, second];
    return views.length === words.length && views.length <= 2;
  },
};

const TRANSFORM_ACTIONS: readonly TransformAction[] = [
  "focus",
  "ignore",
  "hide",
  "show",
  "showFrom",
  "collapseRecursion",
  "collapseBelow",
];

// `focus=NAME` or `focus~REGEX`. Recursion of all functions is `collapseRecursion`, without a separator.
function readTransform(text: string): TransformState | undefined {
  const match = /^([a-zA-Z]+)(?:([=~])([\s\S]*))?$/.exec(text);
  const action = TRANSFORM_ACTIONS.find((name) => name === match?.[1]);
  if (action === undefined || (match?.[2] === undefined && action !== "collapseRecursion")) return undefined;
  return { action, isRegex: match?.[2] === "~", pattern: match?.[3] };
}

const transformsParameter: Parameter = {
  name: "x",
  write: ({ transforms }) =>
    transforms.map(({ action, isRegex, pattern }) =>
      pattern === undefined ? action : `${action}${isRegex ? "~" : "="}${pattern}`,
    ),
  read: (values, state) => {
    const transforms = values.slice(0, MAX_LIST_ITEMS).map(readTransform);
    state.transforms = transforms.filter((transform) => transform !== undefined);
    return state.transforms.length === values.length;
  },
};

const framesParameter: Parameter = {
  name: "fr",
  write: ({ frames }) => (frames === DEFAULT_VIEW.frames ? [] : [frames]),
  read: ([value = ""], state) => {
    if (!/^(function|line|file|package|binary|label:.+)$/s.test(value)) return false;
    state.frames = value as FrameGrouping;
    return true;
  },
};

/** Function of the sandwich. `fn=` is the function without a name; a link without the parameter has none. */
const functionParameter: Parameter = {
  name: "fn",
  write: ({ sandwichFunction }) => (sandwichFunction === undefined ? [] : [sandwichFunction]),
  read: ([value], state) => {
    state.sandwichFunction = value;
    return true;
  },
};

const refreshParameter: Parameter = {
  name: "r",
  write: ({ refreshSeconds }) => (refreshSeconds === 0 ? [] : [String(refreshSeconds)]),
  read: ([value = ""], state) => {
    const seconds = /^\d{1,5}$/.test(value) ? Number(value) : Number.NaN;
    const isUsable = seconds === 0 || (seconds >= MIN_REFRESH_SECONDS && seconds <= MAX_REFRESH_SECONDS);
    if (isUsable) state.refreshSeconds = seconds;
    return isUsable;
  },
};

/** All parameters after the version, in the order in which links have them. */
const PARAMETERS: readonly Parameter[] = [
  choiceParameter("p", "page", [
    ["start", "start"],
    ["fleet", "fleet"],
    ["explore", "explore"],
  ]),
  textParameter("t", "tenant"),
  textParameter("y", "profileType"),
  textParameter("q", "selector"),
  timeParameter("f", "from"),
  timeParameter("u", "until"),
  choiceParameter("tz", "timeZone", [
    ["local", "local"],
    ["utc", "utc"],
  ]),
  refreshParameter,
  textParameter("g", "groupBy"),
  choiceParameter("tm", "timelineMode", [
    ["lines", "lines"],
    ["stacked", "stacked"],
  ]),
  choiceParameter("tv", "timelineValue", [
    ["rate", "rate"],
    ["sum", "sum"],
  ]),
  viewsParameter,
  transformsParameter,
  framesParameter,
  choiceParameter("i", "inverted", [
    [false, "0"],
    [true, "1"],
  ]),
  choiceParameter("c", "colorBy", [
    ["package", "package"],
    ["binary", "binary"],
    ["share", "share"],
  ]),
  pathParameter("z", "zoomPath"),
  zoomRangeParameter,
  pathParameter("n", "selectedPath"),
  functionParameter,
  textParameter("s", "search"),
  sortParameter("o", "tableSort", "tableReversed", TABLE_SORT_COLUMNS),
  sortParameter("fo", "fleetSort", "fleetReversed", FLEET_SORT_COLUMNS),
  textParameter("ff", "fleetFilter"),
  idsParameter("id", "profileIds", UUID),
  idsParameter("sp", "spanIds", SPAN_ID),
  idsParameter("tr", "traceIds", TRACE_ID),
];

/** Returns the parameters of a link, `?v=1&…`. Parameters with their default value are left out. */
export function encodeView(state: ViewState): string {
  let search = `?v=${URL_VERSION}`;
  for (const parameter of PARAMETERS) {
    for (const value of parameter.write(state)) search += `&${parameter.name}=${encodeText(value)}`;
  }
  return search;
}

// Leaves more characters readable than encodeURIComponent, which throws at lone surrogates.
function encodeText(text: string): string {
  const encoded = encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd"));
  return encoded.replace(/%(?:3A|3B|2C|2F|3D|40|24)/g, decodeURIComponent);
}

/** Returns the state of a link. Whatever cannot be used has its default, with a notice. */
export function decodeView(search: string): DecodedView {
  const parameters = new URLSearchParams(search);
  const state: WritableState = { ...DEFAULT_VIEW };
  const notices: string[] = [];
  const version = parameters.get("v");
  if (version !== null && version !== String(URL_VERSION)) {
    notices.push(`The link has version ${shorten(version)}, this server knows version ${URL_VERSION}.`);
  }
  const names = new Set(parameters.keys());
  names.delete("v");
  for (const parameter of PARAMETERS) {
    if (!names.delete(parameter.name)) continue;
    const values = parameters.getAll(parameter.name);
    if (!parameter.read(values, state)) {
      notices.push(
        `The link's parameter ${parameter.name} has an unusable value: ${shorten(values.join(" "))}`,
      );
    }
  }
  const orderNotice = orderTimes(state);
  if (orderNotice !== undefined) notices.push(orderNotice);
  for (const name of names) notices.push(`The link has an unknown parameter: ${shorten(name)}`);
  return { state, notices };
}

/** Swaps the times of a range that ends before it begins. Returns a notice if it does. */
function orderTimes(state: WritableState): string | undefined {
  const now = Date.now();
  const { from, until } = state;
  const end = parseUntil(until, now);
  const start = end === undefined ? undefined : parseFrom(from, now, end);
  if (start === undefined || end === undefined || start <= end) return undefined;
  if (isRoundedTime(from) || isRoundedTime(until)) {
    // A rounded text means another time at the other end.
    state.from = storeTime(end);
    state.until = storeTime(start);
  } else {
    state.from = storeRange(DEFAULT_VIEW.from, until, now).until ?? DEFAULT_VIEW.from;
    state.until = from;
  }
  return `The link's range ends before it begins: from ${shorten(from)} until ${shorten(until)}. The page shows it the other way around.`;
}

const MAX_NOTICE_CHARS = 80;

function shorten(text: string): string {
  return text.length > MAX_NOTICE_CHARS ? `${text.slice(0, MAX_NOTICE_CHARS)}…` : text;
}
