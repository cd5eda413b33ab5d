//! Positions of a chunk's constants. A constant is read when an event needs it.
//!
//! Constants are stored in checkpoint events anywhere in the chunk. The reader finds them by scanning all
//! events, so it need not trust the chain of offsets between them.

use super::decode_plan::{DecodePlan, SLOT_COUNT};
use super::input::ChunkCursor;
use super::metadata::JfrTypeTable;
use super::{CONSTANTS_LIMIT_NAME, JfrError, check_limit};
use crate::encoding::hash::SeededMap;

/// Kinds of constants that the decoder needs, each with its type.
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

/// Limit on the fields of all constants' types. The JDK has some hundreds.
const MAX_CONSTANT_FIELDS: usize = 1 << 16;

/// Positions of constants by kind and id.
#[derive(Default)]
pub(super) struct ConstantPools {
    places: [SeededMap<u64, u32>; 6],
    count: usize,
}

/// Reader that adds the constants of checkpoint events to the pools.
pub(super) struct ConstantPoolReader<'a, 'b> {
    types: &'a JfrTypeTable<'b>,
    /// Pool of each type, if the decoder needs it, and the plan that skips a constant.
    plans: SeededMap<u64, (Option<ConstantPoolKind>, DecodePlan)>,
    fields: usize,
    /// Limit on the number of indexed constants.
    limit: usize,
}

impl ConstantPools {
    /// Returns the position of a constant in the chunk.
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

    /// Reads the constants of a checkpoint event, from behind its size and type.
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
                // If several types have one name, all readers use the first.
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
