// Tests of errors of calls.
import { expect, test } from "vitest";
import { ApiError, errorFromResponse, toApiError } from "./errors";

test("error of Connect has code, message, position, pause and trace", () => {
  const message = 'regular expression "(" at character 5: a ( closes no group';
  const headers = { "Retry-After": "7", traceresponse: `00-${"ab".repeat(16)}-0102030405060708-01` };
  const response = new Response("", { status: 400, headers });
  const error = errorFromResponse(response, JSON.stringify({ code: "invalid_argument", message }));
  expect(error).toMatchObject({
    status: 400,
    code: "invalid_argument",
    message,
    position: 5,
    retryAfterSeconds: 7,
  });
  expect(error.traceId).toBe("ab".repeat(16));
  expect(error.isRetryable()).toBe(false);
});

test("page of a proxy is an error without its markup", () => {
  const error = errorFromResponse(new Response("", { status: 502 }), "<html>bad gateway</html>");
  expect(error.isUnreachable()).toBe(true);
  expect(error.message).toContain("502");
});

test("overload is retried", () => {
  for (const status of [429, 503]) {
    expect(errorFromResponse(new Response("", { status }), "{}").isRetryable()).toBe(true);
  }
});

test("any thrown value becomes an error", () => {
  const error = new ApiError({ status: 500, code: "internal", message: "x" });
  expect(toApiError(error)).toBe(error);
  expect(toApiError(new RangeError("columns differ")).message).toBe("columns differ");
  expect(toApiError("text").code).toBe("invalid_response");
});
