//! Constants of a chunk: where each lies. What one says is read when an event needs it.
//!
//! Constants come in events of their own, anywhere in the chunk. These are found by going from event to event, so that
//! no chain of references has to be trusted.

use super::decode_plan::{DecodePlan, SLOT_COUNT};
use super::input::ChunkCursor;
use super::metadata::JfrTypeTable;
use super::{CONSTANTS_LIMIT_NAME, JfrError, check_limit};
use crate::hash::SeededMap;

/// The kinds of constants that are needed, and the types that they are of.
#[derive(Clone, Copy)]
pub(super) enum ConstantPoolKind {
    Stack,
    Method,
    Class,
    Symbol,
    ThreadState,
    Text,
}

const POOL_TYPE_NAMES: [&str; 6] = [
    "jdk.types.StackTrace",
    "jdk.types.Method",
    "java.lang.Class",
    "jdk.types.Symbol",
    "jdk.types.ThreadState",
    "java.lang.String",
];

/// The most fields of the types of all constants. The JDK has some hundreds.
const MAX_CONSTANT_FIELDS: usize = 1 << 16;

/// Places of constants, by kind and id.
#[derive(Default)]
pub(super) struct ConstantPools {
    places: [SeededMap<u64, u32>; 6],
    count: usize,
}

/// Reads checkpoints into pools.
pub(super) struct ConstantPoolReader<'a, 'b> {
    types: &'a JfrTypeTable<'b>,
    /// By type: which pool, if it is needed, and how to go past one.
    plans: SeededMap<u64, (Option<ConstantPoolKind>, DecodePlan)>,
    fields: usize,
    /// The most constants that may be kept.
    limit: usize,
}

impl ConstantPools {
    /// Where a constant begins.
    pub(super) fn constant_position(&self, pool: ConstantPoolKind, id: u64) -> Option<usize> {
        self.places[pool as usize].get(&id).map(|&place| place as usize)
    }
    pub(super) fn ids(&self, pool: ConstantPoolKind) -> impl Iterator<Item = u64> {
        self.places[pool as usize].keys().copied()
    }
}

impl ConstantPoolKind {
    pub(super) fn type_name(self) -> &'static str {
        POOL_TYPE_NAMES[self as usize]
    }
    fn from_type_name(name: &str) -> Option<ConstantPoolKind> {
        use ConstantPoolKind::{Class, Method, Stack, Symbol, Text, ThreadState};
        let all = [Stack, Method, Class, Symbol, ThreadState, Text];
        all.into_iter().find(|pool| pool.type_name() == name)
    }
}

impl<'a, 'b> ConstantPoolReader<'a, 'b> {
    pub(super) fn new(types: &'a JfrTypeTable<'b>, limit: usize) -> Self {
        ConstantPoolReader { types, plans: SeededMap::default(), fields: 0, limit }
    }

    /// Takes the constants of an event whose size and type are read.
    pub(super) fn read_checkpoint(
        &mut self,
        input: &mut ChunkCursor<'_>,
        pools: &mut ConstantPools,
    ) -> Result<(), JfrError> {
        for _ in ["start", "duration", "how far the last one is"] {
            input.read_long()?;
        }
        input.read_byte()?;
        for _ in 0..input.read_int()? {
            let at = input.position();
            let class = input.read_long()?;
            let count = input.read_int()?;
            let limit = self.limit;
            let (pool, plan) = self.plan(at, class)?;
            let mut passed = [0; SLOT_COUNT];
            for _ in 0..count {
                let id = input.read_long()?;
                let place = input.position() as u32;
                plan.run(input, &mut passed)?;
                let Some(pool) = pool else { continue };
                pools.count += 1;
                check_limit(CONSTANTS_LIMIT_NAME, pools.count, limit)?;
                pools.places[pool as usize].entry(id).or_insert(place);
            }
        }
        Ok(())
    }

    fn plan(&mut self, at: usize, class: u64) -> Result<(Option<ConstantPoolKind>, &DecodePlan), JfrError> {
        if !self.plans.contains_key(&class) {
            let plan = self.types.class_by_id(class).and_then(|described| {
                let plan = DecodePlan::for_class(self.types, described, &[])?;
                // Of several types of one name the first is it, wherever constants are read.
                let named = |pool: &ConstantPoolKind| self.types.find_class(pool.type_name());
                let is_first =
                    |pool: &ConstantPoolKind| named(pool).is_some_and(|first| std::ptr::eq(first, described));
                Some((ConstantPoolKind::from_type_name(self.types.name(described)).filter(is_first), plan))
            });
            let (pool, plan) = plan.ok_or(JfrError::UnknownType { at, class })?;
            self.fields += plan.fields;
            check_limit("fields of constants", self.fields, MAX_CONSTANT_FIELDS)?;
            self.plans.insert(class, (pool, plan));
        }
        let (pool, plan) = &self.plans[&class];
        Ok((*pool, plan))
    }
}
