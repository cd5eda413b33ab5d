//! Profiles, and what they add up to.

use std::collections::BTreeMap;

use athanor_chassis::TenantId;
use athanor_distributor::{SentProfile, SentSeries};
use athanor_integration::cluster::{Cluster, on};
use athanor_profile::pprof::encode;
use athanor_profile::{Profile, SampleLabel, ValueType};

/// Of the first profile, Unix nanoseconds.
const BEGIN: i64 = 1_900_000_000_000_000_000;
/// From one to the next.
const STEP: i64 = 7_300_000_000;

/// All of them are of this type.
pub const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// Spans are numbered from 1 on.
pub const SPANS: usize = 4;

/// Whose profiles there are.
pub const TENANTS: [&str; 2] = ["acme", "globex"];

/// Own values of functions by their names, as naively as can be said.
pub type Sums = BTreeMap<String, i64>;

/// Whose a profile is.
pub fn tenant(number: usize) -> TenantId {
    TENANTS[usize::from(number.is_multiple_of(3))].parse().unwrap()
}

/// The time of a profile, milliseconds.
pub fn millis(number: usize) -> i64 {
    time(number) / 1_000_000
}

fn time(number: usize) -> i64 {
    BEGIN + number as i64 * STEP
}

/// Its samples: stack, root first, value, span and endpoint.
fn samples(number: usize) -> Vec<(Vec<String>, i64, usize, Option<&'static str>)> {
    let value = 1_000 + 17 * number as i64;
    let own = format!("own{number}");
    let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    vec![
        (stack(&["main", "serve", &own]), value, 0, None),
        (stack(&["main", "serve", "work"]), value / 2, number % (SPANS + 1), None),
        (stack(&["main", "idle"]), 11, 1 + number % SPANS, Some("/x")),
        (stack(&["main", "serve", "work", "serve"]), 5 + number as i64 % 3, 0, Some("/y")),
    ]
}

/// What functions have by themselves in so many profiles of a tenant.
pub fn sums(count: usize, of: &str) -> Sums {
    let mut sums = Sums::new();
    for number in (0..count).filter(|number| tenant(*number).as_str() == of) {
        for (stack, value, ..) in samples(number) {
            *sums.entry(stack.last().unwrap().clone()).or_default() += value;
        }
    }
    sums
}

fn profile(number: usize) -> Profile {
    let mut profile = Profile::default();
    let types = [("samples", "count"), ("cpu", "nanoseconds")];
    profile.header.types = types.map(|(kind, unit)| ValueType::new(kind, unit)).to_vec();
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.period = 10;
    profile.header.duration_nanos = 1_000_000_000;
    profile.header.time_nanos = time(number);
    for (stack, value, span, endpoint) in samples(number) {
        let stack = profile.dictionary.named_stack(stack.iter().map(String::as_str));
        let strings = &mut profile.dictionary.symbols.strings;
        let texts = [
            ("endpoint", endpoint.map(str::to_owned)),
            ("span_id", (span > 0).then(|| format!("{span:016x}"))),
            ("trace_id", (span > 2).then(|| format!("{span:032x}"))),
        ];
        let labels = texts.into_iter().filter_map(|(key, text)| {
            let (key, text) = (strings.intern(key), strings.intern(&text?));
            Some(SampleLabel { key, text, number: 0, unit: 0 })
        });
        let labels: Vec<SampleLabel> = labels.collect();
        let set = profile.dictionary.label_sets.intern(&profile.dictionary.symbols.strings, &labels);
        profile.samples.push(stack, set, &[value / 10 + 1, value]);
    }
    profile
}

/// Sends one to a cluster; how many of its records were new, and how many repeats.
pub async fn send(cluster: &Cluster, place: usize, number: usize) -> (u64, u64) {
    let labels = [
        ("__name__", "process_cpu".to_owned()),
        ("service_name", format!("service{}", number % 4)),
        ("pod", format!("pod{}", number % 3)),
    ];
    let labels = labels.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let pprof = encode(&profile(number)).into();
    let series = SentSeries { labels, profiles: vec![SentProfile { pprof, id: None }] };
    let (runtime, distributor) = cluster.distributor(place);
    let tenant = tenant(number);
    let pushed = on(runtime, async move { distributor.push_series(&tenant, vec![series]).await });
    let receipt = pushed.await.unwrap();
    (receipt.new as u64, receipt.repeats as u64)
}
