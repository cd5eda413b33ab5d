//! Repair of stacks that Go truncated at the root.
//!
//! Go keeps a fixed number of frames of a stack and drops the ones beyond, which are its roots. A truncated
//! stack appears in graphs as if it began at a root of its own. Usually other stacks of the profile contain
//! the same frames and reach a root. The frames above them are then added above the truncated stack.
//!
//! ```text
//!  whole   main serve a b c … p q
//!  cut                a b c … p x y z      a … p are SHARED frames: main serve is missing
//! ```
//! A truncated stack has as many frames as Go keeps. For allocations, Go drops the innermost frames after the
//! truncation, which are those of its runtime. Such stacks may have a few frames less. A stack with a few
//! frames less is whole if it begins with a function with which a shorter stack begins. Among candidate
//! roots, the one of most other stacks wins, and of equals the shortest.
//!
//! If no other stack continues a truncated stack, [`TRUNCATED_ROOT_NAME`] is added above it, unless it begins
//! with a function with which a shorter stack begins.
//!
//! Depth counts frames, inlined calls included. Go 1.23 and later count locations in profiles other than CPU
//! profiles, and show more frames.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::decode::PprofDecoder;
use super::entries::TRUNCATED_ROOT_NAME;
use super::{DecodeError, DecodeLimits};
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::NO_ENTRY;
use crate::encoding::hash::{ContentHash, PrehashedMap};

/// Number of consecutive frames that two stacks must share before one supplies the roots of the other.
const MIN_SHARED_FRAMES: usize = 16;
/// Minimum number of locations in the deepest stack of a profile with truncated stacks.
const MIN_TRUNCATED_DEPTH: usize = MIN_SHARED_FRAMES + 8;
/// Frames that Go keeps in CPU profiles, and in all others: now, and before Go 1.23. In the others, Go may
/// drop up to `MAX_RUNTIME_FRAMES` frames of its runtime.
const CPU_DEPTH_LIMIT: usize = 64;
const OTHER_DEPTH_LIMITS: [usize; 2] = [128, 32];
const MAX_RUNTIME_FRAMES: usize = 4;
/// Older versions of Go show one inlined call beyond the frames that they keep.
const EXTRA_INLINED_FRAMES: usize = 1;
/// Maximum number of rounds. A repaired stack may supply the roots of others in the next round.
const MAX_REPAIR_ROUNDS: usize = 8;
/// Maximum numbers of locations that are visited and of candidate roots. A profile over one of them stays as
/// it is.
const MAX_LOCATIONS_VISITED: usize = 1 << 20;
const MAX_ROOT_CANDIDATES: usize = 1 << 16;
/// Multiplier of the rolling hash of a run.
const RUN_HASH_BASE: u64 = 0x9E37_79B9_7F4A_7C15;
const LONG_RUN_HASH_BASE: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

/// Truncated stacks that begin with the same frames, counted from the root.
#[derive(Default)]
struct StackGroup {
    members: Vec<usize>,
    /// Missing frames in [`PprofDecoder::roots`], the root first.
    root: Option<Range<usize>>,
}

/// Candidate for the missing frames of a group.
struct RootCandidate {
    votes: u32,
    length: usize,
    /// Index of a stack that has these frames.
    path: usize,
}

/// Rank of a candidate: votes, then fewer frames, then content hash.
type RootCandidateRank = (u32, Reverse<usize>, ContentHash);

/// Stacks of a profile, each from its root on.
struct StackPaths {
    places: Vec<u32>,
    /// Range of each stack in `places`, in the order of `walked`.
    spans: Vec<Range<usize>>,
    /// Stacks that reach a root.
    whole: Vec<usize>,
    /// Group of each stack, if the stack was truncated.
    group_of: Vec<Option<usize>>,
    groups: Vec<StackGroup>,
    /// Groups by the hash of their common frames.
    by_run: HashMap<u64, usize>,
    /// Stacks that were certainly truncated. They get the marker if their roots stay unknown.
    cut: Vec<usize>,
}

/// Depth at which Go truncated the stacks of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DepthCutoff {
    /// Set if the depth counts locations instead of frames.
    counts_locations: bool,
    /// Number that Go keeps.
    most: usize,
    /// Maximum number of runtime frames that may be missing.
    dropped: usize,
}

/// Depth of a stack, in frames and in locations.
#[derive(Clone, Copy)]
struct StackDepth {
    frames: usize,
    locations: usize,
}

impl DepthCutoff {
    /// Returns the cutoff for a profile with these deepest stacks, or `None` if no stack was truncated.
    fn from_deepest(deepest: StackDepth, on_cpu: bool) -> Option<Self> {
        let StackDepth { frames, locations } = deepest;
        if on_cpu {
            let counts_locations = frames != CPU_DEPTH_LIMIT;
            let is_cut = frames == CPU_DEPTH_LIMIT || locations == CPU_DEPTH_LIMIT;
            return is_cut.then_some(DepthCutoff { counts_locations, most: CPU_DEPTH_LIMIT, dropped: 0 });
        }
        OTHER_DEPTH_LIMITS.into_iter().find_map(|most| {
            let least = most - MAX_RUNTIME_FRAMES;
            let by_frames = locations <= most && (least..=most + EXTRA_INLINED_FRAMES).contains(&frames);
            let by_locations = (least..=most).contains(&locations);
            let cutoff = DepthCutoff { counts_locations: !by_frames, most, dropped: MAX_RUNTIME_FRAMES };
            (by_frames || by_locations).then_some(cutoff)
        })
    }

    fn depth(self, of: StackDepth) -> usize {
        if self.counts_locations { of.locations } else { of.frames }
    }
}

impl PprofDecoder {
    /// Adds the lost roots above truncated stacks, and the marker where they are unknown. Returns the number
    /// of repaired stacks.
    pub(super) fn repair_roots(&mut self, raw: &[u8], limits: &DecodeLimits) -> Result<usize, DecodeError> {
        // A location may have several frames, from inlined calls.
        if self.deepest < MIN_TRUNCATED_DEPTH || !self.is_of_go(raw) {
            return Ok(0);
        }
        let Some(mut paths) = self.paths(raw, limits)? else { return Ok(0) };
        let mut fresh = std::mem::take(&mut paths.whole);
        for _ in 0..MAX_REPAIR_ROUNDS {
            let Some(guesses) = self.find_candidates(&paths, &fresh) else { break };
            fresh = self.accept_candidates(&mut paths, guesses);
            if fresh.is_empty() {
                break;
            }
        }
        let mended = paths.groups.iter().filter_map(|group| Some((group.root.clone()?, &group.members)));
        let mut count = 0;
        for (root, members) in mended {
            for &member in members {
                count +=
                    usize::from(self.put_root(member, paths.own(member), root.clone(), limits.kept_depth));
            }
        }
        self.mark_truncated(&paths, limits.kept_depth);
        Ok(count)
    }

    /// Adds [`TRUNCATED_ROOT_NAME`] above truncated stacks that were not repaired.
    fn mark_truncated(&mut self, paths: &StackPaths, kept_depth: usize) {
        let is_mended =
            |at: usize| paths.group_of[at].is_some_and(|group| paths.groups[group].root.is_some());
        let unknown: Vec<usize> = paths.cut.iter().copied().filter(|&at| !is_mended(at)).collect();
        if unknown.is_empty() {
            return;
        }
        // This index is past those of the file's own locations.
        let place = self.locations.len() as u32;
        let mut named = Dictionary::default();
        let location = named.intern_named_location(TRUNCATED_ROOT_NAME);
        self.location_hashes.push(named.symbols.location_hash(location));
        self.resolved.push(NO_ENTRY);
        let start = self.roots.len();
        self.roots.push(place);
        for at in unknown {
            self.put_root(at, paths.own(at), start..start + 1, kept_depth);
        }
    }

    /// Returns whether the profile is one of Go. If the sender does not state it, function names decide.
    fn is_of_go(&self, raw: &[u8]) -> bool {
        self.sender.is_go.unwrap_or_else(|| {
            let names = self.functions.iter().filter_map(|function| usize::try_from(function.name).ok());
            let mut spans = names.filter_map(|name| self.strings.get(name));
            spans.any(|&(start, end)| raw[start..end].starts_with(b"runtime."))
        })
    }

    /// Returns the stacks, if at least one was truncated.
    fn paths(&mut self, raw: &[u8], limits: &DecodeLimits) -> Result<Option<StackPaths>, DecodeError> {
        let mut places = Vec::new();
        let mut spans = Vec::new();
        let mut depths = Vec::new();
        for at in 0..self.walked.len() {
            let start = places.len();
            self.places_of(raw, at, limits, &mut places)?;
            if places.len() > MAX_LOCATIONS_VISITED {
                return Ok(None);
            }
            places[start..].reverse();
            let lines = |&place: &u32| self.locations[place as usize].line_count.max(1) as usize;
            let frames = places[start..].iter().map(lines).sum::<usize>();
            depths.push(StackDepth { frames, locations: places.len() - start });
            spans.push(start..places.len());
        }
        let frames = depths.iter().map(|depth| depth.frames).max().unwrap_or_default();
        let locations = depths.iter().map(|depth| depth.locations).max().unwrap_or_default();
        let deepest = StackDepth { frames, locations };
        let types = self.head.types.iter();
        let on_cpu = types
            .filter_map(|(kind, _)| self.text(raw, *kind, "a sample type").ok())
            .any(|kind| kind == "cpu");
        let Some(cutoff) = DepthCutoff::from_deepest(deepest, on_cpu) else { return Ok(None) };
        let most = cutoff.most;
        let least = cutoff.most - cutoff.dropped;
        let reaches_limit = cutoff.depth(deepest) >= most;
        let shorter = depths.iter().zip(&spans).filter(|(depth, _)| cutoff.depth(**depth) < least);
        let begins: HashSet<ContentHash> =
            shorter.filter_map(|(_, span)| self.outermost(*places.get(span.start)?)).collect();
        let group_of = vec![None; spans.len()];
        let whole = Vec::new();
        let groups = Vec::new();
        let by_run = HashMap::new();
        let cut = Vec::new();
        let mut paths = StackPaths { places, spans, whole, group_of, groups, by_run, cut };
        for (at, depth) in depths.into_iter().enumerate() {
            let depth = cutoff.depth(depth);
            let root = paths.own(at).first().and_then(|&place| self.outermost(place));
            let begins_as_others = root.is_some_and(|root| begins.contains(&root));
            if depth < least || depth < most && begins_as_others {
                paths.whole.push(at);
                continue;
            }
            // If no stack reaches the depth that Go keeps, all of them may be whole.
            if reaches_limit && !begins_as_others {
                paths.cut.push(at);
            }
            if paths.own(at).len() >= MIN_SHARED_FRAMES {
                self.group(&mut paths, at);
            }
        }
        Ok(Some(paths))
    }

    /// Returns the function of a location's outermost call.
    fn outermost(&self, place: u32) -> Option<ContentHash> {
        let location = &self.locations[place as usize];
        let last =
            (location.first_line + location.line_count).checked_sub(1).filter(|_| location.line_count > 0)?;
        let function = self.function_ids.position(self.lines[last as usize].function_id)?;
        Some(self.function_hashes[function])
    }

    /// Adds a truncated stack to the group of those with the same beginning.
    fn group(&self, paths: &mut StackPaths, at: usize) {
        let run = &paths.own(at)[..MIN_SHARED_FRAMES];
        let hash = run.iter().fold(0u64, |hash, &place| step(hash, self.location_hashes[place as usize]));
        let known = paths.by_run.get(&hash).copied();
        let group = match known {
            Some(group) if self.is_run(paths, group, run) => group,
            // Two runs with one hash. A forged collision only leaves these stacks unrepaired.
            Some(_) => return,
            None => {
                paths.groups.push(StackGroup::default());
                paths.by_run.insert(hash, paths.groups.len() - 1);
                paths.groups.len() - 1
            }
        };
        paths.groups[group].members.push(at);
        paths.group_of[at] = Some(group);
    }

    /// Returns whether frames equal those at the beginning of a group.
    fn is_run(&self, paths: &StackPaths, group: usize, run: &[u32]) -> bool {
        let hash = |place: &u32| self.location_hashes[*place as usize];
        let first = &paths.own(paths.groups[group].members[0])[..MIN_SHARED_FRAMES];
        first.iter().map(hash).eq(run.iter().map(hash))
    }

    /// Returns the frames that whole stacks have above the common frames of groups. Returns `None` if there
    /// are too many.
    fn find_candidates(
        &self,
        paths: &StackPaths,
        whole: &[usize],
    ) -> Option<PrehashedMap<(u64, ContentHash), RootCandidate>> {
        let mut guesses = PrehashedMap::<(u64, ContentHash), RootCandidate>::default();
        // Weight of a run's first frame in the rolling hash, to subtract when the frame leaves the run.
        let leaving = (0..MIN_SHARED_FRAMES).fold(1u64, |power, _| power.wrapping_mul(RUN_HASH_BASE));
        let mut path = Vec::new();
        for &at in whole {
            path.clear();
            path.extend_from_slice(self.root_of(paths, at));
            path.extend_from_slice(paths.own(at));
            let hash = |place: u32| self.location_hashes[place as usize];
            let mut run = 0u64;
            let mut above = 0u128;
            for end in 0..path.len() {
                run = step(run, hash(path[end]));
                let Some(begin) = (end + 1).checked_sub(MIN_SHARED_FRAMES) else { continue };
                if begin > 0 {
                    let gone = hash(path[begin - 1]);
                    run = run.wrapping_sub((gone as u64).wrapping_mul(leaving));
                    above = above.wrapping_mul(LONG_RUN_HASH_BASE).wrapping_add(gone);
                }
                let group = paths.by_run.get(&run).copied().filter(|&group| {
                    begin > 0
                        && paths.groups[group].root.is_none()
                        && self.is_run(paths, group, &path[begin..=end])
                });
                let Some(group) = group else { continue };
                let guess = RootCandidate { votes: 0, length: begin, path: at };
                guesses.entry((group as u64, above)).or_insert(guess).votes += 1;
                if guesses.len() > MAX_ROOT_CANDIDATES {
                    return None;
                }
            }
        }
        Some(guesses)
    }

    /// Accepts the best candidate for each group. Returns the stacks that newly reach a root.
    fn accept_candidates(
        &mut self,
        paths: &mut StackPaths,
        guesses: PrehashedMap<(u64, ContentHash), RootCandidate>,
    ) -> Vec<usize> {
        let mut best: HashMap<usize, (RootCandidateRank, RootCandidate)> = HashMap::new();
        for ((group, above), guess) in guesses {
            let rank = (guess.votes, Reverse(guess.length), above);
            if best.get(&(group as usize)).is_none_or(|(other, _)| *other < rank) {
                best.insert(group as usize, (rank, guess));
            }
        }
        let mut fresh = Vec::new();
        let found: Vec<(usize, Vec<u32>)> = best
            .into_iter()
            .map(|(group, (_, guess))| {
                let path = self.root_of(paths, guess.path).iter().chain(paths.own(guess.path));
                (group, path.take(guess.length).copied().collect())
            })
            .collect();
        for (group, root) in found {
            let start = self.roots.len();
            self.roots.extend(root);
            paths.groups[group].root = Some(start..self.roots.len());
            fresh.extend(&paths.groups[group].members);
        }
        fresh
    }

    /// Returns the frames that were added above a stack.
    fn root_of(&self, paths: &StackPaths, at: usize) -> &[u32] {
        let root = paths.group_of[at].and_then(|group| paths.groups[group].root.clone());
        root.map_or(&[][..], |root| &self.roots[root])
    }
}

impl StackPaths {
    /// Returns the frames that Go kept of a stack.
    fn own(&self, at: usize) -> &[u32] {
        &self.places[self.spans[at].clone()]
    }
}

/// Extends the rolling hash of a run by one frame.
fn step(hash: u64, frame: ContentHash) -> u64 {
    hash.wrapping_mul(RUN_HASH_BASE).wrapping_add(frame as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::data_model::model::{Profile, ValueType};
    use crate::formats::pprof::{PprofReader, SenderInfo, encode};

    type Stacks = BTreeMap<String, i64>;

    fn sent(kind: &str, stacks: &[(Vec<String>, i64)]) -> Bytes {
        sent_in_unit(kind, "count", stacks)
    }

    fn sent_in_unit(kind: &str, unit: &str, stacks: &[(Vec<String>, i64)]) -> Bytes {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new(kind, unit)];
        for (stack, value) in stacks {
            let stack = profile.dictionary.intern_named_stack(stack.iter().map(String::as_str));
            profile.samples.push(stack, 0, &[*value]);
        }
        encode(&profile).into()
    }

    /// The stacks as they are stored, how many were mended, and what the content is.
    fn read(sent: &Bytes, mends: bool) -> (Stacks, usize, ContentHash) {
        let (mut walk, mut dictionary) = (PprofReader::default(), Dictionary::default());
        walk.read(sent, &DecodeLimits::default()).unwrap();
        let mended = if mends { walk.repair_roots().unwrap() } else { 0 };
        walk.resolve_stacks(&mut dictionary).unwrap();
        let decoded = walk.decoded();
        let mut stacks = Stacks::new();
        for (&stack, &value) in decoded.samples.stacks.iter().zip(&decoded.samples.values) {
            let symbols = &dictionary.symbols;
            let lines = dictionary.stacks.locations(stack).flat_map(|location| symbols.lines(location));
            let mut names: Vec<&str> = lines.map(|line| symbols.function_name(line.function)).collect();
            names.reverse();
            *stacks.entry(names.join(";")).or_default() += value;
        }
        (stacks, mended, decoded.content.finish(&decoded.header))
    }

    /// A stack from the root on, as deep as said, with a leaf of its own.
    fn stack(depth: usize, leaf: &str) -> Vec<String> {
        let root = ["runtime.main".to_owned(), "main.serve".to_owned()];
        let calls = (0..depth - 3).map(|at| format!("call{at}"));
        root.into_iter().chain(calls).chain([leaf.to_owned()]).collect()
    }

    /// What Go keeps of it.
    fn cut(stack: &[String], frames: usize) -> Vec<String> {
        stack[stack.len().saturating_sub(frames)..].to_vec()
    }

    #[test]
    fn a_stack_gets_the_roots_that_others_have() {
        for (kind, frames) in [("cpu", 64), ("alloc_space", 128), ("alloc_space", 32)] {
            let deep = stack(frames + 10, "deep");
            let whole = [stack(frames - 5, "leaf"), stack(frames / 2, "other leaf")];
            let all = [(whole[0].clone(), 1), (whole[1].clone(), 2), (cut(&deep, frames), 4)];
            let (stacks, mended, content) = read(&sent(kind, &all), true);
            let expected = [(whole[0].join(";"), 1), (whole[1].join(";"), 2), (deep.join(";"), 4)];
            assert_eq!((stacks, mended), (expected.into(), 1), "{kind}");
            assert_eq!(content, read(&sent(kind, &all), false).2, "the content is what was sent");
        }
    }

    #[test]
    fn a_stack_whose_runtime_frames_were_dropped_gets_roots_unless_it_begins_as_others_do() {
        let whole = [stack(27, "leaf"), stack(16, "other leaf")];
        for (frames, most) in [(28, 28), (29, 31), (31, 32), (124, 128)] {
            let deep = stack(frames + 10, "deep");
            let deepest = stack(most + 10, "deepest");
            let shallow = stack(frames, "as deep, and not cut");
            let all = [&whole[0], &whole[1], &shallow, &cut(&deep, frames), &cut(&deepest, most)];
            let all: Vec<(Vec<String>, i64)> = all.into_iter().map(|stack| (stack.clone(), 1)).collect();
            let (stacks, mended, _) = read(&sent("alloc_space", &all), true);
            let expected =
                [&whole[0], &whole[1], &shallow, &deep, &deepest].map(|stack| (stack.join(";"), 1));
            assert_eq!((stacks, mended), (expected.into(), 2), "{frames} of {most}");
        }
        for (frames, mends) in [(27, 0), (28, 1), (32, 1), (33, 0), (123, 0), (124, 1), (129, 0)] {
            let all = [(stack(24, "leaf"), 1), (cut(&stack(frames + 5, "deep"), frames), 1)];
            assert_eq!(read(&sent("alloc_space", &all), true).1, mends, "{frames}");
        }
    }

    #[test]
    fn what_was_mended_tells_the_roots_of_what_is_deeper() {
        let all: Vec<Vec<String>> = (1..12).map(|tens| stack(tens * 20, "leaf")).collect();
        let kept: Vec<(Vec<String>, i64)> = all.iter().map(|stack| (cut(stack, 64), 1)).collect();
        let (stacks, mended, _) = read(&sent("cpu", &kept), true);
        assert_eq!((stacks, mended), (all.iter().map(|stack| (stack.join(";"), 1)).collect(), 8));
    }

    #[test]
    fn what_calls_itself_is_put_below_its_root() {
        let recursive = |calls: usize, leaf: &str| -> Vec<String> {
            let calls = std::iter::repeat_n("main.descend".to_owned(), calls);
            ["runtime.main".to_owned()].into_iter().chain(calls).chain([leaf.to_owned()]).collect()
        };
        let kept: Vec<(Vec<String>, i64)> =
            [20, 30, 40, 100, 200].map(|calls| (cut(&recursive(calls, "leaf"), 64), 1)).into();
        let (stacks, mended, _) = read(&sent("cpu", &kept), true);
        let expected = [20, 30, 40].map(|calls| (recursive(calls, "leaf").join(";"), 1));
        let both = (recursive(63, "leaf").join(";"), 2);
        assert_eq!((stacks, mended), (expected.into_iter().chain([both]).collect(), 1));
    }

    #[test]
    fn what_most_others_have_is_believed() {
        let deep = stack(80, "deep");
        let foreign = |leaf: &str| {
            let mut stack = stack(50, leaf);
            stack[0] = "other".to_owned();
            stack
        };
        let common = [stack(50, "one"), stack(50, "two")];
        let all = [foreign("three"), common[0].clone(), common[1].clone(), cut(&deep, 64)];
        let all: Vec<(Vec<String>, i64)> = all.into_iter().map(|stack| (stack, 1)).collect();
        assert!(read(&sent("cpu", &all), true).0.contains_key(&deep.join(";")));
    }

    fn truncated(stack: &[String]) -> String {
        format!("{TRUNCATED_ROOT_NAME};{}", stack.join(";"))
    }

    #[test]
    fn stacks_that_no_other_continues_are_marked() {
        let deep = stack(200, "deep");
        for (kind, frames) in [("cpu", 64), ("inuse_space", 128), ("inuse_space", 32)] {
            let whole = stack(18, "leaf");
            let exact: Vec<String> =
                (0..frames).map(|at| if at == 0 { whole[0].clone() } else { format!("g{at}") }).collect();
            let cut = cut(&deep, frames);
            let all = [(whole.clone(), 1), (exact.clone(), 2), (cut.clone(), 4)];
            let (stacks, mended, content) = read(&sent(kind, &all), true);
            let expected = [(whole.join(";"), 1), (exact.join(";"), 2), (truncated(&cut), 4)];
            assert_eq!((stacks, mended), (expected.into(), 0), "{kind}: what begins as others do is whole");
            assert_eq!(content, read(&sent(kind, &all), false).2, "the content is what was sent");
        }
    }

    #[test]
    fn no_stack_is_marked_where_none_is_as_deep_as_go_keeps() {
        let odd: Vec<String> = (0..30).map(|at| format!("g{at}")).collect();
        let sent = sent("inuse_space", &[(stack(18, "leaf"), 1), (odd, 1)]);
        assert_eq!(read(&sent, true), read(&sent, false));
    }

    /// Older versions of Go keep 32 frames of which some are inlined, newer ones 128 locations.
    #[test]
    fn cutoff_counts_frames_or_locations() {
        let of = |frames, locations, on_cpu| {
            let cutoff = DepthCutoff::from_deepest(StackDepth { frames, locations }, on_cpu);
            cutoff.map(|cutoff| (cutoff.most, cutoff.counts_locations))
        };
        assert_eq!((of(33, 32, false), of(33, 33, false)), (Some((32, false)), None));
        assert_eq!((of(150, 128, false), of(128, 90, false)), (Some((128, true)), Some((128, false))));
        assert_eq!(
            (of(64, 40, true), of(70, 64, true), of(70, 40, true)),
            (Some((64, false)), Some((64, true)), None)
        );
    }

    #[test]
    fn other_profiles_stay_as_they_are() {
        let deep = stack(80, "deep");
        let plain = |stack: Vec<String>| -> Vec<String> {
            stack.into_iter().map(|name| name.replace("runtime.", "start.")).collect()
        };
        let whole = stack(50, "leaf");
        for (what, all) in [
            ("deeper than Go's", vec![whole.clone(), cut(&deep, 65), cut(&deep, 64)]),
            ("less deep than Go's", vec![whole.clone(), cut(&deep, 63)]),
            ("not of Go", vec![plain(whole), plain(cut(&deep, 64))]),
        ] {
            let all: Vec<(Vec<String>, i64)> = all.into_iter().map(|stack| (stack, 1)).collect();
            let sent = sent("cpu", &all);
            assert_eq!(read(&sent, true), read(&sent, false), "{what}");
        }
    }

    #[test]
    fn profile_is_of_go_by_its_sender_or_a_function_name() {
        let mended = |sent: &Bytes| {
            [None, Some(true), Some(false)].map(|is_go| {
                let mut walk = PprofReader::default();
                walk.read_from(SenderInfo { is_go, ..SenderInfo::default() }, sent, &DecodeLimits::default())
                    .unwrap();
                walk.repair_roots().unwrap()
            })
        };
        let of_go = [(stack(50, "leaf"), 1), (cut(&stack(80, "deep"), 64), 1)];
        assert_eq!(mended(&sent("cpu", &of_go)), [1, 1, 0]);
        let without_runtime = of_go.map(|(stack, value)| {
            let names: Vec<String> =
                stack.into_iter().map(|name| name.replace("runtime.", "start.")).collect();
            (names, value)
        });
        let sent = sent_in_unit("cpu", "runtime.units", &without_runtime);
        assert_eq!(mended(&sent), [0, 1, 0], "a unit is no function");
    }

    fn any_stack() -> impl Strategy<Value = Vec<String>> {
        let calls = prop::collection::vec(0u8..3, 1..90);
        calls.prop_map(|calls| {
            let names = calls.iter().map(|call| format!("f{call}"));
            let all: Vec<String> = ["runtime.main".to_owned()].into_iter().chain(names).collect();
            cut(&all, 64)
        })
    }

    proptest! {
        #[test]
        fn sums_and_what_was_kept_stay(stacks in prop::collection::vec((any_stack(), 1i64..9), 1..20), turn in 0usize..20) {
            let sent_so = sent("cpu", &stacks);
            let (mended, _, content) = read(&sent_so, true);
            let plain = read(&sent_so, false);
            prop_assert_eq!(mended.values().sum::<i64>(), plain.0.values().sum::<i64>());
            prop_assert!(mended.keys().all(|stack| !stack.contains(TRUNCATED_ROOT_NAME) || stack.starts_with(TRUNCATED_ROOT_NAME)));
            prop_assert_eq!(content, plain.2);
            let mut turned = stacks.clone();
            turned.rotate_left(turn % stacks.len());
            prop_assert_eq!(read(&sent("cpu", &turned), true).0, mended);
        }
    }
}
