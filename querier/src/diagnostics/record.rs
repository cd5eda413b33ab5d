//! A record of a query: what is written down of it, within bounds, and the form in which it is shown.

use std::time::Duration;

use athanor_chassis::{Status, TenantId, Timestamp};
use athanor_query::{Ask, Hits, What};
use serde_json::{Value, json};

use super::Summary;
use crate::Plan;

/// Questions of one request; there are two or three.
const QUESTIONS: usize = 16;
/// Parts of a question that are told one by one.
const PARTS: usize = 64;
/// Plans of a question that are told one by one, shards of a part, and things that an answer lacks.
const FEW: usize = 16;
/// Bytes of a text.
const TEXT: usize = 512;
/// Bytes of a record, at the most.
const RECORD: usize = 64 << 10;

/// What was asked by one request, and how it was answered.
#[derive(Default)]
pub(super) struct Asked {
    questions: Vec<Question>,
    left_out: usize,
    /// The answer to an equal request was kept, and still holds.
    pub(super) was_told_before: bool,
    /// So was that to one that was under way.
    pub(super) was_told_along: bool,
}

/// A question to all sources of all tenants that are read as one.
#[derive(Default)]
pub(super) struct Question {
    what: &'static str,
    profile_type: String,
    selector: String,
    time: (i64, i64),
    pub(super) waited: Duration,
    pub(super) planned: Duration,
    pub(super) gathered: Duration,
    pub(super) merged: Duration,
    pub(super) ended: Duration,
    plans: Vec<Value>,
    plan_count: usize,
    sums: Sums,
    /// The slowest, the slowest first.
    parts: Vec<Part>,
}

/// What all parts of a question have done together.
#[derive(Default)]
struct Sums {
    parts: u64,
    failed: u64,
    heads: u64,
    blocks: u64,
    shards: u64,
    bytes: u64,
    hits: Hits,
}

/// What one source did for an answer.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// What it is.
    pub of: PartOf,
    /// The node that was asked; none for this one.
    pub node: Option<u64>,
    /// How long it took, until its answer was merged or there was none.
    pub took: Duration,
    /// Of that, how long another node had it wait for its turn, and how long it worked.
    pub there: Option<(Duration, Duration)>,
    /// Bytes that came from another node.
    pub bytes: u64,
    /// Where answers of blocks came from.
    pub hits: Hits,
    /// Why there was no answer, in words.
    pub failed: Option<String>,
}

/// What answers.
#[derive(Clone, Debug, Default)]
pub enum PartOf {
    /// A head of this node.
    #[default]
    Head,
    /// A block that this node reads.
    Block(String),
    /// So many blocks, by one call or read here since nobody else answered.
    Blocks(usize),
    /// Shards that another node leads.
    Shards(Vec<u32>),
}

/// All that is told of a request.
pub(super) struct Record<'a> {
    pub(super) id: String,
    pub(super) node: u64,
    pub(super) call: &'static str,
    pub(super) tenants: &'a [TenantId],
    pub(super) time: Timestamp,
    pub(super) took: Duration,
    /// Since the last question was answered.
    pub(super) shown: Duration,
    pub(super) failed: Option<&'a Status>,
    pub(super) missing: &'a [String],
    pub(super) asked: &'a Asked,
}

impl Asked {
    /// The place of a new question, if it is told.
    pub(super) fn begin(&mut self, ask: &Ask) -> Option<usize> {
        if self.questions.len() == QUESTIONS {
            self.left_out += 1;
            return None;
        }
        let selection = &ask.selection;
        self.questions.push(Question {
            what: name(&ask.what),
            profile_type: selection.profile_type.as_ref().map(|of| cut(&of.to_string())).unwrap_or_default(),
            selector: cut(&selection.selector.to_string()),
            time: (selection.time.from, selection.time.to),
            ..Question::default()
        });
        Some(self.questions.len() - 1)
    }

    pub(super) fn at(&mut self, place: usize) -> Option<&mut Question> {
        self.questions.get_mut(place)
    }

    /// When the last question was answered.
    pub(super) fn last_ended(&self) -> Option<Duration> {
        self.questions.iter().map(|question| question.ended).filter(|ended| !ended.is_zero()).max()
    }
}

impl Question {
    pub(super) fn plan(&mut self, tenant: &TenantId, plan: &Plan, took: Duration) {
        self.planned += took;
        self.plan_count += 1;
        if self.plans.len() == FEW {
            return;
        }
        self.plans.push(json!({
            "tenant": tenant.as_str(),
            "milliseconds": millis(took),
            "blocks": plan.blocks,
            "heads": plan.sources.len(),
            "shardsElsewhere": plan.shards,
            "calls": plan.remote.len(),
            "bytes": plan.bytes,
            "moved": plan.moved.iter().take(FEW).map(|why| cut(why)).collect::<Vec<_>>(),
        }));
    }

    pub(super) fn part(&mut self, mut part: Part) {
        let Sums { parts, failed, heads, blocks, shards, bytes, hits } = &mut self.sums;
        *parts += 1;
        *bytes += part.bytes;
        hits.add(part.hits);
        match &mut part.of {
            _ if part.failed.is_some() => *failed += 1,
            PartOf::Head => *heads += 1,
            PartOf::Block(_) => *blocks += 1,
            PartOf::Blocks(count) => *blocks += *count as u64,
            PartOf::Shards(of) => *shards += of.len() as u64,
        }
        if let PartOf::Shards(of) = &mut part.of {
            of.truncate(FEW);
        }
        part.failed = part.failed.as_deref().map(cut);
        let place = self.parts.partition_point(|other| other.took >= part.took);
        self.parts.insert(place, part);
        self.parts.truncate(PARTS);
    }

    fn shown(&self, most: usize) -> Value {
        let Sums { parts, failed, heads, blocks, shards, bytes, hits } = &self.sums;
        let told = &self.parts[..most.min(self.parts.len())];
        json!({
            "what": self.what,
            "profileType": self.profile_type,
            "selector": self.selector,
            // Numbers that not all readers of JSON keep exactly.
            "fromNanos": self.time.0.to_string(),
            "toNanos": self.time.1.to_string(),
            "milliseconds": {
                "waited": millis(self.waited),
                "planned": millis(self.planned),
                "gathered": millis(self.gathered),
                "merged": millis(self.merged),
            },
            "plans": self.plans,
            "plansLeftOut": self.plan_count - self.plans.len(),
            "sums": {
                "parts": parts, "failed": failed, "heads": heads, "blocks": blocks, "shards": shards,
                "bytesReceived": bytes, "cache": from_where(*hits),
            },
            "slowest": told.iter().map(Part::shown).collect::<Vec<_>>(),
            "partsLeftOut": parts - told.len() as u64,
        })
    }
}

impl Part {
    fn shown(&self) -> Value {
        let mut shown = match &self.of {
            PartOf::Head => json!({ "head": true }),
            PartOf::Block(name) => json!({ "block": name }),
            PartOf::Blocks(count) => json!({ "blocks": count }),
            PartOf::Shards(shards) => json!({ "shards": shards }),
        };
        shown["milliseconds"] = millis(self.took).into();
        if let Some(node) = self.node {
            shown["node"] = format!("{node:016x}").into();
            shown["bytesReceived"] = self.bytes.into();
        }
        if let Some((waited, worked)) = self.there {
            shown["there"] = json!({ "waited": millis(waited), "worked": millis(worked) });
        }
        if self.hits != Hits::default() {
            shown["cache"] = from_where(self.hits);
        }
        if let Some(why) = &self.failed {
            shown["failed"] = why.as_str().into();
        }
        shown
    }
}

/// Where answers of blocks came from.
fn from_where(Hits { memory, disk, joined, read }: Hits) -> Value {
    json!({ "memory": memory, "disk": disk, "joined": joined, "read": read })
}

impl Record<'_> {
    pub(super) fn summary(&self) -> Summary {
        Summary {
            id: self.id.clone(),
            time_millis: self.time.millis(),
            call: self.call,
            outcome: self.outcome(),
            milliseconds: millis(self.took),
        }
    }

    fn outcome(&self) -> &'static str {
        self.failed.map_or("ok", |status| status.code.name())
    }

    /// As JSON of so many bytes: of what would be too long, the slowest parts.
    pub(super) fn written(&self, most: usize) -> Vec<u8> {
        let tries = [PARTS, PARTS / 4, PARTS / 16, 0].map(|parts| (QUESTIONS, parts));
        let mut written = Vec::new();
        for (questions, parts) in tries.into_iter().chain([(0, 0)]) {
            written = self.shown(questions, parts).to_string().into_bytes();
            if written.len() <= most.min(RECORD) {
                break;
            }
        }
        written
    }

    fn shown(&self, questions: usize, parts: usize) -> Value {
        let told = &self.asked.questions[..questions.min(self.asked.questions.len())];
        let few = if questions == 0 { 0 } else { FEW };
        let missing = self.missing.iter().take(few).map(|words| cut(words));
        let mut shown = json!({
            "id": self.id,
            "node": format!("{:016x}", self.node),
            "call": self.call,
            "tenants": self.tenants.iter().map(TenantId::as_str).collect::<Vec<_>>(),
            "timeMillis": self.time.millis(),
            "outcome": self.outcome(),
            "milliseconds": { "all": millis(self.took), "shown": millis(self.shown) },
            "keptAnswer": self.asked.was_told_before,
            "sharedAnswer": self.asked.was_told_along,
            "missing": missing.collect::<Vec<_>>(),
            "missingLeftOut": self.missing.len().saturating_sub(few),
            "questions": told.iter().map(|question| question.shown(parts)).collect::<Vec<_>>(),
            "questionsLeftOut": self.asked.left_out + self.asked.questions.len() - told.len(),
        });
        if let Some(status) = self.failed {
            shown["error"] = cut(&status.message).into();
        }
        shown
    }
}

/// What is computed, in a word.
fn name(what: &What) -> &'static str {
    match what {
        What::ProfileTypes => "profile types",
        What::LabelNames => "label names",
        What::LabelValues(_) => "label values",
        What::Series(_) => "series",
        What::Tree(_) => "tree",
        What::Profile(..) => "profile",
        What::Points(_) => "points",
        What::Heat(_) => "heat",
        What::Sizes => "sizes",
        What::Trees(_) => "trees",
        What::Profiles(_) => "profiles",
        What::Ids => "ids",
    }
}

/// To the microsecond.
fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e3
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT)].to_owned()
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Code;
    use athanor_query::{Selection, Selector};

    use super::*;

    #[test]
    fn a_record_has_its_bound_whatever_is_told() {
        // Each of its letters takes six in JSON.
        let long = "\u{1}".repeat(5_000);
        let selector = Selector::default().with("pod", &long).unwrap();
        let ask = Ask { selection: Selection { selector, ..Selection::default() }, ..Ask::default() };
        let mut asked = Asked::default();
        for _ in 0..QUESTIONS + 3 {
            let Some(place) = asked.begin(&ask) else { continue };
            let question = asked.at(place).unwrap();
            for number in 0..1_000 {
                question.part(Part {
                    of: PartOf::Shards((0..1_000).collect()),
                    took: Duration::from_millis(number % 300),
                    failed: Some(long.clone()),
                    ..Part::default()
                });
            }
            let slowest: Vec<u64> = question.parts.iter().map(|part| part.took.as_millis() as u64).collect();
            let expected: Vec<u64> = (0..300).rev().flat_map(|took| [took; 3]).take(PARTS).collect();
            assert_eq!(slowest, expected);
        }
        let (tenants, missing) = (vec![TenantId::anonymous(); 64], vec![long.clone(); 100]);
        let failed = Status::new(Code::Internal, long);
        let record = Record {
            id: String::new(),
            node: 7,
            call: "a call",
            tenants: &tenants,
            time: Timestamp::EPOCH,
            took: Duration::ZERO,
            shown: Duration::ZERO,
            failed: Some(&failed),
            missing: &missing,
            asked: &asked,
        };
        for most in [RECORD, 16 << 10] {
            let written = record.written(most);
            assert!(written.len() <= most, "{} of {most}", written.len());
            let told: Value = serde_json::from_slice(&written).unwrap();
            let questions = told["questions"].as_array().unwrap().len();
            assert_eq!(told["questionsLeftOut"], QUESTIONS + 3 - questions);
        }
    }
}
