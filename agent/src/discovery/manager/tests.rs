use std::collections::HashMap;

use async_trait::async_trait;
use athanor_chassis::Timestamp;
use athanor_chassis::time::clock::ManualClock;
use athanor_profile::Labels;

use super::*;

/// Factory of discoverers that a test drives. A discoverer is known by the name of its first file.
#[derive(Default)]
struct TestFactory {
    senders: Mutex<HashMap<String, mpsc::Sender<Vec<TargetGroup>>>>,
    started: Mutex<Vec<String>>,
    stopped: Mutex<Vec<String>>,
}

struct TestDiscoverer {
    name: String,
    factory: Arc<TestFactory>,
}

/// Factory as the manager holds it.
struct SharedFactory(Arc<TestFactory>);

impl DiscovererFactory for SharedFactory {
    fn create(&self, settings: &DiscoverySettings) -> Result<Arc<dyn Discoverer>, DiscoveryError> {
        let DiscoverySettings::File(file) = settings else {
            return Err(DiscoveryError::Settings { reason: "no".to_owned() });
        };
        let name = file.files[0].clone();
        self.0.started.lock().push(name.clone());
        Ok(Arc::new(TestDiscoverer { name, factory: Arc::clone(&self.0) }))
    }
}

#[async_trait]
impl Discoverer for TestDiscoverer {
    async fn run(&self, updates: mpsc::Sender<Vec<TargetGroup>>, stop: CancellationToken) {
        let guard = StopGuard(self);
        self.factory.senders.lock().insert(self.name.clone(), updates);
        stop.cancelled().await;
        drop(guard);
    }
}

struct StopGuard<'a>(&'a TestDiscoverer);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.factory.stopped.lock().push(self.0.name.clone());
    }
}

struct Fixture {
    manager: DiscoveryManager,
    factory: Arc<TestFactory>,
    stats: Arc<DiscoveryStats>,
    hand: ManualClock,
}

impl Fixture {
    fn new() -> Self {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let factory = Arc::new(TestFactory::default());
        let stats = Arc::new(DiscoveryStats::default());
        let tasks = TaskGroup::new(Clock::system(), 100);
        let shared = Arc::new(SharedFactory(Arc::clone(&factory)));
        let manager = DiscoveryManager::new(tasks, clock, shared, Arc::clone(&stats));
        Self { manager, factory, stats, hand }
    }

    fn apply(&self, jobs: &[(&str, &[&str])]) {
        let jobs: Vec<JobDiscovery> = jobs.iter().map(|(job, names)| job_discovery(job, names)).collect();
        assert!(self.manager.apply(&jobs).is_empty());
    }

    async fn send(&self, name: &str, groups: &[(&str, &str)]) {
        let sender = loop {
            if let Some(sender) = self.factory.senders.lock().get(name).cloned() {
                break sender;
            }
            tokio::task::yield_now().await;
        };
        let group = |(source, address): &(&str, &str)| group(source, address);
        sender.send(groups.iter().map(group).collect()).await.unwrap();
    }

    fn subscribe(&self, job: &str) -> watch::Receiver<TargetGroups> {
        self.manager.subscribe(job).unwrap()
    }
}

fn job_discovery(job: &str, names: &[&str]) -> JobDiscovery {
    let file = |name: &&str| {
        let files = vec![(*name).to_owned()];
        DiscoverySettings::File(super::super::FileDiscoverySettings {
            files,
            refresh_interval: PUBLISH_DELAY,
        })
    };
    JobDiscovery { job: job.to_owned(), discoverers: names.iter().map(file).collect() }
}

fn group(source: &str, address: &str) -> TargetGroup {
    let labels = Labels::new([("__address__".to_owned(), address.to_owned())]);
    let targets = if address.is_empty() { Vec::new() } else { vec![labels] };
    TargetGroup { source: source.to_owned(), targets, is_address_untrusted: false }
}

fn addresses(groups: &watch::Receiver<TargetGroups>) -> Vec<String> {
    let groups = groups.borrow().clone().unwrap_or_default();
    let targets = groups.iter().flat_map(|group| &group.targets);
    targets.map(|labels| labels.get("__address__").unwrap().to_owned()).collect()
}

#[tokio::test]
async fn groups_are_merged_by_discoverer_and_source() {
    let fixture = Fixture::new();
    fixture.apply(&[("job", &["one", "two"])]);
    let mut targets = fixture.subscribe("job");
    assert_eq!(addresses(&targets), [""; 0]);
    fixture.send("two", &[("a", "2a"), ("b", "2b")]).await;
    targets.changed().await.unwrap();
    fixture.send("one", &[("a", "1a")]).await;
    targets.changed().await.unwrap();
    assert_eq!(addresses(&targets), ["1a", "2a", "2b"]);
    fixture.send("two", &[("a", ""), ("b", "2c")]).await;
    fixture.hand.wait_for_sleepers(1).await;
    fixture.hand.advance(PUBLISH_DELAY);
    targets.changed().await.unwrap();
    assert_eq!(addresses(&targets), ["1a", "2c"]);
    assert_eq!(fixture.stats.updates(DiscoveryKind::File), 3);
}

#[tokio::test]
async fn burst_of_updates_is_published_once() {
    let fixture = Fixture::new();
    fixture.apply(&[("job", &["one"])]);
    let mut targets = fixture.subscribe("job");
    fixture.send("one", &[("a", "1")]).await;
    targets.changed().await.unwrap();
    for address in ["2", "3", "4"] {
        fixture.send("one", &[("a", address)]).await;
    }
    while fixture.stats.updates(DiscoveryKind::File) < 4 {
        tokio::task::yield_now().await;
    }
    assert!(!targets.has_changed().unwrap());
    fixture.hand.wait_for_sleepers(1).await;
    fixture.hand.advance(PUBLISH_DELAY);
    targets.changed().await.unwrap();
    assert_eq!(addresses(&targets), ["4"]);
    assert!(!targets.has_changed().unwrap());
}

#[tokio::test]
async fn new_configuration_touches_only_what_differs() {
    let fixture = Fixture::new();
    fixture.apply(&[("same", &["one"]), ("gone", &["two"]), ("shares", &["one", "three"])]);
    assert_eq!(*fixture.factory.started.lock(), ["one", "two", "three"]);
    let mut same = fixture.subscribe("same");
    let mut gone = fixture.subscribe("gone");
    fixture.send("one", &[("a", "1")]).await;
    same.changed().await.unwrap();
    fixture.apply(&[("new", &["four"]), ("same", &["one"]), ("shares", &["one"])]);
    assert_eq!(*fixture.factory.started.lock(), ["one", "two", "three", "four"]);
    assert!(!same.has_changed().unwrap());
    assert!(gone.changed().await.is_err(), "the job was removed");
    assert_eq!(addresses(&fixture.subscribe("shares")), ["1"]);
    assert!(fixture.manager.subscribe("gone").is_none());
    while fixture.factory.stopped.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    let mut stopped = fixture.factory.stopped.lock().clone();
    stopped.sort();
    assert_eq!(stopped, ["three", "two"]);
}

#[tokio::test]
async fn replaced_discoverer_keeps_its_targets_until_the_new_one_is_synced() {
    let fixture = Fixture::new();
    fixture.apply(&[("job", &["old"])]);
    let mut targets = fixture.subscribe("job");
    fixture.send("old", &[("a", "1"), ("b", "2")]).await;
    targets.changed().await.unwrap();
    fixture.apply(&[("job", &["new"])]);
    assert_eq!(addresses(&targets), ["1", "2"]);
    assert!(!targets.has_changed().unwrap());
    fixture.send("new", &[("a", "1"), ("c", "3")]).await;
    targets.changed().await.unwrap();
    assert_eq!(addresses(&targets), ["1", "3"]);
}

#[tokio::test]
async fn first_update_is_published_even_if_it_is_empty() {
    let fixture = Fixture::new();
    fixture.apply(&[("job", &["one"])]);
    let mut targets = fixture.subscribe("job");
    assert_eq!(*targets.borrow(), None);
    fixture.send("one", &[]).await;
    targets.changed().await.unwrap();
    assert_eq!(addresses(&targets), [""; 0]);
    assert!(targets.borrow().is_some());
}

#[tokio::test]
async fn invalid_settings_are_returned_and_counted() {
    let fixture = Fixture::new();
    let invalid = DiscoverySettings::Static(Vec::new());
    let mut job = job_discovery("job", &["one"]);
    job.discoverers.push(invalid);
    let failed = fixture.manager.apply(&[job]);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, "job");
    assert_eq!(fixture.stats.errors(DiscoveryKind::Static), 1);
    assert_eq!(*fixture.factory.started.lock(), ["one"]);
}
