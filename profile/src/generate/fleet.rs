//! Synthetic fleet: the data set F.

use std::ops::Range;

use super::random::{SeededRandom, pow};
use super::synthetic_program::{FunctionNameGenerator, ProgramFunction, SyntheticProgram};
use crate::data_model::labels::Labels;
use crate::data_model::model::{Dictionary, Profile, ProfileHeader, Samples, ValueType};

const LIBRARY_FUNCTIONS: usize = 6_000;
const BINARY_COUNT: usize = 40;
const METRIC_NAMES: [&str; 4] = ["process_cpu", "memory", "memory", "goroutines"];
const SAMPLE_TYPES: [(&str, &str); 4] =
    [("cpu", "nanoseconds"), ("alloc_space", "bytes"), ("inuse_space", "bytes"), ("goroutine", "count")];
/// Factor of random values, by sample type.
const VALUE_SCALES: [i64; 4] = [10_000_000, 4_096, 512, 1];
/// Unix time of 2024-01-01T00:00:00Z.
const START_NANOS: i64 = 1_704_067_200_000_000_000;

/// Fleet of services of very different sizes, with ten pods and four types each. About 60 % of a service's
/// functions come from shared libraries. About 15 % of the pods are replaced each hour.
#[derive(Clone, Debug)]
pub struct SyntheticFleet {
    seed: u64,
    step_nanos: i64,
    library: Vec<ProgramFunction>,
}

/// Single profile of the fleet.
#[derive(Clone, Debug)]
pub struct FleetProfile {
    /// Labels as sent, including `__name__`.
    pub labels: Labels,
    /// Type of the profile's only value.
    pub value_type: ValueType,
    /// Rows with their own dictionary.
    pub profile: Profile,
}

/// Service and its program.
struct FleetService {
    number: usize,
    world: SyntheticProgram,
    rows: usize,
}

impl SyntheticFleet {
    /// Number of services in the set.
    pub const SERVICE_COUNT: usize = 1_000;
    /// Number of pods of each service at any time.
    pub const PODS_PER_SERVICE: usize = 10;
    /// Number of sample types of each pod.
    pub const SAMPLE_TYPES: usize = 4;

    /// Returns the fleet of a seed, with one profile per minute for each pod and type.
    pub fn new(seed: u64) -> Self {
        let library = FunctionNameGenerator::new().functions(
            &mut SeededRandom::from_path(&[seed, 10]),
            LIBRARY_FUNCTIONS,
            BINARY_COUNT,
        );
        SyntheticFleet { seed, step_nanos: 60_000_000_000, library }
    }
    /// Sets the number of profiles per hour for each pod and type, at least 1.
    pub fn with_profiles_per_hour(mut self, profiles: usize) -> Self {
        self.step_nanos = 3_600_000_000_000 / profiles.max(1) as i64;
        self
    }
    /// Returns the profiles of some services over some hours, in the order of service, time, pod and type.
    pub fn profiles(
        &self,
        services: Range<usize>,
        hours: Range<usize>,
    ) -> impl Iterator<Item = FleetProfile> + '_ {
        services.flat_map(move |number| {
            let service = self.service(number);
            let steps = (3_600_000_000_000 / self.step_nanos) as usize;
            let places = hours.clone().flat_map(move |hour| {
                (0..steps * Self::PODS_PER_SERVICE * Self::SAMPLE_TYPES).map(move |place| {
                    (
                        hour,
                        place / (Self::PODS_PER_SERVICE * Self::SAMPLE_TYPES),
                        place % (Self::PODS_PER_SERVICE * Self::SAMPLE_TYPES),
                    )
                })
            });
            places.map(move |(hour, step, of)| {
                self.profile(&service, hour, step, of / Self::SAMPLE_TYPES, of % Self::SAMPLE_TYPES)
            })
        })
    }

    /// Returns a service. Sizes follow a power law: the first service is as large as the reference set's,
    /// most are small.
    fn service(&self, number: usize) -> FleetService {
        let size = 1.0 / pow((number + 1) as f64, 0.7);
        let at_least = |full: f64, least: usize| ((full * size) as usize).max(least);
        let mut random = SeededRandom::from_path(&[self.seed, 11, number as u64]);
        let count = at_least(6_000.0, 100);
        let own = count * 2 / 5;
        let mut functions = FunctionNameGenerator::new().functions(&mut random, own, 1);
        for code in &mut functions {
            code.name = format!("{}/{}", service_name(number), code.name);
            code.binary = (BINARY_COUNT + number) as u32;
        }
        for _ in own..count {
            functions.push(self.library[random.squared(LIBRARY_FUNCTIONS)].clone());
        }
        random.shuffle(&mut functions);
        let world = SyntheticProgram::grow(&mut random, functions, at_least(12_000.0, 60));
        FleetService { number, world, rows: at_least(864.0, 12) }
    }

    /// Returns the number of pods that ran before the current one in the same place. The pod's name depends
    /// on it.
    fn generation(&self, service: usize, pod: usize, hour: usize) -> usize {
        let replaced = |hour: usize| {
            SeededRandom::from_path(&[self.seed, 12, service as u64, pod as u64, hour as u64]).next_bool(150)
        };
        (1..=hour).filter(|&hour| replaced(hour)).count()
    }

    fn profile(
        &self,
        service: &FleetService,
        hour: usize,
        step: usize,
        pod: usize,
        kind: usize,
    ) -> FleetProfile {
        let (kind_name, unit) = SAMPLE_TYPES[kind];
        let value_type = ValueType::new(kind_name, unit);
        let generation = self.generation(service.number, pod, hour);
        let time = START_NANOS
            + hour as i64 * 3_600_000_000_000
            + step as i64 * self.step_nanos
            + pod as i64 * 1_000_000;
        let path = [self.seed, 13, service.number as u64, time as u64, pod as u64, kind as u64];
        let mut random = SeededRandom::from_path(&path);
        let world = &service.world;
        let mut dictionary = Dictionary::default();
        let mut samples = Samples::default();
        // Each type has its own popular stacks.
        let turned = world.stacks.len() / Self::SAMPLE_TYPES * kind;
        for stack in
            world.draw(&mut random, service.rows, |rank| ((rank + turned) % world.stacks.len()) as u32)
        {
            let value = (1 + random.exponential(3.0) as i64) * VALUE_SCALES[kind];
            samples.push(world.intern(stack, &mut dictionary), 0, &[value]);
        }
        let header = ProfileHeader {
            types: vec![value_type.clone()],
            period_type: Some(value_type.clone()),
            period: VALUE_SCALES[kind],
            time_nanos: time,
            duration_nanos: self.step_nanos,
            ..ProfileHeader::default()
        };
        let labels = self.labels(service.number, pod, generation, kind);
        FleetProfile { labels, value_type, profile: Profile { header, samples, dictionary } }
    }

    fn labels(&self, service: usize, pod: usize, generation: usize, kind: usize) -> Labels {
        let path = [self.seed, 14, service as u64, pod as u64, generation as u64];
        let suffix = SeededRandom::from_path(&path).next_u64() >> 40;
        let name = service_name(service);
        Labels::new([
            ("__name__".to_owned(), METRIC_NAMES[kind].to_owned()),
            ("service_name".to_owned(), name.clone()),
            ("namespace".to_owned(), format!("team-{:02}", service % 40)),
            ("zone".to_owned(), format!("zone-{}", pod % 3)),
            ("pod".to_owned(), format!("{name}-{suffix:06x}")),
        ])
    }
}

fn service_name(service: usize) -> String {
    format!("service-{service:04}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::formats::pprof::encode;

    #[test]
    fn a_part_is_the_same_whatever_is_made_before_it() {
        let fleet = SyntheticFleet::new(3).with_profiles_per_hour(1);
        let bytes = |profile: &FleetProfile| (profile.labels.clone(), encode(&profile.profile));
        let whole: Vec<_> = fleet.profiles(900..902, 0..3).map(|profile| bytes(&profile)).collect();
        let part: Vec<_> = fleet.profiles(901..902, 2..3).map(|profile| bytes(&profile)).collect();
        assert_eq!(part.len(), SyntheticFleet::PODS_PER_SERVICE * SyntheticFleet::SAMPLE_TYPES);
        assert_eq!(whole[whole.len() - part.len()..], part);
    }

    #[test]
    fn about_fifteen_percent_of_the_pods_are_replaced_each_hour() {
        let fleet = SyntheticFleet::new(3);
        let replaced =
            (0..100).flat_map(|service| (0..SyntheticFleet::PODS_PER_SERVICE).map(move |pod| (service, pod)));
        let count = replaced.map(|(service, pod)| fleet.generation(service, pod, 10)).sum::<usize>();
        assert!((1_350..=1_650).contains(&count), "{count} of 10 000");
    }

    #[test]
    fn sizes_fall_and_most_functions_are_shared() {
        let fleet = SyntheticFleet::new(3);
        let (large, small) = (fleet.service(9), fleet.service(990));
        assert!(large.world.stacks.len() > 10 * small.world.stacks.len());
        assert!(large.rows > 10 * small.rows);
        let library: BTreeSet<&str> = fleet.library.iter().map(|code| code.name.as_str()).collect();
        let functions = &large.world.functions;
        let shared = functions.iter().filter(|code| library.contains(code.name.as_str())).count();
        assert!((shared * 100).abs_diff(functions.len() * 60) <= functions.len());
    }

    #[test]
    fn a_pod_sends_four_types_under_labels_that_tell_them_apart() {
        let fleet = SyntheticFleet::new(3).with_profiles_per_hour(1);
        let series: BTreeSet<(Labels, ValueType)> =
            fleet.profiles(500..501, 0..1).map(|profile| (profile.labels, profile.value_type)).collect();
        assert_eq!(series.len(), SyntheticFleet::PODS_PER_SERVICE * SyntheticFleet::SAMPLE_TYPES);
    }
}
