//! What is stored of profiles, as plain lists: written apart from all that stores and reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::query_consistency::profiles::{Frame, TYPE, labels, measured, owner, seen, time, value_in};

/// One thing that was measured in one profile, of those samples that share their text labels.
#[derive(Clone)]
pub struct Record {
    /// Of which profile.
    pub number: usize,
    pub time: i64,
    /// With those that follow from what is measured.
    pub labels: BTreeMap<String, String>,
    pub rows: Vec<Row>,
}

#[derive(Clone)]
pub struct Row {
    /// The root first.
    pub stack: Vec<Frame>,
    pub value: i64,
    /// 0 if it is of none.
    pub span: usize,
}

/// Ids of records of [`TYPE`], as they were told once, by time and endpoint.
pub type Ids = BTreeMap<(i64, String), String>;

/// A part of all profiles: whose they are, and of which time.
pub struct Naive {
    records: Vec<Record>,
    /// Milliseconds, both in it.
    pub start: i64,
    pub end: i64,
    /// Profiles that are asked for by their ids.
    pub picked: Vec<usize>,
    pub ids: Arc<Ids>,
}

impl Record {
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    pub fn is_of(&self, profile_type: &str) -> bool {
        self.label("__profile_type__") == profile_type
    }

    /// Its time and its endpoint.
    pub fn key(&self) -> (i64, String) {
        (self.time, self.label("endpoint").to_owned())
    }

    /// Those of its labels that have these names, in that order.
    pub fn grouped(&self, names: &[&str]) -> Vec<(String, String)> {
        let found = names.iter().filter_map(|name| Some((name, self.labels.get(*name)?)));
        found.map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    /// Those that have none of these names.
    pub fn ungrouped(&self, names: &[&str]) -> BTreeMap<String, String> {
        let others = self.labels.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        others.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// All records of a profile.
fn records(number: usize) -> Vec<Record> {
    let mut records = Vec::new();
    for (kind, unit) in measured(number) {
        let mut of_endpoints: BTreeMap<Option<&str>, Vec<Row>> = BTreeMap::new();
        for one in seen(number) {
            let row = Row { stack: one.stack, value: value_in(&kind, one.value), span: one.span };
            of_endpoints.entry(one.endpoint).or_default().push(row);
        }
        for (endpoint, rows) in of_endpoints {
            let mut all: BTreeMap<String, String> = labels(number).into_iter().collect();
            let (name, service) = (all["__name__"].clone(), all["service_name"].clone());
            let computed = [
                ("__profile_type__", format!("{name}:{kind}:{unit}:cpu:nanoseconds")),
                ("__type__", kind.clone()),
                ("__unit__", unit.to_owned()),
                ("__period_type__", "cpu".to_owned()),
                ("__period_unit__", "nanoseconds".to_owned()),
                ("__service_name__", service),
            ];
            all.extend(computed.map(|(name, value)| (name.to_owned(), value)));
            all.extend(endpoint.map(|endpoint| ("endpoint".to_owned(), endpoint.to_owned())));
            records.push(Record { number, time: time(number), labels: all, rows });
        }
    }
    records
}

impl Naive {
    /// Of these profiles those of some tenants, and of a time.
    pub fn of(
        numbers: std::ops::Range<usize>,
        tenants: &str,
        [start, end]: [i64; 2],
        ids: &Arc<Ids>,
    ) -> Self {
        let picked = picked(numbers.end);
        let theirs = numbers.filter(|number| tenants.split('|').any(|tenant| tenant == owner(*number)));
        let records = theirs.flat_map(records).collect();
        Naive { records, start, end, picked, ids: Arc::clone(ids) }
    }

    /// All records, whatever their time.
    pub fn all(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    /// Those of its time.
    pub fn within(&self) -> impl Iterator<Item = &Record> {
        let (from, to) = (self.start * 1_000_000, self.end * 1_000_000);
        self.all().filter(move |record| from <= record.time && record.time <= to)
    }

    /// Those of its time that most questions are about.
    pub fn usual(&self) -> impl Iterator<Item = &Record> {
        self.within().filter(|record| record.is_of(TYPE))
    }

    /// Whether a record is asked for by its id.
    pub fn is_picked(&self, record: &Record) -> bool {
        self.picked.contains(&record.number)
    }
}

/// Some of so many profiles, of all tenants and times.
pub fn picked(count: usize) -> Vec<usize> {
    [1, 5, 6, count / 2, count / 2 + 1].into_iter().filter_map(|back| count.checked_sub(back)).collect()
}

/// The ids of records of some profiles: of those without an endpoint.
pub fn ids_of_records(picked: &[usize], ids: &Ids) -> Vec<String> {
    picked.iter().map(|number| ids[&(time(*number), String::new())].clone()).collect()
}

/// The ids of whole profiles: what those of their records begin with.
pub fn ids_of_profiles(picked: &[usize], ids: &Ids) -> Vec<String> {
    ids_of_records(picked, ids).iter().map(|id| id_of_profile(id)).collect()
}

/// The id of the whole profile that a record is of.
pub fn id_of_profile(of_record: &str) -> String {
    format!("{}-0000-000000000000", &of_record[..18])
}
