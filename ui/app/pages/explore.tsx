// Explore page: the timeline, and one or two views of the selected profiles.

import { useEffect, useRef } from "preact/hooks";
import { FrameMenu } from "../components/frame_menu";
import { useKeptFocus } from "../components/keep_focus";
import { isTyping } from "../components/shell/shortcuts";
import { Timeline } from "../components/timeline/timeline";
import { navigate, view } from "../url/store";
import type { ViewName } from "../url/view_state";
import { ExploreToolbar } from "./explore_toolbar";
import { changeToView, VIEW_TITLES } from "./explore_views";
import { ViewPane } from "./view_pane";
import "./explore.css";

/** Index of the view that the keys 1 to 5 replace: the one that had the focus last. */
let focusedPane: 0 | 1 = 0;

function onKeyDown(event: KeyboardEvent) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  if (document.querySelector("dialog[open]") !== null) return;
  const name = VIEW_TITLES[Number(event.key) - 1]?.[0];
  if (name !== undefined) {
    navigate(changeToView(view.peek(), focusedPane, name));
    event.preventDefault();
  }
}

export function ExplorePage() {
  useEffect(() => {
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
  const { views } = view.value;
  return (
    <main class="explore-page">
      <h1 class="visually-hidden">Explore</h1>
      <Timeline />
      <ExploreToolbar />
      <div class="explore-views">
        {views.map((name, index) => (
          <Pane key={index === 0 ? "first" : "second"} name={name} pane={index === 0 ? 0 : 1} />
        ))}
      </div>
      <FrameMenu />
    </main>
  );
}

interface PaneProps {
  readonly name: ViewName;
  readonly pane: 0 | 1;
}

/** Place of a view. It stays when another view takes the place. */
function Pane({ name, pane }: PaneProps) {
  const element = useRef<HTMLDivElement>(null);
  useKeptFocus(element);
  return (
    <div
      class="explore-view"
      data-view={name}
      ref={element}
      onFocusCapture={() => {
        focusedPane = pane;
      }}
    >
      <ViewPane key={name} name={name} pane={pane} isSplit={view.value.views.length > 1} />
    </div>
  );
}
