//! Profiles of a window: one per label set, with distinct ids and equal totals.

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_agent_ebpf::frame::PackedFrame;
use athanor_agent_ebpf::layout::FRAME_KERNEL_BIT;
use athanor_agent_ebpf::window::{CountedStack, FrameName, SampleWindow};
use athanor_chassis::{Random, TenantLimits};
use prost::Message;
use serde_json::json;

use super::made_up::{ReceivedProfile, RecordingSink, facts, labeler, received, window};
use crate::config::SymbolizeMode;
use crate::config::{RelabelRules, SamplerTenant};
use crate::sampling::encode_profile;
use crate::sampling::labels::{LabelDrop, LabelSettings};
use crate::sampling::uploads::{MAX_PROFILE_BYTES, MAX_PROFILE_STACKS, PendingUploads};
use crate::sampling::window_groups::WindowGroups;
use crate::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute};

fn uploads(window: SampleWindow, settings: LabelSettings) -> (Vec<Upload>, [u64; LabelDrop::ALL.len()]) {
    let WindowGroups { groups, dropped } = WindowGroups::new(&window, &mut labeler(settings), false);
    let mut pending = PendingUploads::new(
        window,
        groups,
        Arc::new(|window: &SampleWindow, stacks: &[usize]| {
            encode_profile(window, stacks, SymbolizeMode::Local)
        }),
        Random::from_seed(1),
    );
    let sink = RecordingSink::default();
    while let Some(sampled) = pending.next_upload() {
        assert_eq!(
            sampled.samples as i64,
            received(std::slice::from_ref(&sampled.upload)).iter().map(|p| p.samples).sum::<i64>()
        );
        sink.uploads.lock().push(sampled.upload);
    }
    (sink.uploads.into_inner(), dropped)
}

#[test]
fn processes_with_equal_labels_share_one_profile() {
    let processes = [(facts(1, "/bin/shop"), 3), (facts(2, "/bin/cart"), 5), (facts(3, "/opt/shop"), 7)];
    let (uploads, dropped) = uploads(window(&processes), LabelSettings::default());
    assert_eq!(uploads.len(), 1);
    let profiles = received(&uploads);
    let counts: Vec<_> = profiles.iter().map(|p| (p.label("service_name").unwrap(), p.samples)).collect();
    assert_eq!(counts, [("cart", 5), ("shop", 10)]);
    assert_eq!(profiles[1].profile.sample.iter().map(|sample| sample.value[1]).sum::<i64>(), 100);
    assert_eq!(dropped, [0; 4]);
    let Upload { route, order, origin, tenant, .. } = &uploads[0];
    assert_eq!(
        (route, order, origin),
        (&UploadRoute::Push, &UploadOrder::Independent, &UploadOrigin::Scraped)
    );
    assert_eq!(tenant, &None);
}

#[test]
fn samples_of_profiles_and_dropped_ones_are_those_of_the_window() {
    let rule =
        json!({"source_labels": ["__meta_process_executable_name"], "regex": "p1.*", "action": "drop"});
    let rules = RelabelRules::from_json(&[rule]).unwrap();
    let processes: Vec<_> =
        (0..200).map(|pid| (facts(pid, &format!("/bin/p{pid}")), u64::from(pid))).collect();
    let mut window = window(&processes);
    window.stacks[199].process = 1_000_000;
    let total: u64 = window.stacks.iter().map(|stack| stack.samples).sum();
    let (uploads, dropped) = uploads(window, LabelSettings { rules, ..LabelSettings::default() });
    let profiles = received(&uploads);
    let delivered: i64 = profiles.iter().map(|profile| profile.samples).sum();
    assert_eq!(delivered as u64 + dropped.iter().sum::<u64>(), total);
    assert_eq!(dropped[LabelDrop::UnknownProcess as usize], 199);
    assert!(dropped[LabelDrop::Rule as usize] > 0);
    let ids: BTreeSet<&str> = profiles.iter().map(|profile| profile.id.as_str()).collect();
    assert_eq!(ids.len(), profiles.len());
    assert!(uploads.iter().all(|upload| upload.profiles <= 64) && uploads.len() == 2, "{}", uploads.len());
}

/// Returns a window with one process whose stacks have `depth` frames of their own.
fn busy_window(stacks: usize, depth: usize, name_bytes: usize) -> SampleWindow {
    let mut window = window(&[(facts(1, "/bin/shop"), 1)]);
    let template = window.stacks.pop().unwrap();
    for stack in 0..stacks {
        let codes = (0..depth).map(|frame| PackedFrame(FRAME_KERNEL_BIT | (stack * depth + frame) as u64));
        let frames: Arc<[PackedFrame]> = codes.collect();
        for frame in &*frames {
            let name = format!("{:0name_bytes$}", frame.0);
            let name = FrameName { function: name.into(), system_name: None, module: "[kernel]".into() };
            window.names.insert(frame.code(), name);
        }
        let samples = stack as u64 % 5 + 1;
        window.stacks.push(CountedStack { frames, samples, ..template.clone() });
    }
    window
}

#[test]
fn group_over_limits_of_servers_becomes_several_profiles() {
    let limits = TenantLimits::default();
    // Many stacks, many bytes, and a single stack that is too large to split.
    for (stacks, depth, name_bytes) in [(20_001, 1, 8), (3000, 20, 100), (2, 300, 8000)] {
        let window = busy_window(stacks, depth, name_bytes);
        let total: u64 = window.stacks.iter().map(|stack| stack.samples).sum();
        let nanos: u64 = window.stacks.iter().map(|stack| stack.nanos).sum();
        let (uploads, dropped) = uploads(window, LabelSettings::default());
        let profiles = received(&uploads);
        assert!(profiles.len() > 1, "{stacks} stacks of {depth} frames");
        assert_eq!(
            (profiles.iter().map(|profile| profile.samples).sum::<i64>(), dropped),
            (total as i64, [0; 4])
        );
        let nanos_of = |profile: &ReceivedProfile| {
            profile.profile.sample.iter().map(|sample| sample.value[1]).sum::<i64>()
        };
        assert_eq!(profiles.iter().map(nanos_of).sum::<i64>(), nanos as i64);
        let ids: BTreeSet<&str> = profiles.iter().map(|profile| profile.id.as_str()).collect();
        assert_eq!(ids.len(), profiles.len());
        for received in &profiles {
            assert_eq!(received.labels, profiles[0].labels);
            assert!(received.profile.sample.len() <= MAX_PROFILE_STACKS);
            assert!(received.profile.encoded_len() <= limits.max_profile_size_bytes.as_usize());
        }
        assert!(MAX_PROFILE_STACKS <= limits.max_profile_stacktrace_samples as usize);
        let is_single = |received: &&ReceivedProfile| received.profile.encoded_len() > MAX_PROFILE_BYTES;
        assert!(profiles.iter().filter(is_single).all(|received| received.profile.sample.len() == 1));
    }
}

#[test]
fn upload_has_one_tenant() {
    let tenant = SamplerTenant { label: Some("__meta_process_executable_name".to_owned()), fixed: None };
    let processes = [(facts(1, "/bin/b"), 1), (facts(2, "/bin/a"), 2), (facts(3, "/opt/b"), 4)];
    let (uploads, _) = uploads(window(&processes), LabelSettings { tenant, ..LabelSettings::default() });
    let sums: Vec<_> = uploads
        .iter()
        .map(|upload| {
            let samples: i64 =
                received(std::slice::from_ref(upload)).iter().map(|profile| profile.samples).sum();
            (upload.tenant.as_ref().unwrap().to_string(), samples)
        })
        .collect();
    assert_eq!(sums, [("a".to_owned(), 2), ("b".to_owned(), 5)]);
}

#[test]
fn thread_names_split_profiles_on_request() {
    let mut worker = facts(1, "/bin/shop");
    worker.comm = "worker".into();
    let mut two = window(&[(worker, 3), (facts(1, "/bin/shop"), 4)]);
    // Both stacks are of one process.
    two.processes.truncate(1);
    two.stacks[1].process = 0;
    let names = |by_thread: bool| -> Vec<Option<String>> {
        let groups = WindowGroups::new(&two, &mut labeler(LabelSettings::default()), by_thread).groups;
        groups.iter().map(|group| group.key.labels.get("thread_name").map(str::to_owned)).collect()
    };
    assert_eq!(names(false), [None]);
    assert_eq!(names(true), [Some("comm".to_owned()), Some("worker".to_owned())]);
}
