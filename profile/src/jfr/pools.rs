//! Constants of a chunk: where each lies. What one says is read when an event needs it.
//!
//! Constants come in events of their own, anywhere in the chunk. These are found by going from event to event, so that
//! no chain of references has to be trusted.

use super::input::Input;
use super::metadata::Types;
use super::plan::{Plan, SLOTS};
use super::{CONSTANTS, JfrError, within};
use crate::hash::SeededMap;

/// The kinds of constants that are needed, and the types that they are of.
#[derive(Clone, Copy)]
pub(super) enum Pool {
    Stack,
    Method,
    Class,
    Symbol,
    ThreadState,
    Text,
}

const NAMES: [&str; 6] = [
    "jdk.types.StackTrace",
    "jdk.types.Method",
    "java.lang.Class",
    "jdk.types.Symbol",
    "jdk.types.ThreadState",
    "java.lang.String",
];

/// The most fields of the types of all constants. The JDK has some hundreds.
const FIELDS: usize = 1 << 16;

/// Places of constants, by kind and id.
#[derive(Default)]
pub(super) struct Pools {
    places: [SeededMap<u64, u32>; 6],
    count: usize,
}

/// Reads checkpoints into pools.
pub(super) struct PoolReader<'a, 'b> {
    types: &'a Types<'b>,
    /// By type: which pool, if it is needed, and how to go past one.
    plans: SeededMap<u64, (Option<Pool>, Plan)>,
    fields: usize,
    /// The most constants that may be kept.
    limit: usize,
}

impl Pools {
    /// Where a constant begins.
    pub(super) fn place(&self, pool: Pool, id: u64) -> Option<usize> {
        self.places[pool as usize].get(&id).map(|&place| place as usize)
    }
    pub(super) fn ids(&self, pool: Pool) -> impl Iterator<Item = u64> {
        self.places[pool as usize].keys().copied()
    }
}

impl Pool {
    pub(super) fn type_name(self) -> &'static str {
        NAMES[self as usize]
    }
    fn of(name: &str) -> Option<Pool> {
        use Pool::{Class, Method, Stack, Symbol, Text, ThreadState};
        let all = [Stack, Method, Class, Symbol, ThreadState, Text];
        all.into_iter().find(|pool| pool.type_name() == name)
    }
}

impl<'a, 'b> PoolReader<'a, 'b> {
    pub(super) fn new(types: &'a Types<'b>, limit: usize) -> Self {
        PoolReader { types, plans: SeededMap::default(), fields: 0, limit }
    }

    /// Takes the constants of an event whose size and type are read.
    pub(super) fn checkpoint(&mut self, input: &mut Input<'_>, pools: &mut Pools) -> Result<(), JfrError> {
        for _ in ["start", "duration", "how far the last one is"] {
            input.long()?;
        }
        input.byte()?;
        for _ in 0..input.int()? {
            let at = input.place();
            let class = input.long()?;
            let count = input.int()?;
            let limit = self.limit;
            let (pool, plan) = self.plan(at, class)?;
            let mut passed = [0; SLOTS];
            for _ in 0..count {
                let id = input.long()?;
                let place = input.place() as u32;
                plan.run(input, &mut passed)?;
                let Some(pool) = pool else { continue };
                pools.count += 1;
                within(CONSTANTS, pools.count, limit)?;
                pools.places[pool as usize].entry(id).or_insert(place);
            }
        }
        Ok(())
    }

    fn plan(&mut self, at: usize, class: u64) -> Result<(Option<Pool>, &Plan), JfrError> {
        if !self.plans.contains_key(&class) {
            let plan = self.types.class(class).and_then(|described| {
                let plan = Plan::of(self.types, described, &[])?;
                // Of several types of one name the first is it, wherever constants are read.
                let named = |pool: &Pool| self.types.named(pool.type_name());
                let is_first = |pool: &Pool| named(pool).is_some_and(|first| std::ptr::eq(first, described));
                Some((Pool::of(self.types.name(described)).filter(is_first), plan))
            });
            let (pool, plan) = plan.ok_or(JfrError::UnknownType { at, class })?;
            self.fields += plan.fields;
            within("fields of constants", self.fields, FIELDS)?;
            self.plans.insert(class, (pool, plan));
        }
        let (pool, plan) = &self.plans[&class];
        Ok((*pool, plan))
    }
}
