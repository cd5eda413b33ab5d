// Calls to the server.
import { view } from "../url/store";
import { accessHeaders, reportMissingToken, token } from "./credentials";
import { ApiError, errorFromResponse, isAbort, NO_RESPONSE_STATUS, readTraceId } from "./errors";
import { encodeMessage } from "./protobuf";
import { reportUnreachable, serverUrl } from "./server_state";
import type { ApiMethods, GraphRequest, MethodName } from "./types";

export { ApiError } from "./errors";

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  /** Tenant other than that of the view. */
  readonly tenant?: string | undefined;
}

/** Response of a call. */
export interface Reply<T> {
  readonly message: T;
  readonly warnings: readonly string[];
  readonly traceId: string | undefined;
  readonly resolution: string | undefined;
}

export type RequestOf<Method extends MethodName> = ApiMethods[Method]["request"];
export type ResponseOf<Method extends MethodName> = ApiMethods[Method]["response"];

/** Marks calls of a browser on the server's own machine: their responses need no compression. `fetch` cannot ask so. */
const UI_HEADER = "Athanor-UI";
const LOOPBACK_HOST = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** Calls a method in JSON. Throws an ApiError, or an AbortError if the signal aborts. */
export async function call<Method extends MethodName>(
  method: Method,
  request: RequestOf<Method>,
  options: CallOptions = {},
): Promise<Reply<ResponseOf<Method>>> {
  const response = await post(method, "application/json", JSON.stringify(request), options);
  const message = parseMessage<ResponseOf<Method>>(await readBody(() => response.text()));
  const { warnings } = message as { warnings?: readonly string[] };
  return {
    message,
    warnings: warnings ?? [],
    traceId: readTraceId(response.headers),
    resolution: response.headers.get("Athanor-Resolution") ?? undefined,
  };
}

/** Fetches a graph as an encoded GraphResponse. */
export async function fetchGraph(request: GraphRequest, options: CallOptions = {}): Promise<ArrayBuffer> {
  const body = encodeMessage("GraphRequest", request as Readonly<Record<string, unknown>>);
  const response = await post("athanor.v1.ExploreService/Graph", "application/proto", body, options);
  return readBody(() => response.arrayBuffer());
}

/** Rejects texts that a browser sends in no header, before it fails without a reason. */
function checkHeaderText(name: string, text: string): void {
  if (/^[\x20-\x7e]*$/.test(text)) return;
  const message = `${name} has a character other than printable ASCII, which no header may contain`;
  throw new ApiError({ status: 400, code: "invalid_argument", message });
}

async function post(
  path: string,
  contentType: string,
  body: string | Uint8Array<ArrayBuffer>,
  options: CallOptions,
): Promise<Response> {
  const tenant = options.tenant ?? view.peek().tenant;
  checkHeaderText("tenant", tenant);
  checkHeaderText("token", token.peek());
  const headers: Record<string, string> = {
    "Content-Type": contentType,
    "Connect-Protocol-Version": "1",
    ...accessHeaders(tenant),
  };
  // A proxy beside the server would make remote browsers look like local ones.
  if (LOOPBACK_HOST.test(new URL(document.baseURI).hostname)) headers[UI_HEADER] = "1";
  const init: RequestInit = { method: "POST", headers, body, cache: "no-store" };
  if (options.signal !== undefined) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(serverUrl(path), init);
  } catch (error) {
    throw unreachableError(error);
  }
  if (!response.ok) await throwError(response);
  if (response.status === 200) reportMissingToken(false);
  return response;
}

async function throwError(response: Response): Promise<never> {
  const error = errorFromResponse(response, await readBody(() => response.text()));
  if (error.status === 401) reportMissingToken(true);
  if (error.isUnreachable()) reportUnreachable();
  throw error;
}

// A server that dies while it responds breaks the body.
async function readBody<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    throw unreachableError(error);
  }
}

function unreachableError(error: unknown): unknown {
  if (isAbort(error)) return error;
  if (!(error instanceof TypeError)) return error;
  reportUnreachable();
  return new ApiError({
    status: NO_RESPONSE_STATUS,
    code: "unreachable",
    message: "the server does not respond; the page retries until it returns",
  });
}

function parseMessage<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new ApiError({ status: 200, code: "invalid_response", message: "the response is no valid JSON" });
  }
}
