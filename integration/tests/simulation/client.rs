//! What clients do to a node, and how its answers are held against the model.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use athanor_catalog::{ShardEntry, ShardPhase};
use athanor_chassis::{Clock, ErrorCode, Random, Status, TenantId};
use athanor_cluster::placement::series_slot;
use athanor_distributor::{PushedProfile, PushedSeries};
use athanor_profile::{Labels, encoding::hash};
use athanor_proto::google::v1::Profile;
use athanor_proto::querier::v1::{
    ProfileTypesRequest, SelectMergeProfileRequest, SelectMergeStacktracesRequest, SelectSeriesRequest,
    SeriesRequest,
};
use athanor_querier::QueryContext;
use athanor_server::NodeRoles;

use super::model::{Asked, Doubt, Floors, KINDS, METRIC, Model, Placed, Request, SERVICES, Said, TENANTS};
use super::world::{Weather, World};

/// What went wrong, in words.
pub type Breach = String;

/// No answer may take longer.
pub const FOREVER: Duration = Duration::from_secs(20 * 60);
const MINUTE: i64 = 60_000;

/// Everybody who talks to one process.
pub struct Clients<'a> {
    pub world: &'a World,
    pub clock: Clock,
    pub random: Random,
    pub model: &'a RefCell<Model>,
    pub roles: &'a NodeRoles,
    /// Which of its processes.
    pub boot: u64,
    /// There are others beside it, which may be away: then anything may fail, and answers may lack something. They say so.
    pub company: bool,
    /// And all of it must succeed, since each goes and comes politely.
    pub strict: bool,
    /// Disks of one of them were harmed: ids that rotted away come back with nothing, and answers say so.
    pub harmed: bool,
    /// A shard was without its members for so long that others took its place, without its ids [INV-13].
    pub loss: Rc<Cell<bool>>,
    /// How far the clocks of two of them may be apart.
    pub apart: Duration,
    /// How often a disk failed or was full: from the first time on anything may be refused.
    pub disk_faults: Cell<u64>,
    /// How often the weather became bad.
    pub storms: Cell<u64>,
}

/// How values are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Tree,
    Pprof,
    Points,
    Services,
    Types,
}

pub const QUESTIONS: [Question; 5] =
    [Question::Tree, Question::Pprof, Question::Points, Question::Services, Question::Types];

impl Clients<'_> {
    /// Sends a request; whoever loses patience never hears the answer.
    pub async fn push(&self, request: Request, patience: Duration) -> Result<(), Breach> {
        let (sent, series, before) = {
            let mut model = self.model.borrow_mut();
            let series = request.parts.iter().map(|part| {
                let (service, pprof) = model.upload(*part, self.random.next_below(2) as usize);
                let id = (part.client > 0).then(|| format!("{:x}", part.client));
                PushedSeries { labels: labels(service), profiles: vec![PushedProfile { pprof, id }] }
            });
            let series: Vec<PushedSeries> = series.collect();
            (model.send(&request), series, self.clock.wall())
        };
        let (tenant, table) = (tenant(request.tenant), self.newest_table());
        let pushed = self.roles.distributor.as_ref().unwrap().push_series(&tenant, series);
        let answer = self.clock.timeout(patience, pushed).await;
        if self.world.is_over(self.boot) {
            self.model.borrow_mut().pending.push(request);
            return Ok(());
        }
        self.world.tell(format_args!("pushed {request:?}: {answer:?}"));
        let (mut model, now) = (self.model.borrow_mut(), self.clock.wall());
        match answer {
            Ok(Ok(receipt)) => {
                self.world.count("acknowledged");
                if receipt.repeats > 0 {
                    self.world.count("repeats");
                }
                // A try whose answer was lost with who gave it may have stored what another one repeated.
                let doubt = Doubt { tried_again: self.company, forgot: self.looks_for_loss() };
                self.look_at_tables(&tenant, table, &model.place(&sent, table));
                model.acknowledge(&sent, receipt, now, doubt)
            }
            Ok(Err(status)) if status.code == ErrorCode::Invalid => {
                self.world.count("refused");
                // Whoever refuses looks at a clock of its own.
                match model.may_be_refused(&request, before, now, self.apart) {
                    true => Ok(()),
                    false => Err(format!("{request:?} was refused: {status}")),
                }
            }
            Ok(Err(status)) => {
                self.world.count("failed pushes");
                model.pending.push(request);
                if status.code == ErrorCode::Internal
                    && !self.company
                    && self.roles.ingester.as_ref().unwrap().failed().is_none()
                {
                    return Err(format!("a push was not refused as it should be: {status}"));
                }
                self.may_fail("a push", &status, false)
            }
            Err(_) if patience >= FOREVER || self.strict => Err(format!("no answer to {request:?}")),
            Err(_) => {
                self.world.count("clients that left");
                model.pending.push(request);
                Ok(())
            }
        }
    }

    fn newest_table(&self) -> u64 {
        self.roles.views.current().tables.as_ref().map_or(0, |tables| tables.table_at(i64::MAX).version())
    }

    /// Counts what shows that tables changed under profiles, of those alone that not all tables place alike.
    fn look_at_tables(&self, tenant: &TenantId, known: u64, placed: &[Placed]) {
        let view = self.roles.views.current();
        let Some(tables) = &view.tables else { return };
        for Placed { service, time, before } in placed {
            let sent = Labels::new(labels(*service));
            let slot = |time| series_slot(tables.table_at(time), tenant, SERVICES[*service], &sent);
            let moved = tables.route(tenant, i64::MIN, i64::MAX).slot(SERVICES[*service], &sent).is_none();
            match before {
                None if slot(*time) != slot(i64::MIN) => self.world.count("profiles placed by a later table"),
                Some(before) if *before != known && moved => self.world.count("repeats across tables"),
                _ => {}
            }
        }
    }

    fn looks_for_loss(&self) -> bool {
        let lost = |shard: &ShardEntry| matches!(shard.phase, ShardPhase::Lost { .. });
        if self.company && self.roles.views.current().shards.iter().any(lost) {
            self.loss.set(true);
            self.world.count("acknowledged beside a lost shard");
        }
        // A shard that cannot read a file of its ids stores their duplicates, and queries compare ids.
        self.loss.get() || self.company && self.world.has_counted("rotten ids")
    }

    /// As [`Clients::push`], for as long as it takes.
    pub async fn push_patiently(&self, request: Request) -> Result<(), Breach> {
        self.push(request, FOREVER).await
    }

    /// Whether it is right that something failed.
    pub fn may_fail(&self, what: &str, status: &Status, stormy: bool) -> Result<(), Breach> {
        if status.code == ErrorCode::DataLoss {
            return Err(format!("{what} met a loss of data: {status}"));
        }
        match self.disk_faults.get() > 0 || stormy || (self.company && !self.strict) {
            true => Ok(()),
            false => Err(format!("{what} failed with nothing to cause it: {:?} {status}", status.code)),
        }
    }

    /// Changes the weather.
    pub fn weather(&self, weather: Weather) {
        if weather != Weather::Fair {
            self.storms.set(self.storms.get() + 1);
        }
        self.world.tell(format_args!("the weather is {weather:?}"));
        self.world.set_weather(weather);
    }

    /// Cuts everything, for a while.
    pub async fn cut(&self, patience: Duration) -> Result<(), Breach> {
        let (storms, fair) = (self.storms.get(), self.world.weather() == Weather::Fair);
        let cut = self.roles.ingester.as_ref().unwrap().flush_all(&self.clock, patience).await;
        if self.world.is_over(self.boot) {
            return Ok(());
        }
        self.world.tell(format_args!("cut: {cut:?}"));
        let stormy = !fair || storms != self.storms.get() || patience < Duration::from_secs(60);
        match cut {
            Ok(_) => {
                self.world.count("cuts");
                Ok(())
            }
            Err(status) => {
                self.world.count("failed cuts");
                self.may_fail("a cut", &status, stormy)
            }
        }
    }

    /// Some question.
    pub fn draw(&self) -> (Question, Asked) {
        let random = &self.random;
        let question = QUESTIONS[random.next_below(QUESTIONS.len() as u64) as usize];
        let tenant = random.next_below(TENANTS.len() as u64) as usize;
        let service = (random.next_below(3) > 0).then(|| random.next_below(SERVICES.len() as u64) as usize);
        let times = self.model.borrow().times(tenant);
        let ranged = random.next_below(3) == 0 && !times.is_empty();
        let some = || times[random.next_below(times.len() as u64) as usize] / 1_000_000;
        let range = ranged.then(|| (some(), some())).map(|(a, b)| (a.min(b), a.max(b)));
        (question, Asked { tenant, service, kind: random.next_below(KINDS.len() as u64) as usize, range })
    }

    /// Asks, and compares.
    pub async fn ask(&self, question: Question, asked: Asked) -> Result<(), Breach> {
        let asked = match question {
            Question::Tree | Question::Pprof => asked,
            Question::Points => Asked { range: None, ..asked },
            // Every upload has the first kind.
            Question::Services => Asked { kind: 0, ..asked },
            Question::Types => Asked { service: None, ..asked },
        };
        let floors = self.model.borrow().floors(&asked, self.clock.wall());
        let (storms, fair) = (self.storms.get(), self.world.weather() == Weather::Fair);
        let reader = QueryContext::for_tenant(tenant(asked.tenant));
        let answer = self.clock.timeout(FOREVER, self.answer(&reader, question, &asked)).await;
        if self.world.is_over(self.boot) {
            return Ok(());
        }
        let answer = answer.map_err(|_| format!("no answer to {question:?} {asked:?}"))?;
        let sum = hash::hash_bytes(format!("{answer:?}").as_bytes());
        self.world.tell(format_args!("asked {question:?} {asked:?}: {sum:032x}"));
        let stormy = !self.strict && (!fair || storms != self.storms.get());
        let found = match answer {
            Ok(found) => found,
            Err(status) => {
                self.world.count("failed queries");
                return self.may_fail("a query", &status, stormy);
            }
        };
        self.world.count("queries");
        let compared = self.said(&reader, stormy).and_then(|said| {
            // Whoever is away has what it has, and so has the bucket.
            let is_away = self.company || reader.warnings().iter().any(|warning| is_of_the_bucket(warning));
            let floors = if said.partial && is_away { Floors::default() } else { floors };
            self.compare(question, &asked, &floors, &found, said)
        });
        compared.map_err(|breach| format!("{question:?} of {asked:?} by {}: {breach}", TENANTS[asked.tenant]))
    }

    /// What keeps answers over everything from being whole, if anything does.
    pub async fn lacks(&self) -> Option<String> {
        for place in 0..TENANTS.len() {
            let reader = QueryContext::for_tenant(tenant(place));
            let asked = Asked { tenant: place, service: None, kind: 0, range: None };
            let lacks = match self.answer(&reader, Question::Tree, &asked).await {
                Ok(_) => {
                    let warnings = reader.warnings();
                    let is_whole = warnings.is_empty() || self.harmed && is_of_ids_alone(&warnings);
                    (!is_whole).then(|| warnings.join("; "))
                }
                Err(status) => Some(status.to_string()),
            };
            if lacks.is_some() {
                return lacks;
            }
        }
        None
    }

    /// What an answer says of itself: where nothing was damaged, nothing is missing but what a bucket does not give.
    pub fn said(&self, reader: &QueryContext, stormy: bool) -> Result<Said, Breach> {
        let warnings = reader.warnings();
        // What age took is not looked for.
        let expires = self.model.borrow().has_retention();
        let is_by_age = |warning: &&String| expires && warning.contains("were removed by retention");
        let unexpected: Vec<String> =
            warnings.iter().filter(|warning| !is_by_age(warning)).cloned().collect();
        if unexpected.is_empty() {
            if !warnings.is_empty() {
                self.world.count("answers that name what age took");
            }
            return Ok(Said { partial: false, twice: false });
        }
        let words = unexpected.join("; ");
        if words.contains("damaged: block") {
            return Err(format!("a block is damaged: {words}"));
        }
        let may_lack_rows = self.model.borrow().is_damaged() || self.company && !self.strict;
        let may_lack_now = stormy && is_of_the_bucket(&words);
        let may_lack = may_lack_rows || may_lack_now || self.harmed && is_of_ids_alone(&unexpected);
        if !may_lack {
            return Err(format!("it is said to lack something: {words}"));
        }
        let twice = words.contains("may count twice");
        let partial = !is_of_ids_alone(&unexpected);
        self.world.count(if twice { "answers that may count twice" } else { "answers that lack something" });
        Ok(Said { partial, twice })
    }

    fn compare(
        &self,
        question: Question,
        asked: &Asked,
        floors: &Floors,
        found: &BTreeMap<String, i64>,
        said: Said,
    ) -> Result<(), Breach> {
        let mut model = self.model.borrow_mut();
        if matches!(question, Question::Tree | Question::Pprof) {
            return model.check(asked, floors, found, said, self.clock.wall());
        }
        let sums = model.sums(asked, floors, said);
        let expected: BTreeMap<String, (i64, i64)> = match question {
            // A type is there if any service has it.
            Question::Types => {
                let ends = sums.values().fold((0, 0), |sum, ends| (sum.0 + ends.0, sum.1 + ends.1));
                [(type_id(asked.kind), ends)].into_iter().filter(|(_, (_, most))| *most > 0).collect()
            }
            _ => sums.into_iter().map(|(service, ends)| (SERVICES[service].to_owned(), ends)).collect(),
        };
        let counted = question == Question::Points;
        for (name, &value) in found {
            let Some(&(least, most)) = expected.get(name) else {
                return Err(format!("{name} is there, with {value}"));
            };
            if counted && !(least..=most).contains(&value) {
                return Err(format!("{name} has {value}, not {least} to {most}"));
            }
        }
        match expected.iter().find(|(name, (least, _))| *least > 0 && !found.contains_key(*name)) {
            Some((name, ends)) => Err(format!("{name} is missing, with {ends:?}")),
            None => Ok(()),
        }
    }

    /// Values by function, by service or by type.
    async fn answer(
        &self,
        reader: &QueryContext,
        question: Question,
        asked: &Asked,
    ) -> Result<BTreeMap<String, i64>, Status> {
        let querier = self.roles.querier.as_ref().unwrap();
        let now = self.clock.wall().millis();
        // Machines may be switched off for long, and their clocks far ahead.
        let span = 50 * 24 * 60 * MINUTE;
        let (start, end) = asked.range.unwrap_or((now - span, now + span));
        let profile_type_id = type_id(asked.kind);
        let label_selector = match asked.service {
            Some(service) => format!("{{service_name={:?}}}", SERVICES[service]),
            None => "{}".to_owned(),
        };
        let group_by = vec!["service_name".to_owned()];
        match question {
            Question::Tree => {
                let request = SelectMergeStacktracesRequest {
                    profile_type_id,
                    label_selector,
                    start,
                    end,
                    ..SelectMergeStacktracesRequest::default()
                };
                let tree = querier.merged_tree(reader, request).await?;
                let leaves = tree.nodes().iter().filter(|node| node.self_value != 0);
                Ok(sum(leaves.map(|node| (tree.name(node).to_owned(), node.self_value))))
            }
            Question::Pprof => {
                let request = SelectMergeProfileRequest {
                    profile_type_id,
                    label_selector,
                    start,
                    end,
                    ..SelectMergeProfileRequest::default()
                };
                querier.select_merge_profile(reader, request).await.map(|profile| leaves(&profile))
            }
            Question::Points => {
                // A point stands for what comes before it.
                let request = SelectSeriesRequest {
                    profile_type_id,
                    label_selector,
                    start: now - span,
                    end: now + 2 * span,
                    group_by,
                    step: span as f64 / 1000.0,
                    ..SelectSeriesRequest::default()
                };
                let series = querier.select_series(reader, request).await?.series;
                let points = series.iter().flat_map(|series| {
                    let of = series.labels.iter().map(|label| label.value.as_str()).collect::<String>();
                    series.points.iter().map(move |point| (of.clone(), point.value as i64))
                });
                Ok(sum(points))
            }
            Question::Services => {
                let request =
                    SeriesRequest { matchers: vec![label_selector], label_names: group_by, start, end };
                let sets = querier.series(reader, request).await?.labels_set;
                Ok(sum(sets.into_iter().flat_map(|set| set.labels).map(|label| (label.value, 1))))
            }
            Question::Types => {
                let types = querier.profile_types(reader, ProfileTypesRequest { start, end }).await?;
                let kinds = types.profile_types.into_iter().map(|kind| (kind.id, 1));
                Ok(sum(kinds.filter(|(id, _)| *id == type_id(asked.kind))))
            }
        }
    }
}

fn sum(parts: impl Iterator<Item = (String, i64)>) -> BTreeMap<String, i64> {
    parts.fold(BTreeMap::new(), |mut sums, (name, value)| {
        *sums.entry(name).or_default() += value;
        sums
    })
}

/// Self values by function.
fn leaves(profile: &Profile) -> BTreeMap<String, i64> {
    let functions: BTreeMap<u64, i64> =
        profile.function.iter().map(|function| (function.id, function.name)).collect();
    let lines = profile.location.iter().map(|location| (location.id, location.line[0].function_id));
    let lines: BTreeMap<u64, u64> = lines.collect();
    sum(profile.sample.iter().map(|sample| {
        let name = functions[&lines[&sample.location_id[0]]];
        (profile.string_table[name as usize].clone(), sample.value[0])
    }))
}

/// As a client sends them.
fn labels(service: usize) -> Vec<(String, String)> {
    let labels = [("__name__", METRIC), ("service_name", SERVICES[service])];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

pub fn tenant(place: usize) -> TenantId {
    TENANTS[place].parse().unwrap()
}

fn type_id(kind: usize) -> String {
    let (name, unit) = KINDS[kind];
    format!("{METRIC}:{name}:{unit}:{}:{}", KINDS[0].0, KINDS[0].1)
}

/// Whether it lacks what the bucket does not give.
fn is_of_the_bucket(warning: &str) -> bool {
    warning.contains("cannot be read now")
}

/// Whether an answer lacks no rows by what is said of it.
fn is_of_ids_alone(warnings: &[String]) -> bool {
    warnings.iter().all(|warning| warning.contains("may count twice"))
}
