// Timeline of the selected profiles, by label.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { isGauge, rateUnit } from "../../theme/cost";
import { formatTime } from "../../theme/format";
import { nameProfileType } from "../../theme/profile_types";
import { queryOf } from "../../url/query_of";
import { navigate, view } from "../../url/store";
import { Choice } from "../choice";
import { LabelInput } from "../label_input";
import { QueryPanel } from "../query_panel";
import { RequestPopover } from "../request_popover";
import { TimelineChart } from "./chart";
import { type ChartMode, pointText, summaryText } from "./chart_model";
import { seriesColor } from "./chart_options";
import { MAX_TIMELINE_GROUPS, seriesRequest, type TimelineQuery, type TimelineSeries } from "./series_data";
import { type TimelineResult, timelineQuery } from "./timeline_query";
import "../chart_colors.css";
import "./timeline.css";

export function Timeline() {
  return (
    <div class="timeline">
      <QueryPanel query={timelineQuery} label="Timeline" estimate={queryOf(view.value)}>
        {(result: TimelineResult) => <TimelineBody result={result} />}
      </QueryPanel>
    </div>
  );
}

function TimelineBody({ result }: { readonly result: TimelineResult }) {
  const { timelineMode, timelineValue } = view.value;
  const hovered = useSignal<number | undefined>(undefined);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const { profileType } = result.query;
  const mode: ChartMode = useMemo(
    () => ({ isStacked: timelineMode === "stacked", isRate: timelineValue === "rate", profileType }),
    [timelineMode, timelineValue, profileType],
  );
  const toggle = (name: string) => {
    const changed = new Set(hidden);
    if (!changed.delete(name)) changed.add(name);
    setHidden(changed);
  };
  return (
    <>
      <TimelineBar result={result} mode={mode} hovered={hovered.value} />
      <div class="timeline-body">
        <TimelineChart data={result} mode={mode} hidden={hidden} hovered={hovered} />
        {result.query.groupBy === "" ? null : (
          <TimelineLegend
            result={result}
            mode={mode}
            hidden={hidden}
            hovered={hovered.value}
            toggle={toggle}
          />
        )}
      </div>
      <TimelineTable result={result} mode={mode} />
    </>
  );
}

interface PartProps {
  readonly result: TimelineResult;
  readonly mode: ChartMode;
}

interface HoverProps extends PartProps {
  readonly hovered: number | undefined;
}

function TimelineBar({ result, mode, hovered }: HoverProps) {
  const { groupBy, timelineMode, timelineValue, timeZone, profileType } = view.value;
  const isAverage = isGauge(profileType);
  const isWider =
    view.value.transforms.length + view.value.profileIds.length > 0 ||
    view.value.spanIds.length + view.value.traceIds.length > 0;
  const single = result.series.length === 1 ? result.series[0] : undefined;
  return (
    <div class="timeline-bar">
      <h2 class="timeline-title">{nameProfileType(result.query.profileType).title}</h2>
      {isAverage ? (
        <span class="timeline-note">average of the profiles in each step</span>
      ) : (
        <Choice
          label="Value"
          value={timelineValue}
          options={[
            ["rate", rateUnit(profileType)],
            ["sum", "sum"],
          ]}
          onChange={(value) => navigate({ timelineValue: value })}
        />
      )}
      {groupBy === "" || isAverage ? null : (
        <Choice
          label="Drawing"
          value={timelineMode}
          options={[
            ["lines", "lines"],
            ["stacked", "stacked"],
          ]}
          onChange={(value) => navigate({ timelineMode: value })}
        />
      )}
      <LabelInput
        label="By"
        placeholder="label"
        value={groupBy}
        onChange={(name) => navigate({ groupBy: name })}
      />
      {isWider ? (
        <span class="timeline-note">of all profiles and stacks, without chosen ids and transforms</span>
      ) : null}
      <span class="table-bar-space" />
      <span class="timeline-readout">
        {hovered === undefined ? "" : formatTime(result.times[hovered] ?? 0, timeZone)}
        {single === undefined ? null : (
          <strong>
            {hovered === undefined
              ? summaryText(single, result, mode)
              : pointText(single, hovered, result, mode)}
          </strong>
        )}
      </span>
      <TimelineRequests query={result.query} />
    </div>
  );
}

interface LegendProps extends HoverProps {
  readonly hidden: ReadonlySet<string>;
  readonly toggle: (name: string) => void;
}

function TimelineLegend({ result, mode, hidden, hovered, toggle }: LegendProps) {
  const entryText = (series: TimelineSeries) =>
    hovered === undefined ? summaryText(series, result, mode) : pointText(series, hovered, result, mode);
  return (
    <ul class="timeline-legend" aria-label={`Values of ${result.query.groupBy}`}>
      {result.series.map((series, index) => (
        <li key={series.isOther ? "other" : `=${series.name}`}>
          <button
            type="button"
            class={hidden.has(series.name) ? "legend-entry is-hidden-series" : "legend-entry"}
            aria-pressed={!hidden.has(series.name)}
            title={hidden.has(series.name) ? "Show the series" : "Hide the series"}
            onClick={() => toggle(series.name)}
          >
            <span
              class="legend-color"
              style={{ background: `var(${seriesColor(index, series.isOther)})` }}
              aria-hidden="true"
            />
            <span class="legend-name">{seriesTitle(series, result.query.groupBy)}</span>
            <span class="legend-value">{entryText(series)}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function seriesTitle(series: TimelineSeries, label: string): string {
  if (series.isOther) return "other";
  return series.name === "" ? `(no ${label})` : series.name;
}

function TimelineRequests({ query }: { readonly query: TimelineQuery }) {
  const whole = seriesRequest(query, false);
  const isGrouped = query.groupBy !== "";
  const method = "querier.v1.QuerierService/SelectSeries";
  const selected = { profileType: query.profileType, selector: query.selector };
  return (
    <RequestPopover
      requests={[
        { title: isGrouped ? "All profiles" : "Series", method, request: whole },
        ...(isGrouped
          ? [{ title: "Largest groups", method, request: seriesRequest(query, true) } as const]
          : []),
      ]}
      series={{
        query: { ...selected, start: whole.start, end: whole.end },
        groupBy: isGrouped ? [query.groupBy] : [],
        stepSeconds: query.range.step / 1000,
        limit: isGrouped ? MAX_TIMELINE_GROUPS : undefined,
      }}
    />
  );
}

/** Table with all values, for screen readers. It is built when the browser has nothing else to do. */
function TimelineTable({ result, mode }: PartProps) {
  const [shown, setShown] = useState<TimelineResult>();
  useEffect(() => {
    const idle = requestIdleCallback(() => setShown(result));
    return () => cancelIdleCallback(idle);
  }, [result]);
  if (shown === undefined) return null;
  const zone = view.value.timeZone;
  const { groupBy } = shown.query;
  return (
    <div class="visually-hidden">
      <table>
        <caption>Values of the timeline</caption>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {shown.series.map((series) => (
              <th scope="col" key={series.name}>
                {groupBy === "" ? nameProfileType(mode.profileType).title : seriesTitle(series, groupBy)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.times.map((time, place) => (
            <tr key={time}>
              <th scope="row">{formatTime(time, zone)}</th>
              {shown.series.map((series) => (
                <td key={series.name}>{pointText(series, place, shown, mode)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
