//! One profile in the form that language SDKs send.
//!
//! The request's parameters say whose profile it is; the body is pprof, a form with pprof in it, or folded text.
//! The statuses of refusals are those that SDKs know: 400 for parameters, 422 for a body that cannot be read.

mod convert;
mod form;
mod metric;
mod name;
mod request;
mod text;
mod time;

use athanor_chassis::{Activity, Code, Status, TenantId};
use athanor_profile::normalise::series;
use athanor_profile::upload::Upload;
use bytes::Bytes;

pub use form::{Form, FormRefused, Part};
pub use metric::metric_of;
pub use name::{AppName, NameRefused};
pub use request::{Request, RequestRefused};

use crate::distributor::{Distributor, Receipt, Stored, label_limits};
use crate::push::{labels_refused, of_content};
use convert::{Bounds, Converted, Door, convert};

/// HTTP's word for a body that was understood and cannot be taken.
const UNPROCESSABLE: u16 = 422;
/// What a request that cannot be read is counted as.
const MALFORMED: &str = "malformed_request";

/// A refusal in the words of this door: a few of its statuses are no one's else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}")]
pub struct Refused {
    /// The HTTP status.
    pub http: u16,
    /// `code` in the body of the answer.
    pub code: &'static str,
    /// The sentence, and when to come back.
    pub status: Status,
}

impl Distributor {
    /// Stores the profile of one request. A body with nothing in it is fine: SDKs send such when nothing ran.
    pub async fn ingest(
        &self,
        tenant: &TenantId,
        query: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Receipt, Refused> {
        let bytes = body.len();
        let counted = self.counts.of(tenant);
        counted.came(1, bytes);
        let settled = self.ingest_one(tenant, query, content_type, body).await;
        match settled {
            Ok(stored) => {
                let mut receipt = Receipt::default();
                receipt.count(stored);
                counted.settled(&Ok(stored), bytes);
                Ok(receipt)
            }
            Err(refused) => {
                counted.refused(&refused.status, 1, bytes);
                Err(refused)
            }
        }
    }

    async fn ingest_one(
        &self,
        tenant: &TenantId,
        query: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Stored, Refused> {
        let limits = self.deps.overrides.of(tenant);
        let request = Request::parse(query, content_type, self.deps.clock.wall()).map_err(|refused| {
            Refused::plain(Status::new(Code::Invalid, refused.to_string()).because(MALFORMED))
        })?;
        let _admitted = self.admit(tenant, body.len(), &limits).map_err(Refused::plain)?;

        let bounds = Bounds::of(&limits);
        let converted =
            self.deps.compute.run_as(Activity::Body, move || convert(&request, &body, &bounds)).await;
        let converted = converted.map_err(|error| {
            Refused::plain(Status::new(Code::Internal, format!("not converted: {error}")))
        })??;
        let Converted { door, labels, time_nanos, pprof } = converted;
        let series = series(labels, &label_limits(&limits))
            .map_err(|refused| Refused::at(door, labels_refused(&refused)))?;
        let Some(pprof) = pprof else { return Ok(Stored::NOTHING) };
        let (sent, labels) = (series.sent, series.labels);
        let upload = Upload { sent, labels, time_nanos, pprof, ..Upload::default() };
        let answer = self.append(tenant, vec![upload]).await.pop().unwrap_or(Ok(Stored::NOTHING));
        answer.map_err(|status| Refused::at(door, of_content(status)))
    }
}

// === impl Refused ===

impl Refused {
    /// As the table of codes has it.
    fn plain(status: Status) -> Self {
        Refused { http: status.code.http(), code: status.code.connect(), status }
    }

    /// A body that cannot be taken.
    fn unprocessable(status: Status) -> Self {
        Refused { http: UNPROCESSABLE, code: "unknown", status }
    }

    /// What a shard or the label rules refuse: SDKs that send text know it as 400, those that send pprof as 422.
    fn at(door: Door, status: Status) -> Self {
        match (door, status.code) {
            (Door::Pprof, Code::Invalid) => Refused::unprocessable(status),
            _ => Refused::plain(status),
        }
    }
}
