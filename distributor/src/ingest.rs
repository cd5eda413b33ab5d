//! Profiles in the forms that language SDKs send.
//!
//! The request's parameters say whose profile it is; the body is pprof, a form with pprof in it, text, or what other tools write.
//! The statuses of refusals are those that SDKs know: 400 for parameters, 422 for a body that cannot be read.

mod convert;
mod form;
mod metric;
mod name;
mod request;
mod text;
mod time;

use athanor_chassis::{Activity, Code, Limits, Status, TenantId, Timestamp};
use athanor_profile::normalise::{DELTA, LabelLimits, Series, series};
use athanor_profile::upload::Upload;
use bytes::Bytes;

pub(crate) use convert::{recording_bounds, recording_way_out};
pub use form::{Form, FormRefused, Part};
pub use metric::metric_of;
pub use name::{AppName, NameRefused};
pub use request::{Request, RequestRefused};

use crate::distributor::{Distributor, Receipt, Stored, label_limits};
use crate::push::{Place, labels_refused, report};
use convert::{Bounds, Converted, Door, Made, convert};

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

/// The pprof that would be stored of a body: what all formats become, without profiles that are refused alone. `query` and `content_type` are those of the request.
pub fn profiles(
    query: &str,
    content_type: Option<&str>,
    body: &Bytes,
    limits: &Limits,
) -> Result<Vec<Bytes>, Refused> {
    let request = Request::parse(query, content_type, Timestamp::EPOCH).map_err(malformed)?;
    let converted = convert(&request, body.clone(), &Bounds::of(limits))?;
    Ok(converted.made.into_iter().filter_map(|made| made.pprof.ok().flatten()).collect())
}

fn malformed(error: RequestRefused) -> Refused {
    Refused::plain(Status::new(Code::Invalid, error.to_string()).because(MALFORMED))
}

impl Distributor {
    /// Stores the profiles of one request, every one that can be stored. A body with nothing in it is fine: SDKs send such
    /// when nothing ran.
    pub async fn ingest(
        &self,
        tenant: &TenantId,
        query: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Receipt, Refused> {
        let (bytes, counted) = (body.len(), self.counts.of(tenant));
        let refused = |refused: &Refused| {
            counted.came(1, bytes);
            counted.refused(&refused.status, 1, bytes);
        };
        let limits = self.deps.overrides.of(tenant);
        let request = Request::parse(query, content_type, self.deps.clock.wall())
            .map_err(malformed)
            .inspect_err(refused)?;
        let mut admitted = self.admit(tenant, bytes, &limits).map_err(Refused::plain).inspect_err(refused)?;
        let converted = self.converted(tenant, &limits, request, body).await.inspect_err(refused)?;
        // The body itself is let go of where it is not what is stored.
        let made: usize = converted.made.iter().map(Made::bytes).sum();
        self.widen(&mut admitted, made.saturating_sub(bytes)).map_err(Refused::plain).inspect_err(refused)?;

        let (door, made) = (converted.door, &converted.made);
        counted.came(made.len(), bytes);
        if let Err(status) = self.few(made.len()) {
            counted.refused(&status, made.len(), bytes);
            return Err(Refused::plain(status));
        }
        let share = bytes / made.len().max(1);
        let places = (1..).zip(made).map(|(profile, made)| Place {
            series: 1,
            profile,
            name: made.name.clone(),
            bytes: share,
        });
        let places: Vec<Place> = places.collect();
        let refused = made.iter().find_map(|made| made.pprof.as_ref().err());
        let refused = refused.map(|refused| (refused.http, refused.code));
        let outcomes = self.store_made(tenant, converted, &label_limits(&limits)).await;
        outcomes.iter().for_each(|outcome| counted.settled(outcome, share));
        self.charge_decompressed(tenant, &limits, bytes, outcomes.iter().flatten());
        report(places.into_iter().zip(outcomes).collect()).map_err(|status| match refused {
            // What could not be made of the body says by its status what was wrong with it.
            Some((http, code)) if status.code == Code::Invalid => Refused { http, code, status },
            _ => Refused::at(door, status),
        })
    }

    /// What came of a body.
    async fn converted(
        &self,
        tenant: &TenantId,
        limits: &Limits,
        request: Request,
        body: Bytes,
    ) -> Result<Converted, Refused> {
        let bounds = Bounds::of(limits);
        let compute = self.deps.compute.for_tenant(tenant);
        let converted = compute.run_as(Activity::Body, move || convert(&request, body, &bounds)).await;
        converted
            .map_err(|error| Refused::plain(Status::new(Code::Internal, format!("not converted: {error}"))))?
    }

    /// What became of each profile, in their order.
    async fn store_made(
        &self,
        tenant: &TenantId,
        converted: Converted,
        limits: &LabelLimits,
    ) -> Vec<Result<Stored, Status>> {
        let Converted { made, time_nanos, .. } = converted;
        let mut outcomes: Vec<Result<Stored, Status>> = Vec::with_capacity(made.len());
        let (mut uploads, mut places) = (Vec::new(), Vec::new());
        for (place, Made { mut labels, client_id, pprof, without_stack, .. }) in made.into_iter().enumerate()
        {
            outcomes.push(Ok(Stored::NOTHING.without(without_stack)));
            // Clients of this door send what is to be stored, but where they say that it counts since they began.
            if !labels.iter().any(|(name, _)| name == DELTA) {
                labels.push((DELTA.to_owned(), "false".to_owned()));
            }
            match (series(labels, limits), pprof) {
                (_, Err(refused)) => outcomes[place] = Err(refused.status),
                (Err(refused), _) => outcomes[place] = Err(labels_refused(&refused)),
                (Ok(Series { sent, labels }), Ok(Some(pprof))) => {
                    uploads.push(Upload { sent, labels, client_id, time_nanos, pprof, ..Upload::default() });
                    places.push((place, without_stack));
                }
                (Ok(_), Ok(None)) => {}
            }
        }
        let stored = self.append(tenant, uploads).await;
        for ((place, without_stack), stored) in places.into_iter().zip(stored) {
            outcomes[place] = stored.map(|stored| stored.without(without_stack));
        }
        outcomes
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
