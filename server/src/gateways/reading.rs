//! Blocks for which no gateway answers are read by whoever asks.

use athanor_block::{FILES, Folder, Held, META, MemoryFolder, write_held};
use athanor_chassis::{ByteSize, Clock, Compute, Limits, Overrides, Random};
use athanor_profile::source::MemorySource;
use athanor_profile::{Labels, Profile, ValueType};
use athanor_proto::types::v1::LabelValuesRequest;
use athanor_querier::{Config as Queries, Deps, Doubts, Plan, Querier, Reader, Sources, Times};
use athanor_query::{Values, What};
use athanor_storage::path::{FileName, Key, Owner};
use athanor_storage::{Config as Bucket, Store, StoreDeps};
use athanor_store_gateway::{Blocks, Config};

use super::*;
use crate::hedges::HedgeCounts;

const BLOCK: BlockId = BlockId::from_number(7);

/// A block that belongs to others, of whom none can be reached.
struct Elsewhere(Gateways);

#[async_trait]
impl Sources for Elsewhere {
    async fn plan(&self, _: &TenantId, _: &Ask, _: &Doubts) -> Result<Plan, Status> {
        let blocks = vec![Owned { at: BlockAt::alone(BLOCK, true), owners: vec![2, 3] }];
        let away = Away { gateways: self.0.clone(), blocks };
        Ok(Plan { remote: vec![Arc::new(away)], ..Plan::default() })
    }

    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

/// A bucket with one block of so many pods.
async fn bucket(pods: u32) -> Store {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[1]);
    let mut held = MemorySource::default();
    for pod in 0..pods {
        let labels = Labels::new([("pod".to_owned(), format!("pod-{pod:040}"))]);
        held.add(&labels, &profile, u128::from(pod) + 1);
    }
    let folder = MemoryFolder::default();
    write_held(&folder, "7", None, [("anonymous", &held as &dyn Held)].into_iter()).unwrap();
    let deps = StoreDeps { clock: Clock::system(), random: Random::seeded(1) };
    let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
    for file in FILES.into_iter().chain([META]) {
        let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
        let key =
            Key::Block { owner: Owner::Shared, block: BLOCK.number(), file: FileName::new(file).unwrap() };
        store.create(&key, bytes).await.unwrap();
    }
    store
}

#[tokio::test]
async fn what_is_read_here_takes_the_room_of_the_query() {
    let config = Config { answer: ByteSize::kib(64), ..Config::default() };
    let blocks = Blocks::new(bucket(2_000).await, Compute::inline(), None, &config);
    let here = Arc::new(Gateway::new(Arc::new(blocks), &config));
    // As an answer to another node it is too large.
    let what = What::LabelValues(Values { name: "pod".to_owned(), ..Values::default() });
    let ask = Ask { what, ..Ask::default() };
    let at = vec![BlockAt::alone(BLOCK, true)];
    let refused = here.answer(&TenantId::anonymous(), ask, at).await.err().unwrap();
    assert!(refused.message.contains("the limit is 64KiB (store_gateway.answer)"), "{refused}");

    let (clock, hedges) = (Clock::system(), Arc::new(Hedges::new(10)));
    let ways = Ways { me: 1, ingester: None, loads: Arc::default(), afar: None, clock: clock.clone() };
    let gateways = Gateways { here, is_one: false, members: None, ways, hedges: Arc::clone(&hedges) };
    let sources = Arc::new(Elsewhere(gateways));
    let overrides = Overrides::new(Limits::default());
    let deps = Deps { sources, overrides, clock, compute: Compute::inline() };
    let querier = Querier::new(Queries::default(), deps);
    let request =
        LabelValuesRequest { name: "pod".to_owned(), start: 1, end: 10, ..LabelValuesRequest::default() };
    let values = querier.label_values(&Reader::of(TenantId::anonymous()), request).await.unwrap();
    assert_eq!((values.names.len(), values.names[17].as_str()), (2_000, format!("pod-{:040}", 17).as_str()));
    // Both others were tried, for one call.
    assert_eq!(hedges.counts(), HedgeCounts { calls: 1, second: 0, won: 0 });
}
