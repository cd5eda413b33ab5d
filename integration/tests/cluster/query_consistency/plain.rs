//! What was sent, in plain lists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_integration::cluster::{TestCluster, TestClusterBuilder, run_on};

use crate::query_consistency::asker::{Answers, Asker};
use crate::query_consistency::naive::{Ids, Naive, picked};
use crate::query_consistency::profiles::{IN_A_WAVE, TENANTS, millis, owner, send};
use crate::query_consistency::story::{BOTH, Story, is_equal, serving, three};
use crate::query_consistency::{explore, files, graphs, heat, lists, pages, points};

/// How often profiles come.
const WAVES: usize = 3;

/// Heads are cut when they are told to.
pub fn told() -> TestClusterBuilder {
    three().config(|config| {
        config.cluster.initial_slots = Some(3);
        config.ingester.flush.max_head_age = Duration::from_secs(24 * 3600);
    })
}

/// Whose profiles a question is about, and of which time.
pub type Part = (&'static str, [i64; 2]);

/// All of the time, and of all tenants a part of it that begins and ends between profiles.
pub fn parts(count: usize) -> Vec<Part> {
    let all = [TENANTS[0], TENANTS[1], BOTH].map(|tenants| (tenants, [millis(0), millis(count)]));
    let part = (BOTH, [millis(count / 4) + 2_000, millis(count - count / 6) - 1_000]);
    all.into_iter().chain([part]).collect()
}

pub fn naive_answers(naive: &Naive) -> Answers {
    let all = [
        lists::expected,
        graphs::expected,
        points::expected,
        heat::expected,
        pages::expected,
        files::expected,
        explore::expected,
    ];
    all.into_iter().flat_map(|expected| expected(naive)).collect()
}

pub async fn all_answers(asker: &Asker) -> Answers {
    let mut all = lists::asked(asker).await;
    all.extend(graphs::asked(asker).await);
    all.extend(points::asked(asker).await);
    all.extend(heat::asked(asker).await);
    all.extend(pages::asked(asker).await);
    all.extend(files::asked(asker).await);
    all.extend(explore::asked(asker).await);
    all
}

/// About all of the time each question has another answer than before, and than where nothing is.
fn says_something(before: &BTreeMap<Part, Answers>, now: &BTreeMap<Part, Answers>) {
    for ((tenants, times), answers) in now.iter().filter(|((_, times), _)| times[0] == millis(0)) {
        let nothing = naive_answers(&Naive::of(0..0, tenants, *times, &Arc::default()));
        let earlier = before.iter().find(|((others, at), _)| others == tenants && at[0] == times[0]);
        for (question, answer) in answers {
            assert!(*answer != nothing[question], "{question} of {tenants} has no answer");
            let same = earlier.is_some_and(|(_, earlier)| *answer == earlier[question]);
            assert!(!same, "{question} of {tenants} has the same answer again");
        }
    }
}

/// Ids are the same wherever the records lie.
pub async fn ids(cluster: &TestCluster, place: usize, count: usize) -> Ids {
    let mut all = Ids::new();
    for tenant in TENANTS {
        let asker = Asker::of_all(cluster, place, tenant, count);
        all.extend(run_on(cluster.querier(place).0, async move { asker.ids().await }).await);
    }
    all
}

/// Asks one of the queriers everything about each part, and compares.
async fn compare_parts(
    cluster: &TestCluster,
    place: usize,
    expected: &BTreeMap<Part, Answers>,
    known: &(usize, Arc<Ids>),
) {
    let (count, known) = known;
    assert_eq!(ids(cluster, place, *count).await, **known);
    for (&(tenants, [start, end]), expected) in expected {
        let (ids, picked) = (Arc::clone(known), picked(*count));
        let asker = Asker { start, end, picked, ids, ..Asker::of_all(cluster, place, tenants, *count) };
        let found = run_on(cluster.querier(place).0, async move { all_answers(&asker).await }).await;
        is_equal(&found, expected, &format!("{tenants} from {start} to {end}, {count} profiles"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_cut_and_replaced_meanwhile_answers_are_those_of_plain_lists() {
    let moving = told().start().await;
    moving.wait_for_view("slots are open", |view| serving(view) == 3).await;
    let (mut story, mut before, mut known) = (Story::default(), BTreeMap::new(), Ids::new());
    for wave in 0..WAVES {
        let count = (wave + 1) * IN_A_WAVE;
        for number in wave * IN_A_WAVE..count {
            let (new, repeats) = send(&moving, number, number).await;
            // Where the lead moved meanwhile, it may have been sent twice.
            assert!(new + repeats > 0, "profile {number} of {}", owner(number));
        }
        let told = ids(&moving, 0, count).await;
        assert!(known.iter().all(|(record, id)| told.get(record) == Some(id)), "an id has changed");
        known.clone_from(&told);
        let told = Arc::new(told);
        let of_part = |part: Part| (part, naive_answers(&Naive::of(0..count, part.0, part.1, &told)));
        let expected: BTreeMap<Part, Answers> = parts(count).into_iter().map(of_part).collect();
        says_something(&before, &expected);
        let known = (count, Arc::clone(&told));
        story
            .goes_on(&moving, wave, async |place| compare_parts(&moving, place, &expected, &known).await)
            .await;
        before = expected;
    }
    story.check(WAVES);
}
