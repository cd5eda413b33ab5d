// Light or dark theme. The choice is kept in the browser.
import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";

export type ThemeName = "system" | "light" | "dark";

const STORAGE_KEY = "athanor-theme";
const DARK_QUERY = "(prefers-color-scheme: dark)";

function readTheme(): ThemeName {
  const stored = globalThis.localStorage?.getItem(STORAGE_KEY);
  return stored === "light" || stored === "dark" ? stored : "system";
}

const systemQuery = globalThis.matchMedia?.(DARK_QUERY);
const isSystemDark = signal(systemQuery?.matches ?? false);
systemQuery?.addEventListener("change", (event) => {
  isSystemDark.value = event.matches;
});

/** Chosen theme. */
export const theme: Signal<ThemeName> = signal(readTheme());

/** Whether the page is dark at present. */
export const isDark: ReadonlySignal<boolean> = computed(() =>
  theme.value === "system" ? isSystemDark.value : theme.value === "dark",
);

/** Applies the theme to the page, and keeps it. */
export function startTheme(): void {
  effect(() => {
    document.documentElement.dataset["theme"] = isDark.value ? "dark" : "light";
    if (theme.value === "system") localStorage.removeItem(STORAGE_KEY);
    else localStorage.setItem(STORAGE_KEY, theme.value);
  });
}
