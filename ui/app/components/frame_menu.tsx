// Context menu of a frame, used by all views: transforms, other views, copying.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Graph } from "../graph/graph";
import { showName } from "../graph/names";
import { searchOfName } from "../graph/search";
import { navigate, view } from "../url/store";
import type { TransformAction, ViewName, ViewState } from "../url/view_state";
import { copyText } from "./clipboard";
import { type FrameSelection, pageSelection } from "./flame/selection";
import { linkOfView } from "./shell/copy_link";
import { addTransform, functionOfFrame, hasTransforms, TRANSFORM_HELP, transformOfFrame } from "./transforms";
import "./frame_menu.css";

/** Frame that a menu is about, and the point of the page where it opens. */
export interface FrameMenuTarget {
  readonly x: number;
  readonly y: number;
  readonly name: string;
  /** Names from the root to the frame; empty for the root. */
  readonly path: readonly string[];
  readonly graph?: Graph | undefined;
  /** What the path means. By default that of the page. */
  readonly selection?: FrameSelection | undefined;
  /** Element that has the focus after the menu. By default the one that has it now. */
  readonly returnFocus?: HTMLElement | undefined;
}

interface MenuItem {
  readonly label: string;
  readonly help?: string;
  /** Key of the graph that does the same. */
  readonly key?: string;
  readonly isDisabled: boolean;
  /** Whether a line separates the item from the one before. */
  readonly beginsGroup: boolean;
  run(): void;
}

const openTarget = signal<FrameMenuTarget | undefined>(undefined);

/** Opens the menu of a frame. */
export function openFrameMenu(target: FrameMenuTarget): void {
  const focused = document.activeElement;
  const returnFocus = target.returnFocus ?? (focused instanceof HTMLElement ? focused : undefined);
  openTarget.value = { ...target, returnFocus };
}

function closeMenu(): void {
  const target = openTarget.peek();
  openTarget.value = undefined;
  target?.returnFocus?.focus({ preventScroll: true });
}

const TRANSFORM_ITEMS: readonly (readonly [action: TransformAction, label: string, key?: string])[] = [
  ["focus", "Focus on this function", "f"],
  ["ignore", "Ignore this function", "i"],
  ["hide", "Hide this function", "h"],
  ["show", "Show only this function"],
  ["showFrom", "Show from here", "s"],
  ["collapseRecursion", "Collapse recursion"],
  ["collapseBelow", "Collapse everything below"],
];

function itemsOf(target: FrameMenuTarget): MenuItem[] {
  const { name, path, selection = pageSelection } = target;
  const frames = selection.frames.peek();
  const isRoot = path.length === 0 && name === "";
  // The first level of a graph that is grouped by a label has values of the label, not functions.
  const isLabel = frames.startsWith("label:") && target.graph !== undefined && path.length === 1;
  const hasActions = !isRoot && !isLabel && hasTransforms(frames);
  const isFunction =
    hasActions && (frames === "function" || frames === "line" || frames.startsWith("label:"));
  const functionName = functionOfFrame(name, frames);
  const transforms = TRANSFORM_ITEMS.map(([action, label, key], index) => ({
    label,
    help: TRANSFORM_HELP[action],
    ...(key === undefined ? {} : { key }),
    isDisabled: !hasActions,
    beginsGroup: index === 0,
    run: () => addTransform(transformOfFrame(action, name, frames)),
  }));
  const openView = (viewName: ViewName, change: Partial<ViewState>) =>
    navigate({ views: viewsWith(view.peek().views, viewName), ...change });
  const stack = selection.isInverted.peek() ? path : [...path].reverse();
  const linked = selection.isInLink
    ? { zoomPath: path, selectedPath: path }
    : { sandwichFunction: name, views: viewsWith(view.peek().views, "sandwich") };
  return [
    ...transforms,
    {
      label: "Open in sandwich",
      isDisabled: !isFunction,
      beginsGroup: true,
      run: () => openView("sandwich", { sandwichFunction: functionName }),
    },
    {
      label: "Show in table",
      isDisabled: !isFunction,
      beginsGroup: false,
      run: () => openView("table", { search: searchOfName(functionName) }),
    },
    {
      label: "Copy name",
      key: "c",
      isDisabled: isRoot,
      beginsGroup: true,
      run: () => void copyText(name, "Copied the name."),
    },
    {
      label: "Copy stack",
      help: "One function a line, the callee first",
      isDisabled: path.length === 0,
      beginsGroup: false,
      run: () => void copyText(stack.join("\n"), "Copied the stack."),
    },
    {
      label: selection.isInLink ? "Copy link to this frame" : "Copy link to its sandwich",
      help: "With fixed times",
      isDisabled: !selection.isInLink && isRoot,
      beginsGroup: false,
      run: () => void copyText(linkOfView(false, linked), "Copied the link. Its times are fixed."),
    },
  ];
}

/** Returns the views with one added: beside the first of two, or in place of a single one. */
function viewsWith(views: ViewState["views"], name: ViewName): ViewState["views"] {
  if (views.some((shown) => shown === name)) return views;
  return views.length === 2 ? [views[0], name] : [name];
}

/** Menu of the page. It is rendered once and shows itself when `openFrameMenu` is called. */
export function FrameMenu() {
  const target = openTarget.value;
  if (target === undefined) return null;
  return <OpenMenu key={`${target.x} ${target.y} ${target.path.length}`} target={target} />;
}

/** Distance of the menu from the edges of the window. */
const EDGE_DISTANCE = 8;
/** Time within which typed letters make one prefix. */
const TYPE_AHEAD_MS = 600;

function OpenMenu({ target }: { readonly target: FrameMenuTarget }) {
  const menu = useRef<HTMLDivElement>(null);
  const typed = useRef({ text: "", at: 0 });
  const items = itemsOf(target);
  useLayoutEffect(() => {
    const element = menu.current as HTMLDivElement;
    const { width, height } = element.getBoundingClientRect();
    element.style.left = `${Math.max(EDGE_DISTANCE, Math.min(target.x, innerWidth - width - EDGE_DISTANCE))}px`;
    element.style.top = `${Math.max(EDGE_DISTANCE, Math.min(target.y, innerHeight - height - EDGE_DISTANCE))}px`;
    itemElements(element)[0]?.focus({ preventScroll: true });
  }, [target]);
  useCloseOutside(menu);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    moveFocus(event, menu.current as HTMLDivElement, typed.current);
  };
  const run = (item: MenuItem) => {
    closeMenu();
    item.run();
  };
  return (
    <div
      class="frame-menu"
      role="menu"
      aria-label={menuLabel(target)}
      ref={menu}
      tabIndex={-1}
      onKeyDown={onKeyDown}
    >
      <div class="frame-menu-title" aria-hidden="true">
        <bdi>{menuLabel(target)}</bdi>
      </div>
      {items.map((item) => (
        <button
          type="button"
          role="menuitem"
          key={item.label}
          tabIndex={-1}
          class={item.beginsGroup ? "frame-menu-item begins-group" : "frame-menu-item"}
          aria-disabled={item.isDisabled}
          aria-keyshortcuts={item.key}
          aria-label={item.label}
          title={item.help}
          onPointerMove={(event) => event.currentTarget.focus({ preventScroll: true })}
          onClick={() => {
            if (!item.isDisabled) run(item);
          }}
        >
          <span>{item.label}</span>
          {item.key === undefined ? null : <kbd>{item.key}</kbd>}
        </button>
      ))}
    </div>
  );
}

/** Longest name in the title of the menu. */
const MAX_TITLE_CHARACTERS = 120;

function menuLabel(target: FrameMenuTarget): string {
  if (target.path.length === 0 && target.name === "") return "All frames";
  const name = showName(target.name);
  return name.length > MAX_TITLE_CHARACTERS ? `…${name.slice(-MAX_TITLE_CHARACTERS)}` : name;
}

function itemElements(menu: HTMLElement): HTMLElement[] {
  return [...menu.querySelectorAll<HTMLElement>('[role="menuitem"]')];
}

function moveFocus(event: KeyboardEvent, menu: HTMLElement, typed: { text: string; at: number }): void {
  const elements = itemElements(menu);
  const current = elements.indexOf(document.activeElement as HTMLElement);
  const focusAt = (index: number) => elements[(index + elements.length) % elements.length]?.focus();
  if (event.key === "Escape" || event.key === "Tab") closeMenu();
  else if (event.key === "ArrowDown") focusAt(current + 1);
  else if (event.key === "ArrowUp") focusAt(current < 0 ? -1 : current - 1);
  else if (event.key === "Home" || event.key === "PageUp") focusAt(0);
  else if (event.key === "End" || event.key === "PageDown") focusAt(-1);
  else if (event.key === "Enter" || event.key === " ") elements[current]?.click();
  else if (event.key.length === 1) {
    const isNew = event.timeStamp - typed.at > TYPE_AHEAD_MS;
    typed.text = (isNew ? "" : typed.text) + event.key.toLowerCase();
    typed.at = event.timeStamp;
    const found = elements.find((element) => element.textContent?.toLowerCase().startsWith(typed.text));
    found?.focus();
  }
}

function useCloseOutside(menu: { readonly current: HTMLElement | null }): void {
  useEffect(() => {
    const abort = new AbortController();
    const options = { signal: abort.signal, capture: true };
    const closeOutside = (event: Event) => {
      if (menu.current?.contains(event.target as Node) !== true) closeMenu();
    };
    document.addEventListener("pointerdown", closeOutside, options);
    document.addEventListener("wheel", closeOutside, options);
    addEventListener("resize", closeMenu, options);
    addEventListener("popstate", closeMenu, options);
    return () => abort.abort();
  }, []);
}
