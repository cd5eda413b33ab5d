//! Stream of samples: reads a slice when its bytes are wanted.

use std::collections::BTreeSet;

use athanor_arrow_format::{ArrowStreamError, SampleProfile, SampleValue, SampleWriter, StreamMetadata};
use athanor_chassis::requests::result_budget::ResultReservation;
use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_query::{PartialResult, ProfilePosition, ProfileQuery, QueryKind, SampleList, SamplesQuery};
use bytes::Bytes;

use super::SamplesPlan;
use super::cursor::{decode_cursor, encode_cursor};
use super::pages::{MAX_PAGE_ROWS, PageCursor, PageSlice};
use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate;

/// Memory of a stream: a batch of rows, a dictionary in two forms, and the bytes that the client has not taken.
const STREAM_BYTES: usize = 32 << 20;

/// Stream of samples in Arrow's IPC format.
pub struct SampleStream {
    executor: QueryExecutor,
    reader: QueryContext,
    plan: SamplesPlan,
    pages: PageCursor,
    /// Number of rows until the limit of the request.
    remaining_rows: u64,
    writer: Option<SampleWriter>,
    warnings: BTreeSet<String>,
    first_bytes: Bytes,
    _memory: ResultReservation,
}

/// Starts a stream. Reads slices until the first row, so that the schema and the response's head have the warnings so
/// far.
pub(super) async fn start(
    executor: &QueryExecutor,
    reader: &QueryContext,
    plan: SamplesPlan,
    profiles: u64,
) -> Result<SampleStream, Status> {
    let now = executor.deps.clock.wall();
    let after = match plan.cursor.as_str() {
        "" => None,
        cursor => Some(decode_cursor(cursor, plan.query_hash, now)?),
    };
    let memory = executor.response_budget_for(reader).reserve(STREAM_BYTES)?;
    let mut stream = SampleStream {
        executor: executor.clone(),
        reader: reader.clone(),
        pages: PageCursor::new(plan.time(), after, profiles),
        remaining_rows: plan.limit,
        writer: None,
        warnings: reader.warnings().into_iter().collect(),
        first_bytes: Bytes::new(),
        _memory: memory,
        plan,
    };
    let page = stream.next_page().await?;
    stream.open_writer()?;
    if let Some(page) = page {
        stream.write_page(page).await?;
    }
    stream.first_bytes = stream.take_bytes();
    reader.add_warnings(stream.warnings.iter().cloned().collect());
    Ok(stream)
}

impl SampleStream {
    /// Returns the next bytes of the stream. None after its end.
    pub async fn next_bytes(&mut self) -> Result<Option<Bytes>, Status> {
        if !self.first_bytes.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first_bytes)));
        }
        while self.writer.is_some() {
            let Some(page) = self.next_page().await? else { return self.finish().await };
            self.write_page(page).await?;
            let bytes = self.take_bytes();
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Reads slices until one has samples. Returns none at the end of the range or of the limit.
    async fn next_page(&mut self) -> Result<Option<ReadPage>, Status> {
        while self.remaining_rows > 0 {
            let Some(slice) = self.pages.next_slice() else { break };
            let page = self.read_page(slice).await?;
            if page.list.sample_count() > 0 {
                return Ok(Some(page));
            }
            page.reader.finish_request(None);
            self.pages.advance(slice, &page.list);
        }
        Ok(None)
    }

    fn take_bytes(&mut self) -> Bytes {
        self.writer.as_mut().map(SampleWriter::take_bytes).unwrap_or_default()
    }

    fn open_writer(&mut self) -> Result<(), Status> {
        let resolution = self.reader.resolution().unwrap_or_default().to_string();
        let warnings = self.warnings.iter().cloned().collect();
        let metadata = StreamMetadata { resolution, warnings, ..self.plan.metadata.clone() };
        let clock: Clock = self.executor.deps.clock.clone();
        let query_hash = self.plan.query_hash;
        let encode = move |position| encode_cursor(query_hash, clock.wall(), position);
        let writer = SampleWriter::new(self.plan.columns.clone(), &metadata, Box::new(encode));
        self.writer = Some(writer.map_err(|error| write_failure(&error))?);
        Ok(())
    }

    /// Reads the samples of a slice. Each slice is a query with a deadline and a charge of its own.
    async fn read_page(&mut self, slice: PageSlice) -> Result<ReadPage, Status> {
        let page_reader = self.reader.fork_page();
        let PageSlice { time, first } = slice;
        let mut selection = self.plan.selection.clone();
        selection.time = time;
        let samples = SamplesQuery {
            stacks: self.plan.stacks.clone(),
            first,
            max_rows: self.max_page_rows(first),
            spans: self.plan.has_spans(),
        };
        let what = QueryKind::Samples(samples);
        let query = ProfileQuery { selection, what, bounds: validate::default_result_limits() };
        let result = run_query(&self.executor, &page_reader, query).await;
        self.warnings.extend(page_reader.warnings());
        if let Some(resolution) = page_reader.resolution() {
            self.reader.add_resolution(&resolution);
        }
        let result = result.inspect_err(|status| drop(page_reader.finish_request(Some(status))));
        match result? {
            PartialResult::Samples(list) => Ok(ReadPage { slice, list, reader: page_reader }),
            _ => Err(unexpected_result_type()),
        }
    }

    /// Returns the maximum number of samples of a page. A filter of stacks counts after it, so it may leave few rows.
    fn max_page_rows(&self, first: ProfilePosition) -> u64 {
        if self.plan.stacks.is_empty() {
            MAX_PAGE_ROWS.min(self.remaining_rows.saturating_add(self.pages.skipped_rows(first)))
        } else {
            MAX_PAGE_ROWS
        }
    }

    /// Writes the samples of a slice, and moves behind it.
    async fn write_page(&mut self, page: ReadPage) -> Result<(), Status> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let warnings: Vec<String> = self.warnings.iter().cloned().collect();
        let mut pages = self.pages.clone();
        let limit = self.remaining_rows;
        let page_reader = page.reader.clone();
        let write = move || {
            writer.set_warnings(&warnings);
            let rows = write_list(&mut writer, &page.list, &pages, limit)?;
            pages.advance(page.slice, &page.list);
            Ok::<_, ArrowStreamError>((writer, pages, rows))
        };
        let written = self.executor.render_on_pool(&page_reader, write).await;
        page_reader.finish_request(written.as_ref().err());
        let (writer, pages, rows) = written?.map_err(|error| write_failure(&error))?;
        self.writer = Some(writer);
        self.pages = pages;
        self.remaining_rows -= rows;
        Ok(())
    }

    async fn finish(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(mut writer) = self.writer.take() else { return Ok(None) };
        let warnings: Vec<String> = self.warnings.iter().cloned().collect();
        writer.set_warnings(&warnings);
        let finished =
            self.executor.render_on_pool(&self.reader.fork_page(), move || writer.finish()).await?;
        Ok(Some(finished.map_err(|error| write_failure(&error))?))
    }
}

/// Samples of a slice. The context holds their memory.
struct ReadPage {
    slice: PageSlice,
    list: Box<SampleList>,
    reader: QueryContext,
}

/// Writes the profiles of a list, up to the limit of rows. Returns the number of written rows.
fn write_list(
    writer: &mut SampleWriter,
    list: &SampleList,
    pages: &PageCursor,
    limit: u64,
) -> Result<u64, ArrowStreamError> {
    let mut profiles = writer.with_dictionary(&list.dictionary);
    let mut rows = 0;
    for (profile, samples) in list.profiles() {
        if rows >= limit {
            break;
        }
        let samples: Vec<SampleValue> = samples
            .map(|sample| SampleValue { stack: sample.stack, value: sample.value, span: sample.span })
            .collect();
        let skip = pages.skipped_rows(profile.position());
        let (id, time, labels) = (profile.id, profile.time, &profile.labels);
        let profile = SampleProfile { id, time, labels, samples: &samples };
        rows += profiles.write_profile(&profile, skip, limit - rows)?;
    }
    Ok(rows)
}

fn write_failure(error: &ArrowStreamError) -> Status {
    let code = match error {
        ArrowStreamError::StackTooLarge { .. } => ErrorCode::TooLarge,
        ArrowStreamError::SumTooLarge => ErrorCode::Invalid,
        _ => ErrorCode::Internal,
    };
    Status::new(code, format!("failed to write samples as arrow: {error}"))
}
