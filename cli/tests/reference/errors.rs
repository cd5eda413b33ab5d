//! Page of the error codes, generated from their table.

use std::fmt::Write;

use athanor_chassis::ErrorCode;

const INTRODUCTION: &str = "\
# Error codes

This page lists the error codes of all interfaces. It is generated from the code by `just docs`.
Read it to find out whether a client may retry a request.

## Codes

| code | HTTP | gRPC | Connect | retry | meaning | action of the client |
|---|---|---|---|---|---|---|
";

const RESPONSES: &str = "
## Responses

- Connect and plain HTTP send the HTTP status with a JSON body: `{\"code\": \"invalid_argument\", \"message\": \"…\"}`. The
  body contains the code of Connect.
- gRPC and gRPC-Web send `grpc-status` and `grpc-message`.
- `Retry-After` is the number of seconds to wait before a retry. Plain HTTP and Connect send it if the time is known.
- Some endpoints of other products use the status that their clients expect, such as 422 instead of 400.
- Commands exit with a code for each error: [cli.md](cli.md#exit-codes).

The message names the cause, the value, the limit with its setting, and the way out. Programs use the code only.
";

/// Description of an error code for clients.
struct CodeDescription {
    meaning: &'static str,
    client_action: &'static str,
}

/// Returns the whole page.
pub fn render_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for code in ErrorCode::ALL {
        let CodeDescription { meaning, client_action } = describe(code);
        let retry = if code.is_retryable() { "yes" } else { "no" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| `{code}` | {} | {} {} | `{}` | {retry} | {meaning} | {client_action} |",
            code.http_status(),
            code.grpc_status(),
            grpc_name(code),
            code.connect_code(),
        );
    }
    page + RESPONSES
}

/// Returns the name of the gRPC status, which Connect spells in lower case with one exception.
fn grpc_name(code: ErrorCode) -> String {
    match code.connect_code() {
        "canceled" => "CANCELLED".to_owned(),
        name => name.to_uppercase(),
    }
}

#[rustfmt::skip]
fn describe(code: ErrorCode) -> CodeDescription {
    let described = |meaning, client_action| CodeDescription { meaning, client_action };
    match code {
        ErrorCode::Invalid => described(
            "The request is invalid, for example its selector or its profile.",
            "Correct the request. A client that sends profiles drops this one.",
        ),
        ErrorCode::Unauthenticated => described(
            "The request has no valid credentials.",
            "Send the tenant, the user or the token that the server requires.",
        ),
        ErrorCode::PermissionDenied => described(
            "The credentials are valid, but this operation is not allowed.",
            "Use other credentials, or another address of the server.",
        ),
        ErrorCode::NotFound => described("The named object does not exist.", "Correct the name."),
        ErrorCode::Conflict => described(
            "The object already exists, or changed since the client read it.",
            "Read the object, then decide whether to send the change again.",
        ),
        ErrorCode::Precondition => described(
            "The object is not in the state that the operation requires.",
            "Do the operation first that the message names.",
        ),
        ErrorCode::TooLarge => described(
            "An item exceeds a size limit.",
            "Split the item, or raise the limit that the message names.",
        ),
        ErrorCode::Exhausted => described(
            "A rate, a quota or a queue is exhausted.",
            "Retry with backoff, not before `Retry-After`.",
        ),
        ErrorCode::NotLeader => described(
            "Another node leads the shard or the catalog.",
            "Retry with backoff. Only nodes receive this code.",
        ),
        ErrorCode::Unavailable => described(
            "The service is temporarily unavailable.",
            "Retry with backoff, not before `Retry-After`.",
        ),
        ErrorCode::Deadline => described(
            "The operation timed out.",
            "Retry with backoff. A query needs a longer timeout or a narrower selection.",
        ),
        ErrorCode::Cancelled => described("The client canceled the request.", "Nothing."),
        ErrorCode::Unimplemented => described(
            "This server does not implement the operation.",
            "Use another operation, or a node with the role that the message names.",
        ),
        ErrorCode::Internal => described(
            "The server has a bug, or its environment has a fault.",
            "Do not retry. Report the error with the log of the server.",
        ),
        ErrorCode::DataLoss => described(
            "Stored bytes are lost or damaged.",
            "Do not retry. An operator follows [recovery.md](../operate/recovery.md).",
        ),
    }
}
