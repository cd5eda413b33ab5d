//! The lines of a function on the wire.

use athanor_chassis::Status;
use athanor_profile::lines;
use athanor_proto::athanor::v1::{LineRow, LinesRequest, LinesResponse};

use super::super::named;
use super::super::wire::{asked, rows};
use crate::{Querier, Reader};

/// What a row takes beside its file's name.
const ROW: usize = 192;

impl Querier {
    /// What each line of a function weighs.
    pub async fn lines(&self, reader: &Reader, request: LinesRequest) -> Result<LinesResponse, Status> {
        self.again(reader, "Lines", request, |request| self.lines_of(reader, request)).await
    }

    async fn lines_of(&self, reader: &Reader, request: LinesRequest) -> Result<LinesResponse, Status> {
        let (asked, page) = (asked(self, request.query, "query").await?, rows(request.page)?);
        let function = named(request.function)?;
        let unit = asked.unit();
        let merged = self.merged(reader, asked.selection, asked.stacks).await?;
        let (querier, held) = (self.clone(), reader.clone());
        self.shape(reader, move || {
            let all = lines::of_function(&merged.dictionary, &merged.totals, &function);
            let count = all.lines.len() as u64;
            let shown = || page.of(&all.lines);
            querier.make_room(&held, shown().map(|(place, _)| ROW + place.file.len()).sum())?;
            let rows = shown().map(|(place, weights)| LineRow {
                file: place.file.to_owned(),
                line: place.line,
                own: weights.flat,
                total: weights.cum,
            });
            let (own, total) = (all.function.flat, all.function.cum);
            Ok(LinesResponse { own, total, unit, count, rows: rows.collect(), missing: held.lacks() })
        })
        .await?
    }
}
