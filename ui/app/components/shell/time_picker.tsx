// Time range of the view.
import { useState } from "preact/hooks";
import { formatTime } from "../../theme/format";
import { now } from "../../url/clock";
import { chosenTimesOf } from "../../url/query_of";
import { navigate, view } from "../../url/store";
import { isoTime, isRelativeTime, parseUntil, storeRange, storeTime } from "../../url/time";
import type { TimeZoneName, ViewState } from "../../url/view_state";
import { Menu } from "./menu";
import { earlierRanges, rangeProblem, shiftRange, undoRange, zoomOutRange } from "./time_actions";
import "./time_picker.css";

const PRESETS: readonly (readonly [span: string, title: string])[] = [
  ["5m", "5 minutes"],
  ["15m", "15 minutes"],
  ["30m", "30 minutes"],
  ["1h", "1 hour"],
  ["3h", "3 hours"],
  ["6h", "6 hours"],
  ["12h", "12 hours"],
  ["24h", "24 hours"],
  ["2d", "2 days"],
  ["7d", "7 days"],
  ["14d", "14 days"],
  ["30d", "30 days"],
];

const UNIT_NAMES: Readonly<Record<string, string>> = {
  s: "second",
  m: "minute",
  h: "hour",
  d: "day",
  w: "week",
};

/** Returns the range in words: `Last 1 hour`, or both times. */
export function describeRange({
  from,
  until,
  timeZone,
}: Pick<ViewState, "from" | "until" | "timeZone">): string {
  const recent = until === "now" ? /^now-(\d+)([smhdw])$/.exec(from) : null;
  if (recent !== null)
    return `Last ${recent[1]} ${UNIT_NAMES[recent[2] ?? ""]}${recent[1] === "1" ? "" : "s"}`;
  const write = (text: string) => {
    if (isRelativeTime(text)) return text;
    const ms = parseUntil(text, now.peek());
    return ms === undefined ? text.slice(0, 40) : formatTime(ms, timeZone);
  };
  return shortenSecondDate(write(from), write(until));
}

// The date is written once if both times are on one day.
function shortenSecondDate(from: string, until: string): string {
  const isOneDay = /^\d{4}-/.test(from) && from.slice(0, 10) === until.slice(0, 10);
  return `${from} – ${isOneDay ? until.slice(11) : until}`;
}

export function TimePicker() {
  const state = view.value;
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be a row of joined buttons in all browsers
    <div class="time-picker" role="group" aria-label="Time range">
      <StepButton label="‹" title="Earlier ([)" run={() => shiftRange(-1)} />
      <Menu
        label={<span class="time-picker-text">{describeRange(state)}</span>}
        title={`Time range: ${describeRange(state)}`}
        align="right"
      >
        {(close) => <RangeForm state={state} close={close} />}
      </Menu>
      <StepButton label="›" title="Later (])" run={() => shiftRange(1)} />
      <StepButton label="⤢" title="Zoom out to twice the range" run={zoomOutRange} />
      <StepButton
        label="↶"
        title="Undo the last change of the range"
        run={undoRange}
        isDisabled={earlierRanges.value.length === 0}
      />
    </div>
  );
}

interface StepButtonProps {
  readonly label: string;
  readonly title: string;
  readonly run: () => void;
  readonly isDisabled?: boolean;
}

function StepButton({ label, title, run, isDisabled }: StepButtonProps) {
  return (
    <button
      type="button"
      class="button is-icon"
      title={title}
      aria-label={title}
      disabled={isDisabled}
      onClick={run}
    >
      {label}
    </button>
  );
}

/** Returns the text of a time field: a relative time, or the time as the header shows it. */
function fieldText(stored: string, ms: number, zone: TimeZoneName): string {
  if (isRelativeTime(stored)) return stored;
  return zone === "utc" ? isoTime(ms) : formatTime(ms, zone);
}

function RangeForm({ state, close }: { readonly state: ViewState; readonly close: () => void }) {
  const [start, end] = chosenTimesOf(state);
  const zone = state.timeZone;
  const [typedFrom, setFrom] = useState<string>();
  const [typedUntil, setUntil] = useState<string>();
  // A time that was not typed keeps its milliseconds, which its field may not show.
  const from = typedFrom ?? (isRelativeTime(state.from) ? state.from : storeTime(start));
  const until = typedUntil ?? (isRelativeTime(state.until) ? state.until : storeTime(end));
  const problem = rangeProblem(from, until, zone);
  const apply = () => {
    if (problem !== undefined) return;
    const stored = storeRange(from, until, Date.now(), zone);
    navigate({ from: stored.from ?? from, until: stored.until ?? until });
    close();
  };
  return (
    <div class="range-form">
      <div class="range-presets">
        {PRESETS.map(([span, title]) => (
          <button
            key={span}
            type="button"
            class="button is-plain"
            aria-pressed={state.from === `now-${span}` && state.until === "now"}
            onClick={() => {
              navigate({ from: `now-${span}`, until: "now" });
              close();
            }}
          >
            {title}
          </button>
        ))}
      </div>
      <form
        class="range-fields"
        onSubmit={(event) => {
          event.preventDefault();
          apply();
        }}
      >
        <TimeField label="From" value={typedFrom ?? fieldText(state.from, start, zone)} onInput={setFrom} />
        <TimeField label="Until" value={typedUntil ?? fieldText(state.until, end, zone)} onInput={setUntil} />
        <p
          class={problem === undefined ? "range-hint" : "range-problem"}
          role={problem === undefined ? undefined : "alert"}
        >
          {problem ??
            `now-1h30m, 2026-03-02 10:00 in ${zone === "utc" ? "UTC" : "local time"}, 20260302 or Unix time`}
        </p>
        <button type="submit" class="button is-primary" disabled={problem !== undefined}>
          Apply
        </button>
        <ZoneChoice zone={state.timeZone} />
      </form>
    </div>
  );
}

function TimeField({
  label,
  value,
  onInput,
}: {
  label: string;
  value: string;
  onInput: (value: string) => void;
}) {
  return (
    <label class="range-field">
      {label}
      <input
        class="field"
        type="text"
        value={value}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </label>
  );
}

function ZoneChoice({ zone }: { readonly zone: TimeZoneName }) {
  const choices: readonly (readonly [TimeZoneName, string])[] = [
    ["local", "Local time"],
    ["utc", "UTC"],
  ];
  return (
    <fieldset class="range-zones">
      <legend class="visually-hidden">Times are shown in</legend>
      {choices.map(([name, title]) => (
        <label key={name}>
          <input
            type="radio"
            name="zone"
            checked={zone === name}
            onChange={() => navigate({ timeZone: name })}
          />
          {title}
        </label>
      ))}
    </fieldset>
  );
}
