// Calls that tests make themselves, to compare their results with what the page shows.

export interface CallOptions {
  readonly tenant?: string | undefined;
}

// biome-ignore lint/suspicious/noExplicitAny: responses are compared field by field
export type JsonMessage = any;

/** Calls a method of the server in JSON. */
export async function callApi(
  serverUrl: string,
  method: string,
  request: unknown,
  { tenant = "" }: CallOptions = {},
): Promise<JsonMessage> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (tenant !== "") headers["X-Scope-OrgID"] = tenant;
  const response = await fetch(`${serverUrl}/${method}`, {
    method: "POST",
    headers,
    body: JSON.stringify(request),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} returned ${response.status}: ${text}`);
  return JSON.parse(text);
}

export interface PushOptions {
  readonly tenant?: string | undefined;
  /** Name and labels, as `shop.cpu{pod=a}`. */
  readonly name: string;
  readonly fromMs: number;
  readonly durationMs?: number;
  readonly extra?: Readonly<Record<string, string>>;
}

/** Sends folded stacks, or a file of another format that `extra` names. */
export async function pushFile(
  serverUrl: string,
  body: string | Uint8Array,
  { tenant = "", name, fromMs, durationMs = 10_000, extra = {} }: PushOptions,
): Promise<void> {
  const parameters = new URLSearchParams({
    name,
    from: String(Math.floor(fromMs / 1_000)),
    until: String(Math.floor((fromMs + durationMs) / 1_000)),
    ...extra,
  });
  const headers: Record<string, string> = {};
  if (tenant !== "") headers["X-Scope-OrgID"] = tenant;
  const response = await fetch(`${serverUrl}/ingest?${parameters}`, { method: "POST", headers, body });
  if (!response.ok) throw new Error(`push of ${name} returned ${response.status}: ${await response.text()}`);
}

export interface PushedSeries {
  readonly labels: Readonly<Record<string, string>>;
  readonly profile: Uint8Array;
}

/** Sends pprof profiles with their series in one call. */
export async function pushSeries(
  serverUrl: string,
  series: readonly PushedSeries[],
  options: CallOptions = {},
): Promise<void> {
  await callApi(
    serverUrl,
    "push.v1.PusherService/Push",
    {
      series: series.map(({ labels, profile }) => ({
        labels: Object.entries(labels).map(([name, value]) => ({ name, value })),
        samples: [{ rawProfile: Buffer.from(profile).toString("base64") }],
      })),
    },
    options,
  );
}
