//! Debug information: calls of Parca and of Pyroscope, and the two that carry a file, which are read while they come.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::clock::Elapsed;
use athanor_chassis::{ByteSize, Code, Status, TenantId};
use athanor_symbolizer::{Debuginfo, PART};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::{any, post};
use bytes::Bytes;
use futures::stream::{Stream, unfold};
use http_body_util::BodyExt;

use super::body::{Held, broken};
use super::caller;
use super::encoding::{Encoding, STREAMS, json_error_with};
use super::parca::with_gateway;
use super::plain::Answering;
use super::routes::{Hall, call, counted, writer};
use super::unary;
use super::weight::Admits;

/// The largest message of an upload; agents send chunks of a mebibyte.
const MESSAGE: ByteSize = ByteSize::mib(5);
/// What an upload takes in memory: the part that waits, and the message that came last.
const ROOM: u64 = PART as u64 + MESSAGE.get();
/// What plain HTTP calls a file that nobody waits for.
const PRECONDITION_FAILED: u16 = 412;

/// How much of a file that is refused is read and thrown away, and for how long: else who sends it over HTTP/1.1 finds the
/// connection broken, and never hears why.
const THROWN_AWAY: usize = 16 << 20;
const THROWN_WITHIN: Duration = Duration::from_secs(5);

/// Adds all of it.
pub(super) fn routes(router: Router, hall: &Arc<Hall>) -> Router {
    let router = parca(router, hall);
    let file = {
        let hall = Arc::clone(hall);
        move |request: Request<Body>| upload_file(Arc::clone(&hall), request)
    };
    let path = "/debuginfo.v1alpha1.DebuginfoService/Upload/{gnu_build_id}";
    let mut router = router.route(path, counted(hall, path, post(file)));
    macro_rules! calls {
        ($($path:literal => $method:ident),* $(,)?) => {
            $(router = call(router, hall, $path, (writer, |_, _| Admits::QUERY), |hall: Arc<Hall>, tenant: TenantId, request| async move {
                hall.services.debuginfo()?.$method(&tenant, request).await
            });)*
        };
    }
    calls!(
        "/debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload" => should_initiate_upload,
        "/debuginfo.v1alpha1.DebuginfoService/UploadFinished" => upload_finished,
        "/debuginfo.v1alpha1.DebuginfoService/ListDebuginfo" => list_debuginfo,
        "/debuginfo.v1alpha1.DebuginfoService/DeleteDebuginfo" => delete_debuginfo,
    );
    router
}

/// Calls of Parca.
fn parca(router: Router, hall: &Arc<Hall>) -> Router {
    let stream = {
        let hall = Arc::clone(hall);
        move |request: Request<Body>| upload(Arc::clone(&hall), request)
    };
    let path = "/parca.debuginfo.v1alpha1.DebuginfoService/Upload";
    let mut router = router.route(path, counted(hall, path, any(stream)));
    macro_rules! calls {
        ($($path:literal, $plain:literal => $method:ident),* $(,)?) => {
            $(router = with_gateway(router, hall, [$path, $plain], (writer, |_, _| Admits::QUERY), |hall: Arc<Hall>, tenant: TenantId, request| async move {
                hall.services.debuginfo()?.$method(&tenant, request).await
            });)*
        };
    }
    calls!(
        "/parca.debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload", "/shouldinitiateupload" => should_initiate,
        "/parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload", "/initiateupload" => initiate,
        "/parca.debuginfo.v1alpha1.DebuginfoService/MarkUploadFinished", "/markuploadfinished" => mark_finished,
    );
    router
}

/// A call with many messages.
fn upload(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    Box::pin(async move {
        let (encoding, parts, body) = match unary::entered(request, Encoding::of_stream, STREAMS) {
            Ok(entered) => entered,
            Err(refused) => return *refused,
        };
        let answered = async {
            let wait = unary::deadline(&parts.headers)?;
            let tenant = caller::writer(&parts.headers, hall.door.multitenancy)?;
            let debuginfo = hall.services.debuginfo()?;
            let messages = encoding.incoming(&parts.headers, body, MESSAGE)?;
            let taken = debuginfo.upload(&tenant, messages);
            let response = in_time(&hall, debuginfo, &tenant, wait, taken).await?;
            encoding.answer(&hall.door, &parts.headers, response).await
        };
        answered.await.unwrap_or_else(|status: Status| encoding.error(&status))
    })
}

/// A file as the body of a plain request.
fn upload_file(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    Box::pin(async move {
        let (parts, mut body) = request.into_parts();
        let answered = async {
            let wait = unary::deadline(&parts.headers)?;
            let tenant = caller::writer(&parts.headers, hall.door.multitenancy)?;
            let debuginfo = hall.services.debuginfo()?;
            let id = parts.uri.path().rsplit('/').next().unwrap_or_default();
            let taken = debuginfo.upload_file(&tenant, id, pieces(&mut body));
            in_time(&hall, debuginfo, &tenant, wait, taken).await
        };
        match answered.await {
            Ok(()) => Response::new(Body::empty()),
            Err(status) => {
                let _ = hall.door.clock.within(THROWN_WITHIN, throw_away(&mut body)).await;
                let is_unwanted = status.code == Code::Precondition;
                let http = if is_unwanted { PRECONDITION_FAILED } else { status.code.http() };
                json_error_with(&status, status.code.connect(), http)
            }
        }
    })
}

/// Takes a file while there is room and time for it.
async fn in_time<T>(
    hall: &Hall,
    debuginfo: &Debuginfo,
    tenant: &TenantId,
    wait: Option<Duration>,
    taken: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let mut held = Held::default();
    hall.door.enter(&mut held, ROOM).inspect_err(|status| debuginfo.refused(status))?;
    let longest = debuginfo.longest(tenant);
    let wait = wait.map_or(longest, |wait| wait.min(longest));
    let late = |elapsed: Elapsed| {
        let message = format!(
            "the file was {elapsed}, by the client's deadline or limits.debuginfo_upload_max_duration: send it over a faster \
             connection, or raise the limit"
        );
        let status = Status::new(Code::Deadline, message).because("debuginfo_too_slow");
        debuginfo.refused(&status);
        Err(status)
    };
    hall.door.clock.within(wait, taken).await.unwrap_or_else(late)
}

/// Reads on, but for what is too long.
async fn throw_away(body: &mut Body) {
    let mut length = 0;
    while let Some(Ok(frame)) = body.frame().await
        && length < THROWN_AWAY
    {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// A body, piece by piece; an error is the last one.
fn pieces(body: &mut Body) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    unfold((Some(body), 0), |(body, mut length)| async move {
        let body = body?;
        loop {
            match body.frame().await? {
                Ok(frame) => {
                    let Ok(piece) = frame.into_data() else { continue };
                    length += piece.len() as u64;
                    return Some((Ok(piece), (Some(body), length)));
                }
                Err(error) => return Some((Err(broken(&error, length)), (None, length))),
            }
        }
    })
}
