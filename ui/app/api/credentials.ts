// Token that a server or its proxy requires. It is kept for the tab.
import { type ReadonlySignal, signal } from "@preact/signals";

const STORAGE_KEY = "athanor-token";
/** The header of a request has at most some KiB. */
export const MAX_TOKEN_CHARS = 8_192;
/** Longest tenant header that is sent; the server accepts shorter ones. */
const MAX_TENANT_CHARS = 1_024;

const currentToken = signal(readToken());
const missing = signal(false);

/** Token of the tab; empty if there is none. */
export const token: ReadonlySignal<string> = currentToken;

/** Whether the server rejected the last request for lack of a valid token or tenant. */
export const isTokenMissing: ReadonlySignal<boolean> = missing;

function readToken(): string {
  return globalThis.sessionStorage?.getItem(STORAGE_KEY) ?? "";
}

/** Stores a token. An empty one is forgotten. Queries that failed without it run. */
export function setToken(value: string): void {
  const trimmed = value.trim().slice(0, MAX_TOKEN_CHARS);
  if (trimmed === "") globalThis.sessionStorage?.removeItem(STORAGE_KEY);
  else globalThis.sessionStorage?.setItem(STORAGE_KEY, trimmed);
  currentToken.value = trimmed;
  missing.value = false;
}

/** Returns the headers that select a tenant and prove the right to read it. */
export function accessHeaders(tenant: string): Record<string, string> {
  const headers: Record<string, string> = {};
  if (tenant !== "") headers["X-Scope-OrgID"] = tenant.slice(0, MAX_TENANT_CHARS);
  if (token.peek() !== "") headers["Authorization"] = `Bearer ${token.peek()}`;
  return headers;
}

export function reportMissingToken(isMissing: boolean): void {
  missing.value = isMissing;
}
