//! `GET /athanor/export`: a query as a file that other tools open.

use athanor_chassis::Status;
use athanor_profile::series::SERVICE_NAME;
use athanor_profile::tree::Tree;
use athanor_profile::{Header, ProfileType, ValueType, folded, otlp, pprof, speedscope};
use athanor_query::{Ask, Merged, Partial, Profiles, Selection, What};

use super::{DOT, Parameters, Rendered, Side, asked_nodes, graph};
use crate::check::{self, MILLI, Nodes, invalid};
use crate::merge::{GraphStyle, header};
use crate::{Querier, Reader, mixed_up};

/// What a frame of a stack takes in a file: an id in memory, and as bytes.
const FRAME: usize = 16;
/// What it takes in a document of JSON, while that is put together.
const JSON_FRAME: usize = 64;
/// The longest number, with what stands around it.
const NUMBER: usize = 24;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Pprof,
    Folded,
    Speedscope,
    Dot,
    Otlp,
}

impl Format {
    fn parse(text: &str) -> Result<Format, Status> {
        match text {
            "" | "pprof" => Ok(Format::Pprof),
            "folded" | "collapsed" => Ok(Format::Folded),
            "speedscope" => Ok(Format::Speedscope),
            "dot" => Ok(Format::Dot),
            "otlp" => Ok(Format::Otlp),
            other => {
                Err(invalid(format!("format is {other:?}; write pprof, folded, speedscope, dot or otlp")))
            }
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Format::Pprof => "application/octet-stream",
            Format::Folded | Format::Dot => DOT,
            Format::Speedscope => "application/json",
            Format::Otlp => "application/x-protobuf",
        }
    }
}

impl Querier {
    /// All that a query selects as one file. Nothing is cut off, unless `maxNodes` says how much is wanted. `query` is what
    /// follows `?` in the URL.
    pub async fn export(&self, reader: &Reader, query: &str) -> Result<Rendered, Status> {
        let parameters = Parameters::parse(query)?;
        let format = Format::parse(parameters.first("format").unwrap_or_default())?;
        let asked = asked_nodes(&parameters).filter(|nodes| *nodes > 0);
        let cut = asked.map(|nodes| check::max_nodes(Some(nodes), &self.limits(reader))).transpose()?;
        let side = self.side(&parameters, ["query", "from", "until"]).await?;
        let body = match format {
            Format::Folded => self.export_folded(reader, side, cut).await?,
            Format::Dot => {
                let unit = side.profile_type.value.unit;
                let graph_style = GraphStyle { unit, max_nodes: check::graph_nodes(cut) };
                graph(reader, &self.call_graph(reader, side.selection, side.stacks, graph_style).await?)
            }
            _ => self.export_stacks(reader, side, format, cut).await?,
        };
        Ok(Rendered { content_type: format.content_type(), body })
    }

    async fn export_folded(
        &self,
        reader: &Reader,
        side: Side,
        cut: Option<Nodes>,
    ) -> Result<Vec<u8>, Status> {
        let mut tree = self.tree(reader, side.selection, side.stacks).await?;
        let (querier, held) = (self.clone(), reader.clone());
        self.shape(reader, move || {
            if let Some(Nodes { asked, most, .. }) = cut {
                tree.truncate_with_ties(asked, most);
            }
            querier.make_room(&held, folded_bytes(&tree))?;
            Ok(folded::write(&tree).into_bytes())
        })
        .await?
    }

    async fn export_stacks(
        &self,
        reader: &Reader,
        side: Side,
        format: Format,
        cut: Option<Nodes>,
    ) -> Result<Vec<u8>, Status> {
        let service = side.selection.selector.clone().take_equal(SERVICE_NAME);
        let (period, mut merged) = futures::try_join!(
            self.period(reader, side.selection.clone()),
            self.merged(reader, side.selection, Default::default()),
        )?;
        let header = file_header(reader, &side.profile_type, (side.start, side.end), period);
        let (querier, held) = (self.clone(), reader.clone());
        self.shape(reader, move || {
            if let Some(Nodes { asked, most, .. }) = cut {
                merged.truncate(asked, most);
            }
            let of_frame = if format == Format::Speedscope { JSON_FRAME } else { FRAME };
            querier.make_room(&held, merged.frames() * of_frame)?;
            Ok(write(merged, header, format, service.as_deref()))
        })
        .await?
    }

    /// What lies between two samples of all profiles; 0 where they differ in it, or do not say.
    async fn period(&self, reader: &Reader, selection: Selection) -> Result<i64, Status> {
        let what = What::Profiles(Profiles::default());
        match self.ask(reader, Ask { selection, what, bounds: check::bounds() }).await? {
            Partial::Profiles(list) => {
                let periods = list.periods.filter(|(least, most)| least == most && *least > 0);
                Ok(periods.map_or(0, |(period, _)| period))
            }
            _ => Err(mixed_up()),
        }
    }
}

fn write(merged: Merged, header: Header, format: Format, service: Option<&str>) -> Vec<u8> {
    let profile = merged.into_profile(header);
    let lacks = profile.header.comments.join("; ");
    match format {
        Format::Speedscope => {
            let name = service.unwrap_or("athanor");
            let partial = if lacks.is_empty() { String::new() } else { format!(" ({lacks})") };
            speedscope::write(&profile, &format!("{name}{partial}")).into_bytes()
        }
        Format::Otlp => {
            let service = service.map(|service| ("service.name", service));
            let partial = Some(("athanor.partial", lacks.as_str())).filter(|(_, lacks)| !lacks.is_empty());
            let resource: Vec<(&str, &str)> = service.into_iter().chain(partial).collect();
            otlp::encode(&profile, &resource)
        }
        _ => pprof::encode(&profile),
    }
}

/// What a file says of itself: it is of the whole range. Some readers multiply by the period, so it is a true one or none.
fn file_header(reader: &Reader, profile_type: &ProfileType, (start, end): (i64, i64), period: i64) -> Header {
    let mut header = header(reader, profile_type, start.saturating_mul(MILLI));
    let period_type = header.period_type.take().filter(|of| *of != ValueType::default());
    Header {
        duration_nanos: end.saturating_sub(start).saturating_mul(MILLI),
        // Of what is not known to be of one type.
        period: if period_type.is_some() { period } else { 0 },
        period_type,
        ..header
    }
}

/// How long the text will be: each line has the names of a whole stack.
fn folded_bytes(tree: &Tree) -> usize {
    let mut lengths: Vec<usize> = Vec::with_capacity(tree.nodes().len());
    for node in tree.nodes() {
        let above = lengths.get(node.parent as usize).copied().unwrap_or_default();
        lengths.push(above + tree.name(node).len() + 1);
    }
    let lines = tree.nodes().iter().zip(&lengths).filter(|(node, _)| node.own != 0);
    lines.map(|(_, length)| length + NUMBER).sum()
}

#[cfg(test)]
mod tests {
    use athanor_profile::Dictionary;

    use super::*;

    #[test]
    fn a_text_is_no_longer_than_said() {
        let mut dictionary = Dictionary::default();
        for path in ["main;a", "main;b;größe"] {
            dictionary.named_stack(path.split(';'));
        }
        let tree = Tree::from_totals(&dictionary, &[i64::MIN, 7]);
        let text = folded::write(&tree);
        assert!(text.len() <= folded_bytes(&tree) && folded_bytes(&tree) < text.len() + 2 * NUMBER);
    }

    #[test]
    fn formats_are_known_by_their_names() {
        assert_eq!(Format::parse("").unwrap(), Format::Pprof);
        assert!(Format::parse("svg").unwrap_err().message.contains("speedscope"));
    }
}
