//! How a type's bytes are gone through: made once of what metadata says, then run for each event or constant.
//!
//! A plan names the fields that are wanted by slots that their numbers go into; all others are passed.

use super::JfrError;
use super::input::ChunkCursor;
use super::metadata::{JfrClass, JfrTypeTable};

/// The most fields of one plan, those of nested types included: types may contain each other.
const MAX_PLAN_FIELDS: usize = 1 << 12;
/// How deep types may lie in types.
const MAX_TYPE_DEPTH: usize = 16;

/// Fields that are wanted of one type.
pub(super) const SLOT_COUNT: usize = 9;
/// Where numbers go that nobody wants.
const IGNORED_SLOT: u8 = 0;

/// What was found: numbers, ids of constants, places of texts. Slot 0 is for what nobody wants.
pub(super) type FieldSlots = [u64; SLOT_COUNT];

/// Goes through values of one type.
#[derive(Debug, Default)]
pub(super) struct DecodePlan {
    steps: Vec<DecodeStep>,
    /// Fields that were looked at to make it.
    pub(super) fields: usize,
}

#[derive(Debug)]
enum DecodeStep {
    /// A number, and its width where numbers are not compressed.
    Number {
        width: u8,
        slot: u8,
    },
    /// Bytes that stand for themselves.
    Bytes(u8),
    Text {
        slot: u8,
    },
    /// Values of a type, after their number.
    Many(Box<DecodePlan>),
    /// Such that are `each` so many numbers and nothing else, as frames are, of which most recordings consist.
    ManyNumbers {
        each: usize,
        bytes: usize,
    },
}

impl DecodePlan {
    /// For a type. `wanted`: names of its fields, the first for slot 1. None if it has a field that cannot be passed.
    pub(super) fn for_class(types: &JfrTypeTable<'_>, class: &JfrClass, wanted: &[&str]) -> Option<Self> {
        Self::for_fields(types, class, 0..class.fields.len(), wanted)
    }

    /// As [`for_class`](Self::for_class), for some of its fields.
    pub(super) fn for_fields(
        types: &JfrTypeTable<'_>,
        class: &JfrClass,
        fields: std::ops::Range<usize>,
        wanted: &[&str],
    ) -> Option<Self> {
        let mut maker = DecodePlanBuilder { types, fields: 0 };
        if let Some(step) = fields.end.eq(&0).then(|| primitive(types.name(class), IGNORED_SLOT)).flatten() {
            return Some(DecodePlan { steps: vec![step], fields: 0 });
        }
        let mut plan = DecodePlan::default();
        for field in fields {
            let name = types.field_name(&class.fields[field]);
            let slot =
                wanted.iter().position(|wanted| *wanted == name).map_or(IGNORED_SLOT, |at| at as u8 + 1);
            maker.field(&mut plan, class, field, slot, 0)?;
        }
        plan.fields = maker.fields;
        Some(plan)
    }

    /// Passes many of its values.
    fn into_many_step(self) -> DecodeStep {
        let width = |step: &DecodeStep| match step {
            DecodeStep::Number { width, .. } => Some(usize::from(*width)),
            _ => None,
        };
        let each = self.steps.len();
        match self.steps.iter().map(width).sum() {
            Some(bytes) => DecodeStep::ManyNumbers { each, bytes },
            None => DecodeStep::Many(Box::new(self)),
        }
    }

    /// Goes through one value.
    #[inline]
    pub(super) fn run(&self, input: &mut ChunkCursor<'_>, slots: &mut FieldSlots) -> Result<(), JfrError> {
        for step in &self.steps {
            match step {
                DecodeStep::Number { width, slot } => {
                    slots[usize::from(*slot)] = input.read_number(*width)?
                }
                DecodeStep::Bytes(count) => input.skip(usize::from(*count))?,
                DecodeStep::Text { slot } => {
                    slots[usize::from(*slot)] = input.position() as u64;
                    input.skip_text()?;
                }
                DecodeStep::Many(plan) => plan.run_many(input)?,
                DecodeStep::ManyNumbers { each, bytes } => {
                    let count = input.read_int()?;
                    input.skip_numbers(count, *each, *bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Passes many values. Of a plan with steps each takes a byte at least; without steps there is nothing to pass.
    fn run_many(&self, input: &mut ChunkCursor<'_>) -> Result<(), JfrError> {
        let count = input.read_int()?;
        if !self.steps.is_empty() {
            for _ in 0..count {
                self.run(input, &mut [0; SLOT_COUNT])?;
            }
        }
        Ok(())
    }
}

/// How a type without fields is written.
fn primitive(name: &str, slot: u8) -> Option<DecodeStep> {
    Some(match name {
        "boolean" | "byte" => DecodeStep::Bytes(1),
        "float" => DecodeStep::Bytes(4),
        "double" => DecodeStep::Bytes(8),
        "short" | "char" => DecodeStep::Number { width: 2, slot },
        "int" => DecodeStep::Number { width: 4, slot },
        "long" => DecodeStep::Number { width: 8, slot },
        "java.lang.String" => DecodeStep::Text { slot },
        _ => return None,
    })
}

struct DecodePlanBuilder<'a, 'b> {
    types: &'a JfrTypeTable<'b>,
    /// Fields that were looked at.
    fields: usize,
}

impl DecodePlanBuilder<'_, '_> {
    fn field(
        &mut self,
        plan: &mut DecodePlan,
        class: &JfrClass,
        field: usize,
        slot: u8,
        depth: usize,
    ) -> Option<()> {
        self.fields += 1;
        if self.fields > MAX_PLAN_FIELDS {
            return None;
        }
        let field = class.fields[field];
        let mut one = DecodePlan::default();
        let slot = if field.array { IGNORED_SLOT } else { slot };
        if field.constant {
            one.steps.push(DecodeStep::Number { width: 8, slot });
        } else {
            self.value(&mut one, field.class, slot, depth + 1)?;
        }
        if field.array {
            plan.steps.push(one.into_many_step());
        } else {
            plan.steps.append(&mut one.steps);
        }
        Some(())
    }

    /// A value in its place: of a type with fields all of them, one after the other.
    fn value(&mut self, plan: &mut DecodePlan, class: u64, slot: u8, depth: usize) -> Option<()> {
        if depth > MAX_TYPE_DEPTH {
            return None;
        }
        let class = self.types.class_by_id(class)?;
        if class.fields.is_empty() {
            plan.steps.extend(primitive(self.types.name(class), slot));
            return Some(());
        }
        (0..class.fields.len()).try_for_each(|field| self.field(plan, class, field, IGNORED_SLOT, depth))
    }
}
