// Tenant of the current view, apart from it so that queries can follow it alone.
import { type ReadonlySignal, signal } from "@preact/signals";

const tenantSignal = signal("");

/** Tenant of the current view. Queries run when it changes, and never show results of another tenant. */
export const currentTenant: ReadonlySignal<string> = tenantSignal;

export function setCurrentTenant(tenant: string): void {
  tenantSignal.value = tenant;
}
