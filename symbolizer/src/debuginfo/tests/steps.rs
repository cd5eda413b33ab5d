//! Clients do whatever they may in any order.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Begin(bool),
    Send(usize, u8),
    Cut(usize),
    Finish(usize),
    Delete,
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(Step::Begin),
        (0..4usize, 0..3u8).prop_map(|(which, fill)| Step::Send(which, fill)),
        (0..4usize).prop_map(Step::Cut),
        (0..4usize).prop_map(Step::Finish),
        Just(Step::Delete),
        Just(Step::Wait),
    ]
}

/// Does the steps; what is there must always be the bytes of an upload that was finished.
async fn played(steps: Vec<Step>) {
    let world = World::new();
    let mut ids: Vec<String> = Vec::new();
    let mut sent: HashMap<String, u8> = HashMap::new();
    let mut finished: Vec<u8> = Vec::new();
    let of = |ids: &[String], which: usize| ids.len().checked_sub(1 + which).map(|place| ids[place].clone());
    for step in steps {
        world.hand.advance(Duration::from_millis(1));
        match step {
            Step::Begin(force) => ids.extend(world.initiate("hash", force, 100).await.ok()),
            Step::Send(which, fill) => {
                if let Some(id) = of(&ids, which)
                    && world.send(&id, &elf(100, fill)).await.is_ok()
                {
                    assert_eq!(*sent.entry(id).or_insert(fill), fill, "only the first file counts");
                }
            }
            Step::Cut(which) => {
                if let Some(id) = of(&ids, which) {
                    let mut cut = World::messages(&id, &[&elf(UPLOAD_PART_BYTES, 9)]);
                    cut.push(Err(Status::new(ErrorCode::Cancelled, "gone")));
                    assert!(world.debuginfo.upload(&world.tenant, stream::iter(cut)).await.is_err());
                    world.settled().await;
                }
            }
            Step::Finish(which) => {
                if let Some(id) = of(&ids, which)
                    && world.finish(&id).await.is_ok()
                {
                    finished.push(sent[&id]);
                }
            }
            Step::Delete => {
                let asked = pyroscope::DeleteDebuginfoRequest { gnu_build_id: BUILD.to_owned() };
                world.debuginfo.delete_debuginfo(&world.tenant, asked).await.unwrap();
                assert!(world.there().await.is_none());
                finished.clear();
            }
            Step::Wait => world.hand.advance(18 * MINUTE),
        }
        match world.there().await {
            Some(bytes) => assert!(finished.iter().any(|&fill| elf(100, fill) == bytes)),
            None => assert!(finished.is_empty()),
        }
        assert!(world.keys().await.len() <= 4 * MAX_PENDING_UPLOADS, "what is over goes");
    }
}

#[tokio::test]
async fn what_is_finished_stays_while_others_are_under_way() {
    let forced = Step::Begin(true);
    played(vec![Step::Begin(false), forced.clone(), Step::Send(1, 0), Step::Finish(1), forced]).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_clients_do_what_is_there_was_finished(steps in prop::collection::vec(step(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(played(steps));
    }
}
