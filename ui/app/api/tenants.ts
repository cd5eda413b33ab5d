// Tenants that the server lists for the current token.
import { signal } from "@preact/signals";
import { accessHeaders } from "./credentials";
import { serverUrl } from "./server_state";

/** Single tenant of a server without tenants. It needs no choice. */
const ANONYMOUS_TENANT = "anonymous";

/** Tenants that the server lists, in ascending order. */
export interface TenantList {
  /** Empty while they are not known, or if there is nothing to choose. */
  readonly names: readonly string[];
  /** Whether the server has more of them. */
  readonly isTruncated: boolean;
}

export const NO_TENANTS: TenantList = { names: [], isTruncated: false };

export const listedTenants = signal(NO_TENANTS);

/** Fetches the list. Servers and proxies may refuse it, then it is empty. */
export async function loadTenants(abort: AbortSignal): Promise<void> {
  const tenants = await fetchTenants(abort).catch(() => NO_TENANTS);
  if (!abort.aborted) listedTenants.value = tenants;
}

async function fetchTenants(signal: AbortSignal): Promise<TenantList> {
  const response = await fetch(serverUrl("athanor/tenants"), {
    // The header of a tenant would limit the list to that tenant.
    headers: accessHeaders(""),
    cache: "no-store",
    signal,
  });
  if (!response.ok) return NO_TENANTS;
  return readTenants(await response.json());
}

/** Returns the tenants of a response, as far as they are texts. */
export function readTenants(message: unknown): TenantList {
  const { tenants, truncated } = (message ?? {}) as { tenants?: unknown; truncated?: unknown };
  if (!Array.isArray(tenants)) return NO_TENANTS;
  const names = tenants.filter((name): name is string => typeof name === "string" && name !== "");
  if (names.length === 1 && names[0] === ANONYMOUS_TENANT) return NO_TENANTS;
  return { names, isTruncated: truncated === true };
}
