//! Queries in the background, on the wire.

use athanor_chassis::{Code, Status};
use athanor_proto::google::v1::{Function, Label, Line, Location, Mapping, Profile, Sample};
use athanor_proto::querier::v1::{
    AsyncQueryResponse, AsyncQueryStatus, AsyncQueryType, Level, SelectMergeStacktracesRequest,
    SelectMergeStacktracesResponse,
};
use prost::Message;

use super::{State, unknown};
use crate::{Querier, Reader};

/// An answer as it is kept: what it says takes a fraction of what it takes in memory.
pub(crate) struct Kept {
    bytes: Vec<u8>,
    /// What it takes in memory when it is shown again.
    shown: usize,
}

impl Kept {
    fn of(answer: &SelectMergeStacktracesResponse) -> Self {
        Kept { bytes: answer.encode_to_vec(), shown: in_memory(answer) }
    }
}

impl Querier {
    /// Merged stacks in the format that was asked for; or a query for them that runs in the background, or how far one is.
    pub async fn select_merge_stacktraces(
        &self,
        reader: &Reader,
        mut request: SelectMergeStacktracesRequest,
    ) -> Result<SelectMergeStacktracesResponse, Status> {
        let asked = request.r#async.take().unwrap_or_default();
        if !asked.request_id.is_empty() {
            return self.look(reader, asked.request_id).await;
        }
        let is_forced = asked.r#type == AsyncQueryType::Force as i32;
        let Some(background) = self.background.as_ref().filter(|_| is_forced) else {
            let bytes = request.encode_to_vec();
            let answer = async { self.stacktraces(reader, self.stacks(reader, request).await?).await };
            return self.again(reader, "SelectMergeStacktraces", &bytes, answer).await;
        };
        // What is wrong is told at once.
        let stacks = self.stacks(reader, request).await?;
        let querier = self.clone();
        let query = |reader: Reader| async move {
            let answer = querier.stacktraces(&reader, stacks).await?;
            let kept = querier.shape(&reader, move || Kept::of(&answer)).await?;
            let held = reader.keep(kept.bytes.len());
            querier.make_room(&reader, kept.bytes.len() - held)?;
            Ok(kept)
        };
        let request_id = background.begin(reader.afresh(), query)?;
        Ok(progress(request_id, AsyncQueryStatus::InProgress, String::new()))
    }

    /// How far a query in the background is.
    async fn look(
        &self,
        reader: &Reader,
        request_id: String,
    ) -> Result<SelectMergeStacktracesResponse, Status> {
        let Some(background) = &self.background else { return Err(unknown(&request_id)) };
        match background.look(reader, &request_id)? {
            State::Running => Ok(progress(request_id, AsyncQueryStatus::InProgress, String::new())),
            State::Failed(status) => Ok(progress(request_id, AsyncQueryStatus::Failure, status.message)),
            State::Done(kept) => {
                // As it is, and as bytes on its way.
                self.make_room(reader, kept.shown.saturating_add(kept.bytes.len()))?;
                let read = move || SelectMergeStacktracesResponse::decode(kept.bytes.as_slice());
                let unreadable = |error: prost::DecodeError| Status::new(Code::Internal, error.to_string());
                let mut answer = self.compute(read).await?.map_err(unreadable)?;
                answer.r#async = progress(request_id, AsyncQueryStatus::Success, String::new()).r#async;
                Ok(answer)
            }
        }
    }
}

fn progress(
    request_id: String,
    status: AsyncQueryStatus,
    error_message: String,
) -> SelectMergeStacktracesResponse {
    let of = AsyncQueryResponse { request_id, status: status as i32, error_message };
    SelectMergeStacktracesResponse { r#async: Some(of), ..SelectMergeStacktracesResponse::default() }
}

/// What an answer takes in memory.
fn in_memory(answer: &SelectMergeStacktracesResponse) -> usize {
    let graph = answer.flamegraph.iter().map(|graph| {
        let level = |level: &Level| size_of::<Level>() + size_of_val(level.values.as_slice());
        texts(&graph.names) + graph.levels.iter().map(level).sum::<usize>()
    });
    let profile = answer.pprof.iter().filter_map(|pprof| pprof.profile.as_ref()).map(of_profile);
    graph.chain(profile).sum::<usize>() + answer.tree.len() + answer.dot.len()
}

fn of_profile(profile: &Profile) -> usize {
    let sample = |sample: &Sample| {
        let ids = sample.location_id.len() + sample.value.len();
        size_of::<Sample>() + ids * size_of::<u64>() + sample.label.len() * size_of::<Label>()
    };
    let location = |location: &Location| size_of::<Location>() + location.line.len() * size_of::<Line>();
    profile.sample.iter().map(sample).sum::<usize>()
        + profile.location.iter().map(location).sum::<usize>()
        + profile.function.len() * size_of::<Function>()
        + profile.mapping.len() * size_of::<Mapping>()
        + texts(&profile.string_table)
}

fn texts(texts: &[String]) -> usize {
    texts.iter().map(|text| size_of::<String>() + text.len()).sum()
}
