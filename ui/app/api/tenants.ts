// Tenants that the server lists for the current token.
import { signal } from "@preact/signals";
import { accessHeaders } from "./credentials";
import { serverUrl } from "./server_state";

/** Single tenant of a server without tenants. It needs no choice. */
const ANONYMOUS_TENANT = "anonymous";

/** Tenants in ascending order. Empty while they are not known, or if there is nothing to choose. */
export const listedTenants = signal<readonly string[]>([]);

/** Fetches the list. Servers and proxies may refuse it, then it is empty. */
export async function loadTenants(tenant: string, abort: AbortSignal): Promise<void> {
  const tenants = await fetchTenants(tenant, abort).catch(() => []);
  if (!abort.aborted) listedTenants.value = tenants;
}

async function fetchTenants(tenant: string, signal: AbortSignal): Promise<readonly string[]> {
  const response = await fetch(serverUrl("athanor/tenants"), {
    headers: accessHeaders(tenant),
    cache: "no-store",
    signal,
  });
  if (!response.ok) return [];
  return readTenants(await response.json());
}

/** Returns the tenants of a response, as far as they are texts. */
export function readTenants(message: unknown): readonly string[] {
  const { tenants } = (message ?? {}) as { tenants?: unknown };
  if (!Array.isArray(tenants)) return [];
  const names = tenants.filter((name): name is string => typeof name === "string" && name !== "");
  return names.length === 1 && names[0] === ANONYMOUS_TENANT ? [] : names;
}
