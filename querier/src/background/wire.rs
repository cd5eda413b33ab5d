//! Queries in the background, on the wire.

use athanor_chassis::{Code, Status};
use athanor_proto::google::v1::{Function, Label, Line, Location, Mapping, Profile, Sample};
use athanor_proto::querier::v1::{
    AsyncQueryResponse, AsyncQueryStatus, AsyncQueryType, FunctionStats, Level, Sandwich,
    SelectMergeStacktracesRequest, SelectMergeStacktracesResponse,
};
use bytes::Bytes;
use prost::Message;

use super::{State, unknown};
use crate::elsewhere::{Errand, Ticket};
use crate::merge::Stacks;
use crate::{Querier, Reader};

/// An answer as it is kept: what it says takes a fraction of what it takes in memory.
pub(crate) struct Kept {
    bytes: Bytes,
    /// What it takes in memory when it is shown again.
    shown: usize,
}

/// How far a query in the background is, by the word of the node that runs it.
pub struct Looked {
    /// How far.
    pub progress: Progress,
    /// What its answer lacks, in words.
    pub missing: Vec<String>,
}

/// How far a query in the background is.
pub enum Progress {
    /// It runs.
    Running,
    /// Why there is no answer, in words.
    Failed(String),
    /// Its answer.
    Done(Answered),
}

/// An answer that is kept, or was sent by whoever keeps it.
pub struct Answered {
    /// The message, packed.
    pub bytes: Bytes,
    /// What it takes in memory when it is shown.
    pub shown: usize,
    /// Holds the room that it takes where it is kept.
    pub(crate) keeper: Option<Reader>,
}

impl Kept {
    fn of(answer: &SelectMergeStacktracesResponse) -> Self {
        Kept { bytes: answer.encode_to_vec().into(), shown: in_memory(answer) }
    }
}

impl Answered {
    /// One that was sent by another node. Whoever asked for it holds the room.
    pub fn sent(bytes: Bytes, shown: usize) -> Self {
        Self { bytes, shown, keeper: None }
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
        let background = self.standing.as_ref().map(|standing| &standing.background);
        let is_wanted = asked.r#type == AsyncQueryType::Force as i32;
        let Some(background) = background.filter(|background| is_wanted && background.is_on()) else {
            let answer = async |request| self.stacktraces(reader, self.stacks(reader, request).await?).await;
            return self.again(reader, "SelectMergeStacktraces", request, answer).await;
        };
        // What is wrong is told at once.
        let stacks = self.stacks(reader, request).await?;
        let querier = self.clone();
        let query = |reader: Reader| async move {
            let kept = querier.for_later(&reader, stacks).await;
            reader.ended(kept.as_ref().err());
            kept
        };
        let begun = background.begin(reader.afresh(), query);
        let ticket = begun.inspect_err(|status| drop(reader.afresh().ended(Some(status))))?;
        Ok(progress(ticket.to_string(), AsyncQueryStatus::InProgress, String::new()))
    }

    /// An answer for later.
    async fn for_later(&self, reader: &Reader, stacks: Stacks) -> Result<Kept, Status> {
        let answer = self.stacktraces(reader, stacks).await?;
        let kept = self.shape(reader, move || Kept::of(&answer)).await?;
        let held = reader.keep(kept.bytes.len());
        self.make_room(reader, kept.bytes.len() - held)?;
        Ok(kept)
    }

    /// How far a query in the background is, as the node says that runs it.
    async fn look(
        &self,
        reader: &Reader,
        request_id: String,
    ) -> Result<SelectMergeStacktracesResponse, Status> {
        let ticket = Ticket::parse(&request_id).ok_or_else(|| unknown(&request_id))?;
        let looked = match self.standing.as_ref().and_then(|standing| standing.other(ticket)) {
            Some(other) => {
                let errand = Errand { reader, room: &self.room, clock: &self.deps.clock };
                other.look(ticket, &errand).await?
            }
            None => self.look_here(reader, &request_id)?,
        };
        reader.miss(looked.missing);
        match looked.progress {
            Progress::Running => Ok(progress(request_id, AsyncQueryStatus::InProgress, String::new())),
            Progress::Failed(why) => Ok(progress(request_id, AsyncQueryStatus::Failure, why)),
            Progress::Done(Answered { bytes, shown, keeper }) => {
                // As it is, and as bytes on its way.
                self.make_room(reader, shown.saturating_add(bytes.len()))?;
                let read = move || {
                    let read = SelectMergeStacktracesResponse::decode(bytes);
                    drop(keeper);
                    read
                };
                let unreadable = |error: prost::DecodeError| Status::new(Code::Internal, error.to_string());
                let mut answer = self.compute(reader, read).await?.map_err(unreadable)?;
                answer.r#async = progress(request_id, AsyncQueryStatus::Success, String::new()).r#async;
                Ok(answer)
            }
        }
    }

    /// How far a query is that runs here: for another node, too, where the reader is whoever asks there.
    pub fn look_here(&self, reader: &Reader, id: &str) -> Result<Looked, Status> {
        let of = self.standing.as_ref().zip(Ticket::parse(id));
        let (standing, ticket) = of.ok_or_else(|| unknown(id))?;
        let (state, keeper) = standing.background.look(reader, ticket)?;
        let missing = keeper.all_missing();
        let progress = match state {
            State::Running => Progress::Running,
            State::Failed(status) => Progress::Failed(status.message),
            State::Done(kept) => Progress::Done(Answered {
                bytes: kept.bytes.clone(),
                shown: kept.shown,
                keeper: Some(keeper),
            }),
        };
        Ok(Looked { progress, missing })
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
    let functions = answer.functions.iter().flat_map(|table| &table.functions);
    let functions = functions.map(|function| size_of::<FunctionStats>() + function.name.len());
    let sandwich = answer.sandwich.iter().map(of_sandwich);
    graph.chain(profile).chain(functions).chain(sandwich).sum::<usize>()
        + answer.tree.len()
        + answer.dot.len()
}

fn of_sandwich(sandwich: &Sandwich) -> usize {
    let halves = [&sandwich.callers, &sandwich.callees].into_iter().flatten();
    texts(&sandwich.names) + halves.map(|half| size_of_val(half.nodes.as_slice())).sum::<usize>()
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
