// Start page: how to send profiles. Also the hint where data is, if the range has none.
import { effect, signal } from "@preact/signals";
import { serverUrl } from "../api/server_state";
import { copyText } from "../components/clipboard";
import {
  findNewest,
  hasDatedProfiles,
  isStoreEmpty,
  newestRange,
  profileStats,
  type StoredTimes,
  storedSelection,
  storedTimes,
  wholeRange,
} from "../components/stored_data";
import { useLiveQuery } from "../components/use_live_query";
import { formatAge, formatTime } from "../theme/format";
import { refresh, wallClock } from "../url/clock";
import { timeRangeOf } from "../url/query_of";
import { navigate, replaceView, view } from "../url/store";
import { type StartCommand, startCommands } from "./start_commands";
import "./start.css";

/** The fleet appears within 2 s of the first profile. */
const POLL_INTERVAL_MS = 750;
/** A store whose profiles all lack a plausible time may stay so. */
const UNDATED_POLL_INTERVAL_MS = 5_000;

/** Polls for the first profile with a plausible time while the page is visible. Then opens the fleet. */
export function startDataPolls(): void {
  effect(() => {
    if (hasDatedProfiles.value !== false) return;
    const intervalMs = isStoreEmpty.value === true ? POLL_INTERVAL_MS : UNDATED_POLL_INTERVAL_MS;
    const poll = () => {
      if (!document.hidden && profileStats.state.peek().kind !== "loading") profileStats.reload();
    };
    const timer = setInterval(poll, intervalMs);
    document.addEventListener("visibilitychange", poll);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", poll);
      if (hasDatedProfiles.peek() !== true) return;
      if (view.peek().page === "start") replaceView({ page: "fleet" });
      refresh();
    };
  });
}

export function StartPage() {
  const isEmpty = isStoreEmpty.value !== false;
  return (
    <main class="start-page">
      <header class="start-header">
        <h1>{isEmpty ? "No profiles yet" : "Send profiles"}</h1>
        <p>
          {isEmpty
            ? "Send one with any of these. This page opens the services by itself as soon as the first profile is stored."
            : "Any of these sends profiles to this server."}
        </p>
        {isEmpty && <WaitingLine />}
      </header>
      <CommandList />
      <p class="start-more">
        SDKs and agents of Grafana Pyroscope and exporters of OpenTelemetry work with the address{" "}
        <code>{serverRoot()}</code>. The agent of Athanor samples a whole host: <code>sudo ./run agent</code>.
      </p>
    </main>
  );
}

function WaitingLine() {
  return (
    <p class="start-waiting" role="status">
      <span class="start-pulse" aria-hidden="true" /> Waiting for the first profile at{" "}
      <code>{serverRoot()}</code>
    </p>
  );
}

function serverRoot(): string {
  return serverUrl("").replace(/\/$/, "");
}

const chosenCommand = signal("curl");

function CommandList() {
  const commands = startCommands({ url: serverRoot(), tenant: view.value.tenant });
  const chosen = commands.find(({ title }) => title === chosenCommand.value) ?? commands[0];
  return (
    <section class="start-commands">
      <div
        class="start-tabs"
        role="tablist"
        aria-label="Language or tool"
        onKeyDown={(event) => moveTab(event, commands)}
      >
        {commands.map(({ title }) => (
          <button
            key={title}
            type="button"
            role="tab"
            id={`tab-${title}`}
            aria-selected={title === chosen?.title}
            aria-controls="start-command"
            tabIndex={title === chosen?.title ? 0 : -1}
            onClick={() => {
              chosenCommand.value = title;
            }}
          >
            {title}
          </button>
        ))}
      </div>
      {chosen !== undefined && <CommandPanel command={chosen} />}
    </section>
  );
}

function moveTab(event: KeyboardEvent, commands: readonly StartCommand[]): void {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (step === 0) return;
  const index = commands.findIndex(({ title }) => title === chosenCommand.peek());
  const next = commands[(index + step + commands.length) % commands.length];
  if (next === undefined) return;
  event.preventDefault();
  chosenCommand.value = next.title;
  document.getElementById(`tab-${next.title}`)?.focus();
}

function CommandPanel({ command }: { readonly command: StartCommand }) {
  return (
    <div class="start-command" id="start-command" role="tabpanel" aria-labelledby={`tab-${command.title}`}>
      <div class="start-command-header">
        <span>{command.note}</span>
        <button
          type="button"
          class="button"
          onClick={() => void copyText(command.text, `Copied the command for ${command.title}.`)}
        >
          Copy
        </button>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a long command scrolls by keyboard */}
      <pre tabIndex={0}>{command.text}</pre>
    </div>
  );
}

/** Returns the stored times. The newest one is that of the selection as soon as it is known. */
function useSelectedTimes(): StoredTimes | undefined {
  const stats = profileStats.state.value.value;
  const times = stats === undefined ? undefined : storedTimes(stats);
  const selection = times === undefined ? undefined : storedSelection(view.value, times);
  const { kind, value } = useLiveQuery(selection, findNewest).state.value;
  return times === undefined || kind !== "done" ? times : { ...times, newest: value ?? times.newest };
}

const UNMATCHED_TEXT = "No profile of this range matches the selector and the profile type.";
const UNDATED_TEXT =
  "All stored profiles are dated before 2000, as those of 1970 are if a sender sets no time. This page opens the services as soon as a profile with a valid time is stored.";

/** Says that the range has no profiles of the selection, and when there are some. */
export function OtherTime() {
  const times = useSelectedTimes();
  const currentTime = wallClock.value;
  const newest = times === undefined ? undefined : newestRange(times, currentTime);
  const whole = times === undefined ? undefined : wholeRange(times, currentTime);
  const { timeZone } = view.value;
  const { start, end } = timeRangeOf(view.value);
  const isInRange = times?.newest !== undefined && times.newest >= start && times.newest <= end;
  return (
    <div class="other-time">
      <h2>{isInRange ? "No matching profiles" : "No profiles in this range"}</h2>
      {times?.newest === undefined || isInRange ? (
        <p>{hasDatedProfiles.value === false ? UNDATED_TEXT : UNMATCHED_TEXT}</p>
      ) : (
        <p>
          The newest profile is of {formatTime(times.newest, timeZone)},{" "}
          {describeAge(currentTime - times.newest)}.
          {times.oldest !== undefined && ` The oldest is of ${formatTime(times.oldest, timeZone)}.`}
        </p>
      )}
      <div class="other-time-buttons">
        {newest !== undefined && !isInRange && (
          <button type="button" class="button is-primary" onClick={() => navigate(newest)}>
            Go to the newest data
          </button>
        )}
        {whole !== undefined && !isInRange && (
          <button type="button" class="button" onClick={() => navigate(whole)}>
            Show all data
          </button>
        )}
        {view.value.selector !== "{}" && (
          <button type="button" class="button" onClick={() => navigate({ selector: "{}" })}>
            Clear the selector
          </button>
        )}
      </div>
    </div>
  );
}

function describeAge(ms: number): string {
  return ms < 0 ? `${formatAge(-ms)} ahead of this clock` : `${formatAge(ms)} ago`;
}
