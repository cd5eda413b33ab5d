// Tenant of the view and token of the tab.
import { computed, signal } from "@preact/signals";
import { useEffect, useId, useState } from "preact/hooks";
import { isTokenMissing, reportMissingToken, setToken, token } from "../../api/credentials";
import { listedTenants, loadTenants } from "../../api/tenants";
import { refresh } from "../../url/clock";
import { navigate, view } from "../../url/store";
import { Dialog } from "./dialog";

/** Whether the user opened the dialog. It also opens if the server rejects a request. */
export const isAccessOpen = signal(false);

const STORAGE_KEY = "athanor-tenants";
const MAX_RECENT_TENANTS = 20;

/** Tenants that were opened in this browser, the last first. */
export const recentTenants = signal<readonly string[]>(readTenants());

function readTenants(): readonly string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(stored)
      ? stored.filter((item) => typeof item === "string").slice(0, MAX_RECENT_TENANTS)
      : [];
  } catch {
    return [];
  }
}

export function openTenant(tenant: string): void {
  const name = tenant.trim();
  if (name !== "") {
    recentTenants.value = [name, ...recentTenants.peek().filter((other) => other !== name)].slice(
      0,
      MAX_RECENT_TENANTS,
    );
    localStorage.setItem(STORAGE_KEY, JSON.stringify(recentTenants.peek()));
  }
  if (name !== view.peek().tenant)
    navigate({ tenant: name, profileType: "", zoomPath: [], selectedPath: [] });
}

export function AccessDialog() {
  if (!isAccessOpen.value && !isTokenMissing.value) return null;
  const close = () => {
    isAccessOpen.value = false;
    reportMissingToken(false);
  };
  return (
    <Dialog title="Tenant and token" close={close}>
      <AccessForm isRejected={isTokenMissing.value} close={close} />
    </Dialog>
  );
}

function AccessForm({ isRejected, close }: { readonly isRejected: boolean; readonly close: () => void }) {
  const [tenantText, setTenantText] = useState(view.peek().tenant);
  const listId = useId();
  const hintId = useId();
  const [tokenText, setTokenText] = useState(token.peek());
  const apply = (event: Event) => {
    event.preventDefault();
    openTenant(tenantText);
    setToken(tokenText);
    close();
    refresh();
  };
  return (
    <form class="access-form" onSubmit={apply}>
      {isRejected && (
        <p role="alert">The server rejected the request. It requires a tenant, a token, or both.</p>
      )}
      <label>
        Tenant
        <input
          class="field"
          type="text"
          list={listId}
          aria-describedby={truncationHint.value === undefined ? undefined : hintId}
          value={tenantText}
          autofocus
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setTenantText(event.currentTarget.value)}
        />
      </label>
      <datalist id={listId}>
        {knownTenants.value.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      {truncationHint.value !== undefined && (
        <p id={hintId} class="access-hint">
          {truncationHint.value}
        </p>
      )}
      <label>
        Token
        <input
          class="field"
          type="password"
          value={tokenText}
          autocomplete="off"
          onInput={(event) => setTokenText(event.currentTarget.value)}
        />
      </label>
      <p class="access-hint">
        The tenant is part of the link. The token is kept for this tab and sent as{" "}
        <code>Authorization: Bearer</code>.
      </p>
      <div class="access-buttons">
        <button type="submit" class="button is-primary">
          Apply
        </button>
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
      </div>
    </form>
  );
}

/** Tenants that the server lists and those that this browser opened, in ascending order. */
const knownTenants = computed(() =>
  [...new Set([...listedTenants.value.names, ...recentTenants.value])].sort(),
);

/** Explains a list that lacks tenants; undefined if it has all of them. */
const truncationHint = computed(() => {
  const { names, isTruncated } = listedTenants.value;
  if (!isTruncated) return undefined;
  return `The list has the first ${names.length} tenants. Others can be typed.`;
});

/** Choice among the known tenants. Absent while there is only one. */
export function TenantSelect() {
  const { tenant } = view.value;
  const others = knownTenants.value.filter((name) => name !== tenant);
  useEffect(() => {
    const abort = new AbortController();
    void loadTenants(abort.signal);
    return () => abort.abort();
  }, [token.value]);
  if (tenant === "" && others.length === 0) return null;
  return (
    <select
      class="field tenant"
      aria-label="Tenant"
      title={truncationHint.value ?? "Tenant"}
      value={tenant}
      onChange={(event) => {
        if (event.currentTarget.value === "\n") isAccessOpen.value = true;
        else openTenant(event.currentTarget.value);
        event.currentTarget.value = view.peek().tenant;
      }}
    >
      <option value={tenant}>{tenant === "" ? "(default tenant)" : tenant}</option>
      {others.map((name) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
      {truncationHint.value !== undefined && <option disabled>{truncationHint.value}</option>}
      <option value={"\n"}>Other…</option>
    </select>
  );
}
