//! Decode plans of types. A plan is built once per type from metadata and run for each event or constant.
//!
//! A plan stores the wanted fields of a value in slots and skips all other fields.

use super::JfrError;
use super::input::ChunkCursor;
use super::metadata::{JfrClass, JfrTypeTable};

/// Limit on the fields of one plan, nested types included, because types may contain each other.
const MAX_PLAN_FIELDS: usize = 1 << 12;
/// Limit on the nesting of types.
const MAX_TYPE_DEPTH: usize = 16;

/// Number of slots, including [`IGNORED_SLOT`].
pub(super) const SLOT_COUNT: usize = 9;
/// Slot for the numbers of unwanted fields.
const IGNORED_SLOT: u8 = 0;

/// Values of the wanted fields: numbers, ids of constants, positions of texts. Slot 0 holds unwanted values.
pub(super) type FieldSlots = [u64; SLOT_COUNT];

/// Plan for decoding values of one type.
#[derive(Debug, Default)]
pub(super) struct DecodePlan {
    steps: Vec<DecodeStep>,
    /// Number of fields that were visited while the plan was built.
    pub(super) fields: usize,
}

#[derive(Debug)]
enum DecodeStep {
    /// Number with its width in an uncompressed chunk.
    Number {
        width: u8,
        slot: u8,
    },
    /// Fixed number of bytes to skip.
    Bytes(u8),
    Text {
        slot: u8,
    },
    /// Counted list of values, all skipped.
    Many(Box<DecodePlan>),
    /// Counted list of values with `each` numbers and nothing else. Frames are such values, and most bytes of
    /// a recording are frames.
    ManyNumbers {
        each: usize,
        bytes: usize,
    },
}

impl DecodePlan {
    /// Builds the plan of a type. `wanted` contains field names, the first for slot 1. Returns `None` if a
    /// field cannot be skipped.
    pub(super) fn for_class(types: &JfrTypeTable<'_>, class: &JfrClass, wanted: &[&str]) -> Option<Self> {
        Self::for_fields(types, class, 0..class.fields.len(), wanted)
    }

    /// Builds a plan like [`for_class`](Self::for_class), but for a range of the fields.
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

    /// Converts the plan of an element to a step that skips a list of elements.
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

    /// Decodes one value into the slots.
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

    /// Skips a counted list of values. Each step reads at least one byte, so the input bounds the loop.
    /// Without steps the values are empty.
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

/// Returns the step for a type without fields; `None` if the type is unknown.
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
    /// Number of fields visited so far.
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

    /// Adds the steps of an inline value. A type with fields adds the steps of all its fields.
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
