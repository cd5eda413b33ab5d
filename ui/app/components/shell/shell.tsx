// Frame of all pages: header, selector, notices, dialogs.
import type { ComponentChildren } from "preact";
import { type ThemeName, theme } from "../../theme/theme";
import { fleetChange } from "../../url/query_details";
import { hrefOf, navigate, view } from "../../url/store";
import type { PageName, ViewState } from "../../url/view_state";
import { KeyboardHelp } from "../help";
import { AccessDialog, TenantSelect } from "./access_dialog";
import { CopyLinkButton } from "./copy_link";
import { HelpMenu } from "./help_menu";
import { NoticeList, ServerBanner } from "./notice_list";
import { CommandPalette, paletteMode } from "./palette";
import { ProfileTypeSelect } from "./profile_type_select";
import { RefreshControl } from "./refresh_control";
import { SelectorBar } from "./selector_bar";
import { TimePicker } from "./time_picker";
import "./shell.css";

interface ShellProps {
  /** Whether the page has no data, so that nothing can be selected. */
  readonly isEmpty: boolean;
  readonly children: ComponentChildren;
}

export function Shell({ isEmpty, children }: ShellProps) {
  return (
    <div class="shell">
      <button type="button" class="button skip-link" onClick={() => document.getElementById("page")?.focus()}>
        Skip to the page
      </button>
      <ServerBanner />
      <header class="header">
        <div class="header-row">
          <Brand />
          {!isEmpty && <PageLinks />}
          <TenantSelect />
          {!isEmpty && <ProfileTypeSelect />}
          <span class="header-space" />
          {!isEmpty && <TimePicker />}
          {!isEmpty && <RefreshControl />}
          <PaletteButton />
          {!isEmpty && <CopyLinkButton />}
          <ThemeButton />
          <HelpMenu />
        </div>
        {!isEmpty && (
          <div class="header-row">
            <SelectorBar />
          </div>
        )}
      </header>
      <div class="page" id="page" tabIndex={-1}>
        {children}
      </div>
      <NoticeList />
      <CommandPalette />
      <KeyboardHelp />
      <AccessDialog />
    </div>
  );
}

function Brand() {
  return (
    <a class="brand" href={hrefOf(changeOfPage("fleet", view.value))} onClick={openPage("fleet")}>
      <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">
        <rect x="3" y="4" width="18" height="4" rx="1" />
        <rect x="3" y="10" width="13" height="4" rx="1" />
        <rect x="3" y="16" width="7" height="4" rx="1" />
      </svg>
      Athanor
    </a>
  );
}

function changeOfPage(page: PageName, state: ViewState): Partial<ViewState> {
  return page === "fleet" ? fleetChange(state) : { page };
}

function openPage(page: PageName) {
  return (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    navigate(changeOfPage(page, view.peek()));
  };
}

const PAGE_LINKS: readonly (readonly [page: PageName, title: string])[] = [
  ["fleet", "Fleet"],
  ["explore", "Explore"],
];

function PageLinks() {
  const state = view.value;
  return (
    <nav class="page-links" aria-label="Pages">
      {PAGE_LINKS.map(([name, title]) => (
        <a
          key={name}
          href={hrefOf(changeOfPage(name, state))}
          aria-current={state.page === name ? "page" : undefined}
          onClick={openPage(name)}
        >
          {title}
        </a>
      ))}
    </nav>
  );
}

function PaletteButton() {
  return (
    <button
      type="button"
      class="button"
      title="Command palette: services, functions, pages (Ctrl K)"
      onClick={() => {
        paletteMode.value = "all";
      }}
    >
      Go to… <kbd>Ctrl K</kbd>
    </button>
  );
}

const NEXT_THEMES: Readonly<Record<ThemeName, ThemeName>> = {
  system: "light",
  light: "dark",
  dark: "system",
};
const THEME_ICONS: Readonly<Record<ThemeName, string>> = { system: "◐", light: "☀", dark: "☾" };

function ThemeButton() {
  const name = theme.value;
  const title = `Theme: ${name}`;
  return (
    <button
      type="button"
      class="button is-icon"
      title={title}
      aria-label={title}
      onClick={() => {
        theme.value = NEXT_THEMES[name];
      }}
    >
      {THEME_ICONS[name]}
    </button>
  );
}
