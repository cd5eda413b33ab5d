// Changes of the time range: earlier, later, zoom out, undo.
import { effect, signal } from "@preact/signals";
import { now } from "../../url/clock";
import { chosenTimesOf } from "../../url/query_of";
import { navigate, view } from "../../url/store";
import {
  formatSpan,
  type InputZone,
  parseFrom,
  parseUntil,
  storeTime,
  type TimeProblem,
  timeProblem,
} from "../../url/time";
import type { ViewState } from "../../url/view_state";

type RangeText = Pick<ViewState, "from" | "until">;

const MAX_UNDO_STEPS = 50;
const MAX_RANGE_MS = 366 * 86_400_000;

/** Ranges before the current one, the last first to undo. */
export const earlierRanges = signal<readonly RangeText[]>([]);
let lastRange: RangeText | undefined;
let isUndoing = false;

/** Begins to record ranges for undo. */
export function startRangeHistory(): void {
  effect(() => {
    const { from, until } = view.value;
    const previous = lastRange;
    if (previous?.from === from && previous.until === until) return;
    lastRange = { from, until };
    if (previous !== undefined && !isUndoing) {
      earlierRanges.value = [...earlierRanges.peek().slice(1 - MAX_UNDO_STEPS), previous];
    }
  });
}

/** Opens the range before the last change. */
export function undoRange(): void {
  const range = earlierRanges.peek().at(-1);
  if (range === undefined) return;
  earlierRanges.value = earlierRanges.peek().slice(0, -1);
  isUndoing = true;
  navigate(range);
  isUndoing = false;
}

/** Moves the range by its own length, to earlier (-1) or later (1) times. Never moves it beyond now. */
export function shiftRange(direction: -1 | 1): void {
  const [start, end] = chosenTimesOf(view.peek());
  const length = end - start;
  const shifted = end + direction * length;
  if (direction > 0 && shifted >= now.peek()) openRecent(length);
  else openRange(shifted - length, shifted);
}

/** Doubles the range around its middle. Never extends it beyond now. */
export function zoomOutRange(): void {
  const [start, end] = chosenTimesOf(view.peek());
  const length = Math.min((end - start) * 2, MAX_RANGE_MS);
  const newEnd = end + (length - (end - start)) / 2;
  if (newEnd >= now.peek()) openRecent(length);
  else openRange(newEnd - length, newEnd);
}

function openRecent(length: number): void {
  navigate({ from: `now-${formatSpan(length)}`, until: "now" });
}

/** Opens an absolute range. One that begins before 1970, where the server has no profiles, keeps its length. */
export function openRange(start: number, end: number): void {
  const shift = Math.max(0, -start);
  navigate({ from: storeTime(start + shift), until: storeTime(end + shift) });
}

/** Returns why two texts are no range, or undefined if they are one. */
export function rangeProblem(from: string, until: string, zone: InputZone): string | undefined {
  const currentTime = Date.now();
  const end = parseUntil(until, currentTime, zone);
  const start = parseFrom(from, currentTime, end ?? currentTime, zone);
  if (start === undefined) return describeProblem("from", from, zone);
  if (end === undefined) return describeProblem("until", until, zone);
  if (end <= 0) return "until is not after the beginning of 1970";
  if (start >= end) return "from is not before until";
  return undefined;
}

const PROBLEM_HINTS: Readonly<Record<TimeProblem, string>> = {
  form: "write now-1h, a Unix time or 2026-03-02T10:00:00Z",
  calendar: "no such day or time of day exists",
  range: "it is out of range, which is 1970 to 2262-04-11",
};

function describeProblem(field: string, text: string, zone: InputZone): string {
  return `${field} is "${text}"; ${PROBLEM_HINTS[timeProblem(text, zone)]}`;
}
