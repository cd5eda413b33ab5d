//! A million values of a label: of heads, of blocks, and of peers.

use std::ops::Range;
use std::sync::Arc;

use athanor_block::{Block, Held, MemoryFolder, PartSource, write_held};
use athanor_chassis::{ByteSize, Clock, Code, Compute, Limits, Overrides, Status, TenantId, Timestamp};
use athanor_profile::source::{EachRequests, EachRows, Extent, MemorySource, ReadNames};
use athanor_profile::{Labels, Profile, ProfileRow, Series, Source, SourceError, ValueType};
use athanor_proto::types::v1::{LabelValuesRequest, LabelValuesResponse};
use athanor_querier::{Asked, Config, Deps, Doubts, Inbox, Plan, Querier, Reader, Remote, Sources, Times};
use athanor_query::{Ask, answer};

const TENANT: &str = "acme";
const MILLION: u32 = 1_000_000;
/// Where pods lie: some twice.
const HEAD: Range<u32> = 0..400_000;
const BLOCKS: [Range<u32>; 2] = [398_000..401_000, 400_500..402_000];
const PEERS: [Range<u32>; 2] = [402_000..750_000, 700_000..MILLION];
/// More than the largest answer of a peer may have if names were short.
const PADDING: usize = 60;

fn pod(number: u32) -> String {
    format!("pod-{number:07}-{:x<PADDING$}", "")
}

fn labels(number: u32) -> Labels {
    let labels = [("__name__", "process_cpu".to_owned()), ("pod", pod(number))];
    Labels::new(labels.map(|(name, value)| (name.to_owned(), value)))
}

/// As much of some pods as says that there are profiles of them.
#[derive(Clone)]
struct Pods {
    series: Arc<[Series]>,
    profiles: Arc<[ProfileRow]>,
}

impl Pods {
    fn of(pods: Range<u32>) -> Self {
        let value = ValueType::new("cpu", "nanoseconds");
        let series = pods.clone().map(|pod| Series::new(labels(pod), value.clone(), value.clone()));
        let row = |series| ProfileRow { series, time: 5_000_000, ..ProfileRow::default() };
        Pods { series: series.collect(), profiles: (0..pods.len() as u32).map(row).collect() }
    }
}

impl Source for Pods {
    fn series(&self) -> Result<Arc<[Series]>, SourceError> {
        Ok(Arc::clone(&self.series))
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(Arc::clone(&self.profiles))
    }
    fn totals(&self, _: &[u32]) -> Result<Vec<i64>, SourceError> {
        Ok(Vec::new())
    }
    fn rows(&self, _: &[u32], _: &mut EachRows<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn rows_of_requests(&self, _: &[u32], _: &mut EachRequests<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn extent(&self, _: &[u32], _: bool) -> Result<Extent, SourceError> {
        Ok(Extent::default())
    }
    fn names(&self, _: &mut ReadNames<'_>) -> Result<(), SourceError> {
        Ok(())
    }
}

/// The same in a block.
fn block(pods: Range<u32>) -> Arc<dyn Source> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[1]);
    let mut source = MemorySource::default();
    pods.for_each(|pod| source.add(&labels(pod), &profile, u128::from(pod) + 1));
    let folder = MemoryFolder::default();
    write_held(&folder, "held", None, [(TENANT, &source as &dyn Held)].into_iter()).expect("it is written");
    let block = Block::open(Arc::new(folder)).expect("a block");
    Arc::new(PartSource::new(Arc::new(block), TENANT, Compute::inline()).expect("a part"))
}

/// Answers in pieces, as from afar.
struct Peer(Pods);

#[async_trait::async_trait]
impl Remote for Peer {
    async fn ask(&self, _: &TenantId, ask: &Ask, inbox: &mut Inbox) -> Result<(), Asked> {
        let partial = answer(ask, [&self.0 as &dyn Source])?;
        let pieces = partial.pack().map_err(|error| Status::of(&error))?;
        pieces.into_iter().try_for_each(|piece| inbox.piece(&piece))?;
        Ok(inbox.end().await?)
    }
}

struct Everywhere {
    sources: Vec<Arc<dyn Source>>,
    peers: Vec<Arc<dyn Remote>>,
}

#[async_trait::async_trait]
impl Sources for Everywhere {
    async fn plan(&self, _: &TenantId, _: &Ask, _: &Doubts) -> Result<Plan, Status> {
        Ok(Plan { remote: self.peers.clone(), ..Plan::of(self.sources.clone()) })
    }

    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

#[tokio::test]
async fn a_million_values_are_answered_within_the_budget() {
    let sources = std::iter::once(Arc::new(Pods::of(HEAD)) as Arc<dyn Source>).chain(BLOCKS.map(block));
    let peers = PEERS.map(|pods| Arc::new(Peer(Pods::of(pods))) as Arc<dyn Remote>);
    let everywhere = Arc::new(Everywhere { sources: sources.collect(), peers: peers.into() });
    let ask = async |config: Config, prefix: &str, limit: i64| {
        let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
        let sources: Arc<dyn Sources> = Arc::<Everywhere>::clone(&everywhere);
        let deps =
            Deps { sources, overrides: Overrides::new(Limits::default()), clock, compute: Compute::inline() };
        let request = LabelValuesRequest {
            name: "pod".to_owned(),
            prefix: prefix.to_owned(),
            limit,
            start: 1,
            end: 10,
            ..LabelValuesRequest::default()
        };
        Querier::new(config, deps).label_values(&Reader::parse(TENANT).expect("a tenant"), request).await
    };
    let lies = |number: u32| {
        let places = [HEAD].into_iter().chain(BLOCKS).chain(PEERS);
        places.filter(|place| place.contains(&number)).count() as i64
    };
    let is = |answer: LabelValuesResponse, pods: Range<u32>, more: bool| {
        assert_eq!((answer.names.len(), answer.more), (pods.len(), more));
        for (number, (name, count)) in pods.zip(answer.names.iter().zip(&answer.counts)) {
            assert_eq!((name, *count), (&pod(number), lies(number)));
        }
    };
    let all = ask(Config::default(), "", 0).await.expect("all of them");
    is(all, 0..MILLION, false);
    is(ask(Config::default(), "pod-0400", 0).await.expect("some"), 400_000..401_000, false);
    // What does not fit is refused, and says with which numbers; less of it is answered in the same room.
    let small = || Config { answer: ByteSize::mib(16), answers: ByteSize::mib(64), ..Config::default() };
    let refused = ask(small(), "", 0).await.expect_err("it takes more");
    assert_eq!(refused.code, Code::Invalid);
    assert!(refused.message.contains("the limit is 16MiB (querier.answer)"), "{refused}");
    is(ask(small(), "", 1_000).await.expect("the first"), 0..1_000, true);
}
