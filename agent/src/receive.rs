//! Receiver of profiles that clients push: push.v1, `/ingest` and OpenTelemetry exports.
//!
//! ```text
//!  client ─► routes ─┬─► push ────────────────────────┐
//!                    ├─► ingest ─► ingest_query ──────┼─► sink (durable) ─► response 200
//!                    └─► otlp ───► otlp_rewrite ──────┘
//!                          ▲              ▲
//!                     tenant rules   labels of the sender, identity
//! ```
//!
//! Bytes of profiles pass through unchanged. The receiver adds configured labels and those of the pod or
//! container that owns the address of the client. Added labels describe the sender and never the agent, and never
//! replace a label of the client: labels are part of a profile's identity, so a retry through another agent must
//! be the same upload.
//!
//! For the same reason a profile gets an id and a time only if it has neither [`received_identity`]. Requests are
//! never combined. A request whose profiles belong to several tenants becomes one upload per tenant.

mod failure;
mod ingest;
pub mod ingest_query;
mod metrics;
mod otlp;
mod otlp_names;
mod otlp_rewrite;
mod push;
mod received_identity;
mod receiver;
mod receiver_state;
mod sender_labels;
mod tenant_choice;
mod wire;

pub use failure::ReceiveError;
pub use metrics::{RECEIVE_METRICS, ReceiveForm, ReceiveOutcome, ReceiveStats};
pub use receiver::{ProfileReceiver, ReceiverParams, receive_collector};
pub use sender_labels::PeerLabels;

#[cfg(test)]
mod tests;
