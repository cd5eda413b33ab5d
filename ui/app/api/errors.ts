// Errors of calls.

/** Status of a call that got no response. */
export const NO_RESPONSE_STATUS = 0;

export interface ApiErrorParams {
  /** HTTP status, or NO_RESPONSE_STATUS. */
  readonly status: number;
  /** Code of Connect, such as `invalid_argument`; `unreachable` without a response, `invalid_response` for a damaged one. */
  readonly code: string;
  readonly message: string;
  readonly retryAfterSeconds?: number | undefined;
  readonly traceId?: string | undefined;
}

/** Failed call. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  /** Position in the selector or pattern that the message names, in characters from 1. */
  readonly position: number | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly traceId: string | undefined;

  constructor(params: ApiErrorParams) {
    super(params.message);
    this.name = "ApiError";
    this.status = params.status;
    this.code = params.code;
    this.position = parsePosition(params.message);
    this.retryAfterSeconds = params.retryAfterSeconds;
    this.traceId = params.traceId;
  }

  /** Returns whether the same call may succeed later. */
  isRetryable(): boolean {
    return this.status === 429 || this.status === 503;
  }

  isUnreachable(): boolean {
    return this.code === "unreachable";
  }
}

function parsePosition(message: string): number | undefined {
  const match = /\bat character (\d{1,9})\b/.exec(message);
  return match === null ? undefined : Number(match[1]);
}

/** Returns any thrown value as an ApiError. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ApiError({ status: NO_RESPONSE_STATUS, code: "invalid_response", message });
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

const MAX_MESSAGE_CHARS = 2_000;

/** Builds the error of a response. The body is JSON of Connect, or any text of a proxy. */
export function errorFromResponse(response: Response, body: string): ApiError {
  const parsed = parseErrorBody(body);
  const retryAfter = Number(response.headers.get("Retry-After") ?? "");
  return new ApiError({
    status: response.status,
    code: parsed?.code ?? (isGatewayStatus(response.status) ? "unreachable" : "unknown"),
    message: (parsed?.message ?? describeStatus(response, body)).slice(0, MAX_MESSAGE_CHARS),
    retryAfterSeconds: Number.isFinite(retryAfter) && retryAfter > 0 ? retryAfter : undefined,
    traceId: readTraceId(response.headers),
  });
}

// A proxy responds with these if the server behind it is down.
function isGatewayStatus(status: number): boolean {
  return status === 502 || status === 504;
}

function describeStatus(response: Response, body: string): string {
  const text = /^\s*</.test(body) ? "" : body.trim();
  return text === ""
    ? `the server responded with status ${response.status} ${response.statusText}`.trim()
    : text;
}

function parseErrorBody(body: string): { code: string; message: string } | undefined {
  try {
    const parsed: unknown = JSON.parse(body);
    if (typeof parsed !== "object" || parsed === null) return undefined;
    const { code, message } = parsed as { code?: unknown; message?: unknown };
    if (typeof code !== "string") return undefined;
    return { code, message: typeof message === "string" ? message : code };
  } catch {
    return undefined;
  }
}

/** Returns the trace id of a response, from the header `traceresponse` or `traceparent` of W3C. */
export function readTraceId(headers: Headers): string | undefined {
  const value = headers.get("traceresponse") ?? headers.get("traceparent") ?? "";
  return /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(value)?.[1];
}
