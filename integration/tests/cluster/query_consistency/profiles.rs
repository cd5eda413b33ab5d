//! Profiles, and what they add up to.

use std::collections::BTreeMap;

use athanor_chassis::TenantId;
use athanor_distributor::{PushedProfile, PushedSeries};
use athanor_integration::cluster::{TestCluster, run_on};
use athanor_profile::data_model::symbols::{Function, Line, NO_ENTRY};
use athanor_profile::formats::pprof::encode;
use athanor_profile::{Dictionary, Labels, Profile, ProfileUpload, SampleLabel, ValueType};

/// Of the first profile, Unix nanoseconds.
const BEGIN: i64 = 1_900_000_000_000_000_000;
/// From one to the next: no whole number of milliseconds.
const STEP: i64 = 7_300_400_000;

/// How many come at a time. In each such wave there is something that no other has: a label, a value of a label, a type.
pub const IN_A_WAVE: usize = 12;
/// What most questions are about: all of them are measured in this.
pub const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// The same in numbers of samples, which are shown as they are.
pub const SAMPLES: &str = "process_cpu:samples:count:cpu:nanoseconds";
/// What lies between two samples.
pub const PERIOD: i64 = 10;
/// Spans are numbered from 1 on; those behind [`TRACED`] are of the trace of their number.
pub const SPANS: usize = 4;
/// The last span that is of no trace.
pub const TRACED: usize = 2;

/// Whose profiles there are.
pub const TENANTS: [&str; 2] = ["acme", "globex"];

/// Self values of functions by their names, as naively as can be said.
pub type Sums = BTreeMap<String, i64>;

/// A function and the line that is executed in it.
pub type Frame = (String, i64);

/// What was seen in a profile.
pub struct Seen {
    /// The root first.
    pub stack: Vec<Frame>,
    pub value: i64,
    /// 0 if it is of none.
    pub span: usize,
    pub endpoint: Option<&'static str>,
}

/// Whose a profile is.
pub fn owner(number: usize) -> &'static str {
    TENANTS[usize::from(number.is_multiple_of(3))]
}

/// The time of a profile, milliseconds.
pub fn millis(number: usize) -> i64 {
    time(number) / 1_000_000
}

/// The same, nanoseconds.
pub fn time(number: usize) -> i64 {
    BEGIN + number as i64 * STEP
}

/// The labels of a profile.
pub fn labels(number: usize) -> Vec<(String, String)> {
    let wave = number / IN_A_WAVE;
    let pod = if number % 5 == 4 { "node4".to_owned() } else { format!("pod{}", number % 5) };
    let labels = [
        ("__name__".to_owned(), "process_cpu".to_owned()),
        ("service_name".to_owned(), format!("service{}", number % 4)),
        ("pod".to_owned(), pod),
        ("wave".to_owned(), format!("wave{wave}")),
        (format!("since{wave}"), "x".to_owned()),
    ];
    labels.to_vec()
}

/// What is measured, and in which unit: some profiles measure one thing more.
pub fn measured(number: usize) -> Vec<(String, &'static str)> {
    let mut all = vec![("samples".to_owned(), "count"), ("cpu".to_owned(), "nanoseconds")];
    if [4, 9].contains(&(number % IN_A_WAVE)) {
        all.push((format!("extra{}", number / IN_A_WAVE), "count"));
    }
    all
}

/// A value in what is measured.
pub fn value_in(kind: &str, value: i64) -> i64 {
    match kind {
        "cpu" => value,
        "samples" => value / 10 + 1,
        _ => 3,
    }
}

/// What was seen in it.
pub fn seen(number: usize) -> Vec<Seen> {
    let value = 1_000 + 17 * number as i64;
    let own = format!("own{number}");
    let of = |names: &[&str], value, span, endpoint| {
        let leaf = names.len() - 1;
        let line = |at: usize| if at == leaf { 1 + number as i64 % 3 } else { 10 };
        let stack = names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), line(at))).collect();
        Seen { stack, value, span, endpoint }
    };
    vec![
        of(&["main", "serve", &own], value, 0, None),
        of(&["main", "serve", "work"], value / 2, number % (SPANS + 1), None),
        of(&["main", "idle"], 11, 1 + number % SPANS, Some("/x")),
        of(&["main", "serve", "work", "serve"], 5 + number as i64 % 3, 0, Some("/y")),
    ]
}

/// What functions have by themselves in so many profiles of a tenant.
pub fn sums(count: usize, of: &str) -> Sums {
    let mut sums = Sums::new();
    for number in (0..count).filter(|number| owner(*number) == of) {
        for Seen { stack, value, .. } in seen(number) {
            *sums.entry(stack.last().unwrap().0.clone()).or_default() += value;
        }
    }
    sums
}

fn stack_of(dictionary: &mut Dictionary, stack: &[Frame]) -> u32 {
    let symbols = &mut dictionary.symbols;
    let mut path = Vec::new();
    for (name, line) in stack.iter().rev() {
        let name = symbols.strings.intern(name);
        let function = symbols.intern_function(Function { name, system_name: 0, filename: 0, start_line: 0 });
        path.push(symbols.intern_location(NO_ENTRY, 0, false, &[Line { function, line: *line, column: 0 }]));
    }
    dictionary.stacks.intern(&dictionary.symbols, &path)
}

fn profile(number: usize) -> Profile {
    let (mut profile, measured) = (Profile::default(), measured(number));
    profile.header.types = measured.iter().map(|(kind, unit)| ValueType::new(kind, unit)).collect();
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.period = PERIOD;
    profile.header.duration_nanos = 1_000_000_000;
    profile.header.time_nanos = time(number);
    for Seen { stack, value, span, endpoint } in seen(number) {
        let stack = stack_of(&mut profile.dictionary, &stack);
        let strings = &mut profile.dictionary.symbols.strings;
        let texts = [
            ("endpoint", endpoint.map(str::to_owned)),
            ("span_id", (span > 0).then(|| format!("{span:016x}"))),
            ("trace_id", (span > TRACED).then(|| format!("{span:032x}"))),
        ];
        let labels = texts.into_iter().filter_map(|(key, text)| {
            let (key, text) = (strings.intern(key), strings.intern(&text?));
            Some(SampleLabel { key, text, number: 0, unit: 0 })
        });
        let labels: Vec<SampleLabel> = labels.collect();
        let set = profile.dictionary.label_sets.intern(&profile.dictionary.symbols.strings, &labels);
        let values: Vec<i64> = measured.iter().map(|(kind, _)| value_in(kind, value)).collect();
        profile.samples.push(stack, set, &values);
    }
    profile
}

/// Gives one to a shard, whichever it belongs to; how many of its records were new there.
pub async fn plant(cluster: &TestCluster, shard: u32, number: usize) -> u64 {
    let labels = Labels::new(labels(number));
    let pprof = encode(&profile(number)).into();
    let upload = ProfileUpload { sent: labels.clone(), labels, pprof, ..ProfileUpload::default() };
    let planting = async {
        loop {
            let leader = cluster.leader(shard).unwrap_or_default();
            let roles = cluster.names().contains(&leader).then(|| cluster.node(&leader).roles());
            if let Some(ingester) = roles.and_then(|roles| roles.ingester.clone()) {
                let (tenant, upload) = (owner(number).parse::<TenantId>().unwrap(), upload.clone());
                let table =
                    roles.unwrap().views.current().tables.as_ref().unwrap().table_at(i64::MAX).version();
                let taken = async move { ingester.append(shard, table, &tenant, vec![upload]).await };
                if let Ok(stored) = run_on(cluster.catalog(&leader).0, taken).await {
                    return stored.into_iter().next().unwrap().unwrap().new;
                }
            }
            cluster.sleep_briefly().await;
        }
    };
    cluster.run_with_deadline("a leader takes it", planting).await as u64
}

/// Sends one to a cluster; how many of its records were new, and how many repeats.
pub async fn send(cluster: &TestCluster, place: usize, number: usize) -> (u64, u64) {
    push(cluster, place, owner(number), labels(number), &profile(number)).await
}

/// Sends any, likewise.
pub async fn push(
    cluster: &TestCluster,
    place: usize,
    tenant: &str,
    labels: Vec<(String, String)>,
    profile: &Profile,
) -> (u64, u64) {
    let series =
        PushedSeries { labels, profiles: vec![PushedProfile { pprof: encode(profile).into(), id: None }] };
    let (runtime, distributor) = cluster.distributor(place);
    let tenant: TenantId = tenant.parse().unwrap();
    let pushed = run_on(runtime, async move { distributor.push_series(&tenant, vec![series]).await });
    let receipt = pushed.await.unwrap();
    (receipt.new as u64, receipt.repeats as u64)
}
