//! Bits that flip in a bucket: the answer of a block is the right one, or an error that says where the damage is; that of
//! many blocks has all others, and names those that are damaged.

use athanor_block::{META_FILE, PARQUET_FILES};
use athanor_chassis::{ErrorCode, Status};

use super::*;

/// What each question of a new gateway says; `Ok` if it is the right answer.
async fn asked(bucket: &Bucket, asks: &[(ProfileQuery, String)], what: &str) -> Vec<Result<(), Status>> {
    let gateway = gateway(bucket, &config());
    let mut all = Vec::new();
    for (ask, expected) in asks {
        let question = BlockQuery::new(tenant(), ask.clone());
        let whole = ask.selection.time.from == 0;
        let answered =
            gateway.query_block(&question, &BlockTarget::without_duplicates(block(1), whole)).await;
        all.push(answered.map(|(partial, _)| assert!(said(&partial) == *expected, "{what}: another answer")));
    }
    all
}

fn asks(source: &MemorySource) -> Vec<(ProfileQuery, String)> {
    let points = QueryKind::Points(athanor_query::TimeSeriesQuery {
        steps: athanor_query::TimeGrid { start: at(0), step: at(10), count: 9 },
        mean: true,
        ..athanor_query::TimeSeriesQuery::default()
    });
    let stacks = QueryKind::Profile(StackFilter::default(), None);
    let asks = [
        tree("{}", 0, 60),
        tree(r#"{pod="pod-1"}"#, 15, 60),
        ask("{}", 0, 60, points),
        ask("{}", 0, 60, stacks),
    ];
    asks.map(|ask| (ask.clone(), said(&expected(&ask, source)))).to_vec()
}

async fn flip(bucket: &Bucket, file: &str, at: usize, bit: u8) {
    bucket.tamper(block(1), file, |bytes| bytes[at] ^= 1 << bit).await;
}

/// Every byte of every file of a small block, a bit of each.
#[tokio::test]
async fn no_flipped_bit_is_drawn() {
    let bucket = Bucket::new();
    let source = profiles(0..2, &[10, 20], 5);
    let meta = bucket.put(block(1), &[("shop", profiles(0..2, &[10, 20], 5))]).await;
    // One reads rows and series, the other sums, profiles and names.
    let asks = asks(&source).split_off(1).into_iter().step_by(2).collect::<Vec<_>>();
    let mut noticed = 0;
    for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
        let length = meta.file(file).map_or_else(|_| meta.encode().len() as u64, |file| file.bytes);
        for place in 0..length as usize {
            let what = format!("byte {place} of {file}");
            flip(&bucket, file, place, (place % 8) as u8).await;
            for answered in asked(&bucket, &asks, &what).await {
                let Err(status) = answered else { continue };
                noticed += 1;
                let is_named =
                    status.message.contains(file) && status.message.contains(&block(1).to_string());
                assert!(status.code == ErrorCode::DataLoss && is_named, "{what}: {status:?}");
            }
            flip(&bucket, file, place, (place % 8) as u8).await;
        }
    }
    // All files but the index of functions are read.
    assert!(noticed > 4_000, "{noticed}");
    assert!(asked(&bucket, &asks, "nothing").await.iter().all(Result::is_ok));
}

/// What can be read is answered: not one damaged block hides what others have.
#[tokio::test]
async fn one_damaged_block_takes_no_other_along() {
    let bucket = Bucket::new();
    let of = |number: u128| profiles(number as u32..number as u32 + 2, &[10, 20], 5);
    for number in 1..=5 {
        bucket.put(block(number), &[("shop", of(number))]).await;
    }
    let asked = tree("{}", 0, 60);
    let all: Vec<BlockTarget> =
        (1..=6).map(|number| BlockTarget::without_duplicates(block(number), true)).collect();
    let gateway = gateway(&bucket, &config());
    for (harm, file) in [(0, "rollup.parquet"), (1, "series.parquet"), (2, META_FILE)] {
        let sound = |bytes: &mut Vec<u8>| bytes.clone();
        let mut kept = Vec::new();
        bucket.tamper(block(3), file, |bytes| kept = sound(bytes)).await;
        bucket
            .tamper(block(3), file, |bytes| match harm {
                0 => bytes[20] ^= 4,
                1 => bytes.truncate(9),
                _ => bytes.clear(),
            })
            .await;
        let answer =
            with(&bucket, None, &config()).query_blocks(&tenant(), asked.clone(), all.clone()).await.unwrap();
        assert_eq!(answer.met.gone, [block(6)]);
        let [(damaged, why)] = &answer.met.unread[..] else { panic!("{:?}", answer.met.unread) };
        assert_eq!((*damaged, why.code), (block(3), ErrorCode::DataLoss), "{file}");
        assert!(why.message.contains(file) && why.message.contains(&block(3).to_string()), "{why}");
        let mut received = athanor_query::PartialChunkBuffer::default();
        answer.pieces.for_each(|piece| received.push(&piece).unwrap());
        let found = received.unpack(&asked).unwrap();
        let others: Vec<MemorySource> = [1, 2, 4, 5].into_iter().map(of).collect();
        let sources = others.iter().map(|source| source as &dyn athanor_profile::ProfileSource);
        let expected = athanor_query::run_all(&asked, sources.collect::<Vec<_>>()).unwrap();
        assert_eq!(said(&found), said(&expected), "{file}");
        bucket.tamper(block(3), file, |bytes| *bytes = kept).await;
    }
    let answer = gateway.query_blocks(&tenant(), asked, all).await.unwrap();
    assert_eq!((answer.met.unread.len(), answer.met.gone.len()), (0, 1));
}

/// A block of many pages: those that are not read may be as they like.
#[tokio::test]
async fn only_damage_that_is_read_is_told() {
    let bucket = Bucket::new();
    let source = profiles(0..30, &[10, 20, 30, 40], 800);
    let meta = bucket.put(block(1), &[("shop", profiles(0..30, &[10, 20, 30, 40], 800))]).await;
    let asks = asks(&source);
    let (mut right, mut told) = (0, 0);
    for file in ["rollup.parquet", "samples.parquet", "profiles.parquet"] {
        let length = meta.file(file).unwrap().bytes as usize;
        for place in (0..length).step_by(length / 23) {
            flip(&bucket, file, place, 3).await;
            for answered in asked(&bucket, &asks, &format!("byte {place} of {file}")).await {
                match answered {
                    Ok(()) => right += 1,
                    Err(status) => {
                        told += 1;
                        assert!(
                            status.message.contains(file) && status.code == ErrorCode::DataLoss,
                            "{status:?}"
                        );
                    }
                }
            }
            flip(&bucket, file, place, 3).await;
        }
    }
    assert!(right > 100 && told > 30, "{right} right, {told} told");
}

/// What came to harm on its way is fetched anew when it is asked for again, be it kept on disk, and the part in memory.
#[tokio::test]
async fn a_gateway_gets_over_damage_that_passes() {
    let (source, mut noticed) = (profiles(0..2, &[10, 20], 5), 0);
    let none = StoreGatewayConfig { block_cache_bytes: ByteSize::bytes(0), ..config() };
    let disks = [None, Some(MemoryDisk::new())];
    let ways = disks.iter().flat_map(|disk| [(disk, config()), (disk, none.clone())]);
    let files = PARQUET_FILES.into_iter().chain([META_FILE]);
    for ((disk, config), file) in ways.flat_map(|way| files.clone().map(move |file| (way.clone(), file))) {
        let bucket = Bucket::new();
        bucket.put(block(1), &[("shop", profiles(0..2, &[10, 20], 5))]).await;
        let gateway = with(&bucket, disk.as_ref(), &config);
        gateway.maintain_disk_cache().await;
        for ask in [tree("{}", 0, 60), tree("{}", 15, 60)] {
            let (question, whole) = (BlockQuery::new(tenant(), ask.clone()), ask.selection.time.from == 0);
            let place = BlockTarget::without_duplicates(block(1), whole);
            flip(&bucket, file, 20, 1).await;
            let answered = gateway.query_block(&question, &place).await;
            // What was damaged must not come to lie on disk, and stay there.
            gateway.maintain_disk_cache().await;
            flip(&bucket, file, 20, 1).await;
            match answered {
                Ok((answer, _)) => assert_eq!(said(&answer), said(&expected(&ask, &source))),
                Err(status) => {
                    assert_eq!(status.code, ErrorCode::DataLoss, "{file}: {status:?}");
                    noticed += 1;
                }
            }
            let answered = gateway.query_block(&question, &place).await;
            let (answer, _) = answered.unwrap_or_else(|status| panic!("{file} is sound again: {status:?}"));
            assert_eq!(said(&answer), said(&expected(&ask, &source)), "{file}");
            gateway.maintain_disk_cache().await;
        }
        let is_kept = gateway.stats().shelf.cache.entries > 0;
        assert_eq!(is_kept, disk.is_some());
        for name in disk.iter().flat_map(|disk| disk.list().unwrap()) {
            disk.as_ref().unwrap().remove(&name).unwrap();
        }
    }
    // Each of seven files that are read, and what one question has fetched another need not.
    assert!(noticed >= 4 * 7, "{noticed}");
}
