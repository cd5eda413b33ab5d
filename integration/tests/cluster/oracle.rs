//! What a cluster must hold, as naively as can be said: each profile has a function of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use athanor_catalog::{BlockListing, ShardLogRange};
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_distributor::{PushSummary, PushedProfile, PushedSeries};
use athanor_integration::cluster::{TestCluster, run_on};
use athanor_profile::formats::pprof::encode;
use athanor_profile::labeling::normalize::SERVICE_LABEL;
use athanor_profile::{Profile, ValueType};
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_querier::QueryContext;
use bytes::Bytes;

/// All of them are of this type.
pub const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// Of the first profile: no clock is near it, so that a table may hold from a time between two of them.
const BEGIN: i64 = 4_000_000_000_000_000_000;

/// Profiles that were sent.
#[derive(Default)]
pub struct Oracle {
    sent: Vec<Sent>,
}

struct Sent {
    series: PushedSeries,
    value: i64,
    acknowledged: bool,
}

/// What an answer says.
#[derive(Debug)]
pub struct Answer {
    /// By the name of the profile's own function.
    pub values: BTreeMap<String, i64>,
    /// One text for each thing that it lacks.
    pub warnings: Vec<String>,
}

impl Oracle {
    /// Makes a profile that no other is like; gives its number.
    pub fn make(&mut self) -> usize {
        let number = self.sent.len();
        let value = 100 + number as i64;
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        profile.header.time_nanos = time(number);
        let stack = profile.dictionary.intern_named_stack(["main", &name(number)].into_iter());
        profile.samples.push(stack, 0, &[value]);
        let pprof: Bytes = encode(&profile).into();
        let series =
            PushedSeries { labels: labels(number), profiles: vec![PushedProfile { pprof, id: None }] };
        self.sent.push(Sent { series, value, acknowledged: false });
        number
    }

    /// Sends profiles in one request, by one of the distributors.
    pub async fn send(
        &mut self,
        cluster: &TestCluster,
        place: usize,
        numbers: &[usize],
    ) -> Result<PushSummary, Status> {
        let receipt = self.sending(cluster, place, numbers).await;
        if receipt.is_ok() {
            numbers.iter().for_each(|&number| self.sent[number].acknowledged = true);
        }
        receipt
    }

    /// As [`send`](Self::send), beside other things: what comes of it is not remembered.
    pub fn sending<'c>(
        &self,
        cluster: &'c TestCluster,
        place: usize,
        numbers: &[usize],
    ) -> impl Future<Output = Result<PushSummary, Status>> + use<'c> {
        let series = numbers.iter().map(|&number| self.sent[number].series.clone()).collect();
        let (runtime, distributor) = cluster.distributor(place);
        run_on(runtime, async move { distributor.push_series(&TenantId::anonymous(), series).await })
    }

    /// Makes and sends so many, each in a request of its own; they must be stored.
    pub async fn store(&mut self, cluster: &TestCluster, count: usize) {
        self.store_at(cluster, &[0, 1, 2], count).await;
    }

    /// As [`store`](Self::store), by these distributors in turn.
    pub async fn store_at(&mut self, cluster: &TestCluster, places: &[usize], count: usize) {
        for place in places.iter().cycle().take(count) {
            let number = self.make();
            let receipt = self.send(cluster, *place, &[number]).await.unwrap();
            // A try whose answer was lost with who gave it may have stored it.
            assert_eq!(receipt.new + receipt.repeats, 1, "profile {number}");
        }
    }

    /// Makes and sends one, again and again until it is stored. Whoever refuses it must say that it may be sent again.
    pub async fn store_at_last(&mut self, cluster: &TestCluster, place: usize) {
        let number = self.make();
        let storing = async {
            while let Err(status) = self.send(cluster, place, &[number]).await {
                assert!(matches!(status.code, ErrorCode::Exhausted | ErrorCode::Unavailable), "{status:?}");
                cluster.sleep_briefly().await;
            }
        };
        cluster.run_with_deadline("a profile is stored at last", storing).await;
    }

    /// Sends again what was acknowledged, or may be stored; nothing of it may count.
    pub async fn repeat(&mut self, cluster: &TestCluster, place: usize) {
        for number in 0..self.sent.len() {
            self.repeat_one(cluster, place + number, number).await;
        }
    }

    /// As [`repeat`](Self::repeat), some of it, by these distributors in turn.
    pub async fn repeat_at(&mut self, cluster: &TestCluster, places: &[usize], numbers: Range<usize>) {
        for (place, number) in places.iter().cycle().zip(numbers) {
            self.repeat_one(cluster, *place, number).await;
        }
    }

    async fn repeat_one(&mut self, cluster: &TestCluster, place: usize, number: usize) {
        let acknowledged = self.sent[number].acknowledged;
        let receipt = self.send(cluster, place, &[number]).await.unwrap();
        if acknowledged {
            let counted = (receipt.new, receipt.repeats);
            assert_eq!(counted, (0, 1), "profile {number} was acknowledged before");
        }
    }

    /// Sends some again where it may not be known that they are stored; gives how many were taken for new ones.
    pub async fn send_again(
        &mut self,
        cluster: &TestCluster,
        places: &[usize],
        numbers: Range<usize>,
    ) -> usize {
        let mut new = 0;
        for (place, number) in places.iter().cycle().zip(numbers) {
            let receipt = self.send(cluster, *place, &[number]).await.unwrap();
            assert_eq!(receipt.new + receipt.repeats, 1, "profile {number}");
            new += receipt.new;
        }
        new
    }

    /// Asks one of the queriers for everything.
    pub async fn ask(&self, cluster: &TestCluster, place: usize) -> Result<Answer, Status> {
        self.asked(cluster, place, 1).await
    }

    /// Asks one of the queriers for what was sent since a profile.
    pub async fn recent(&self, cluster: &TestCluster, place: usize, since: usize) -> Result<Answer, Status> {
        self.asked(cluster, place, time(since) / 1_000_000).await
    }

    async fn asked(&self, cluster: &TestCluster, place: usize, start: i64) -> Result<Answer, Status> {
        let asked = SelectMergeStacktracesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start,
            end: i64::MAX / 1_000_000 - 1,
            max_nodes: Some(0),
            ..SelectMergeStacktracesRequest::default()
        };
        let (runtime, querier) = cluster.querier(place);
        run_on(runtime, async move {
            let reader = QueryContext::for_tenant(TenantId::anonymous());
            let tree = querier.merged_tree(&reader, asked).await?;
            let own = tree.nodes().iter().filter(|node| tree.name(node).starts_with("own"));
            let values = own.map(|node| (tree.name(node).to_owned(), node.total)).collect();
            Ok(Answer { values, warnings: reader.warnings() })
        })
        .await
    }

    /// Compares an answer of a querier with what was sent: what was acknowledged is there, once; of the rest, what is
    /// there is there once.
    pub async fn check(&self, cluster: &TestCluster, place: usize) {
        let Answer { values, warnings } = self.ask(cluster, place).await.unwrap();
        assert_eq!(warnings, Vec::<String>::new(), "the answer is whole");
        for (number, sent) in self.sent.iter().enumerate() {
            match values.get(&name(number)) {
                Some(value) => assert_eq!(*value, sent.value, "profile {number} counts once"),
                None => assert!(!sent.acknowledged, "profile {number} was acknowledged and is not there"),
            }
        }
        assert!(values.len() <= self.sent.len());
    }

    /// Compares an answer that is not whole with what was sent: it says so, and what is there is there once. Gives what it
    /// says, and how many profiles it has.
    pub async fn check_part(&self, cluster: &TestCluster, place: usize) -> (String, usize) {
        let Answer { values, warnings } = self.ask(cluster, place).await.unwrap();
        for (own, value) in &values {
            let number = (0..self.sent.len()).find(|&number| name(number) == *own);
            let sent = &self.sent[number.expect("it was sent")];
            assert_eq!(*value, sent.value, "{own} counts once");
        }
        assert!(!warnings.is_empty(), "the answer is not whole, and says so");
        (warnings.join("; "), values.len())
    }

    /// Checks that the blocks of each shard follow each other without a gap up to its watermark, and do not overlap.
    /// All outputs of one merge have the log ranges of its inputs.
    pub async fn check_blocks(&self, cluster: &TestCluster, name: &str) {
        let (runtime, catalog) = cluster.catalog(name);
        let listed =
            run_on(runtime, async move { catalog.list_blocks(&TenantId::anonymous(), 0, i64::MAX).await })
                .await;
        let BlockListing { shards, blocks, .. } = listed.unwrap();
        let (flushed, merged): (Vec<_>, Vec<_>) = blocks.iter().partition(|block| block.level == 0);
        let merged: BTreeSet<ShardLogRange> = merged.iter().flat_map(|block| block.log_ranges()).collect();
        let mut ranges: Vec<ShardLogRange> =
            flushed.iter().flat_map(|block| block.log_ranges()).chain(merged).collect();
        ranges.sort_unstable();
        for shard in shards {
            let of_shard = ranges.iter().filter(|range| range.shard == shard.id);
            let end = of_shard.fold(0, |end, range| {
                assert_eq!(range.from, end, "blocks of shard {}", shard.id);
                range.to
            });
            assert_eq!(end, shard.watermark, "blocks of shard {}", shard.id);
        }
    }

    /// A profile, as it is sent.
    pub fn pprof(&self, number: usize) -> Bytes {
        self.sent[number].series.profiles[0].pprof.clone()
    }

    /// How many were sent.
    pub fn len(&self) -> usize {
        self.sent.len()
    }
}

/// Of a profile, as they are sent.
pub fn labels(number: usize) -> Vec<(String, String)> {
    let labels = [("__name__", "process_cpu".to_owned()), (SERVICE_LABEL, format!("service{}", number % 7))];
    labels.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// Of a profile, nanoseconds.
pub fn time(number: usize) -> i64 {
    BEGIN + number as i64 * 1_000_000
}

fn name(number: usize) -> String {
    format!("own{number}")
}
