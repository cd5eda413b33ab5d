// Entry of the page: opens the page that the address names.
import { computed, effect } from "@preact/signals";
import { render } from "preact";
import { useRef } from "preact/hooks";
import { startHeartbeat } from "./api/server_state";
import { useKeptFocus } from "./components/keep_focus";
import { QueryPanel } from "./components/query_panel";
import { profileTypes, startProfileTypeChoice } from "./components/shell/profile_type_select";
import { startRefresh } from "./components/shell/refresh_control";
import { Shell } from "./components/shell/shell";
import { startShortcuts } from "./components/shell/shortcuts";
import { startRangeHistory } from "./components/shell/time_actions";
import { isNewestInRange, isStoreEmpty, profileStats } from "./components/stored_data";
import { ExplorePage } from "./pages/explore";
import { FleetPage } from "./pages/fleet";
import { OtherTime, StartPage, startDataPolls } from "./pages/start";
import { startTheme } from "./theme/theme";
import { startWallClock } from "./url/clock";
import { parseSelector } from "./url/selector";
import { startHistory, view } from "./url/store";
import type { PageName } from "./url/view_state";
import "./theme/tokens.css";
import "./theme/base.css";

function App() {
  const { page } = view.value;
  const isEmpty = isStoreEmpty.value === true;
  return (
    <Shell isEmpty={isEmpty}>
      <CurrentPage page={isEmpty ? "start" : page} />
    </Shell>
  );
}

/**
 * Whether the range has no profile type, so that no page has anything to show. A refresh keeps that until its result,
 * unless a profile of the range was stored since.
 */
const hasNoTypes = computed(() => {
  const { kind, value, valueRequest, runningRequest } = profileTypes.state.value;
  if (value?.length !== 0) return false;
  return kind === "done" || (kind === "loading" && valueRequest === runningRequest && !isNewestInRange.value);
});

/** Whether the page lacks a profile type because its link names none. Without a type it cannot query anything. */
const needsTypes = computed(() => {
  const { kind, value } = profileTypes.state.value;
  return view.value.profileType === "" && (kind !== "done" || value?.length === 0);
});

/** Progress or error of the profile types in place of a page that needs one, or a hint if the range has none. */
function TypesPanel() {
  const element = useRef<HTMLElement>(null);
  useKeptFocus(element);
  return (
    <main ref={element}>
      <QueryPanel query={profileTypes} label="Profile types">
        {() => hasNoTypes.value && <OtherTime />}
      </QueryPanel>
    </main>
  );
}

function CurrentPage({ page }: { readonly page: PageName }) {
  if (page === "start") return <StartPage />;
  if (needsTypes.value) return <TypesPanel />;
  if (page === "explore") return <ExplorePage />;
  // The first response decides between the fleet and the start page. Until then neither is shown.
  const isUndecided = isStoreEmpty.value === undefined && profileStats.state.value.kind === "loading";
  return isUndecided ? <main aria-busy="true" /> : <FleetPage />;
}

/** Returns the title of the browser's tab. */
function pageTitle(): string {
  const { page, selector } = view.value;
  if (isStoreEmpty.value === true || page === "start") return "Send profiles – Athanor";
  if (page === "fleet") return "Fleet – Athanor";
  const service = parseSelector(selector)?.find(
    ({ name, operator }) => name === "service_name" && operator === "=",
  );
  return `${service?.value.slice(0, 80) ?? "Explore"} – Athanor`;
}

startTheme();
startHistory();
startWallClock();
startRangeHistory();
startProfileTypeChoice();
startRefresh();
startShortcuts();
startDataPolls();
startHeartbeat();
effect(() => {
  document.title = pageTitle();
});
render(<App />, document.body);
