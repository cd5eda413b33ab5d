//! How a type's bytes are gone through: made once of what metadata says, then run for each event or constant.
//!
//! A plan names the fields that are wanted by slots that their numbers go into; all others are passed.

use super::JfrError;
use super::input::Input;
use super::metadata::{Class, Types};

/// The most fields of one plan, those of nested types included: types may contain each other.
const FIELDS: usize = 1 << 12;
/// How deep types may lie in types.
const DEPTH: usize = 16;

/// Fields that are wanted of one type.
pub(super) const SLOTS: usize = 9;
/// Where numbers go that nobody wants.
const PASSED: u8 = 0;

/// What was found: numbers, ids of constants, places of texts. Slot 0 is for what nobody wants.
pub(super) type Slots = [u64; SLOTS];

/// Goes through values of one type.
#[derive(Debug, Default)]
pub(super) struct Plan {
    steps: Vec<Step>,
    /// Fields that were looked at to make it.
    pub(super) fields: usize,
}

#[derive(Debug)]
enum Step {
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
    Many(Box<Plan>),
    /// Such that are `each` so many numbers and nothing else, as frames are, of which most recordings consist.
    ManyNumbers {
        each: usize,
        bytes: usize,
    },
}

impl Plan {
    /// For a type. `wanted`: names of its fields, the first for slot 1. None if it has a field that cannot be passed.
    pub(super) fn of(types: &Types<'_>, class: &Class, wanted: &[&str]) -> Option<Self> {
        Self::of_fields(types, class, 0..class.fields.len(), wanted)
    }

    /// As [`of`](Self::of), for some of its fields.
    pub(super) fn of_fields(
        types: &Types<'_>,
        class: &Class,
        fields: std::ops::Range<usize>,
        wanted: &[&str],
    ) -> Option<Self> {
        let mut maker = Maker { types, fields: 0 };
        if let Some(step) = fields.end.eq(&0).then(|| primitive(types.name(class), PASSED)).flatten() {
            return Some(Plan { steps: vec![step], fields: 0 });
        }
        let mut plan = Plan::default();
        for field in fields {
            let name = types.field_name(&class.fields[field]);
            let slot = wanted.iter().position(|wanted| *wanted == name).map_or(PASSED, |at| at as u8 + 1);
            maker.field(&mut plan, class, field, slot, 0)?;
        }
        plan.fields = maker.fields;
        Some(plan)
    }

    /// Passes many of its values.
    fn many(self) -> Step {
        let width = |step: &Step| match step {
            Step::Number { width, .. } => Some(usize::from(*width)),
            _ => None,
        };
        let each = self.steps.len();
        match self.steps.iter().map(width).sum() {
            Some(bytes) => Step::ManyNumbers { each, bytes },
            None => Step::Many(Box::new(self)),
        }
    }

    /// Goes through one value.
    #[inline]
    pub(super) fn run(&self, input: &mut Input<'_>, slots: &mut Slots) -> Result<(), JfrError> {
        for step in &self.steps {
            match step {
                Step::Number { width, slot } => slots[usize::from(*slot)] = input.number(*width)?,
                Step::Bytes(count) => input.skip(usize::from(*count))?,
                Step::Text { slot } => {
                    slots[usize::from(*slot)] = input.place() as u64;
                    input.skip_text()?;
                }
                Step::Many(plan) => plan.run_many(input)?,
                Step::ManyNumbers { each, bytes } => {
                    let count = input.int()?;
                    input.skip_numbers(count, *each, *bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Passes many values. Of a plan with steps each takes a byte at least; without steps there is nothing to pass.
    fn run_many(&self, input: &mut Input<'_>) -> Result<(), JfrError> {
        let count = input.int()?;
        if !self.steps.is_empty() {
            for _ in 0..count {
                self.run(input, &mut [0; SLOTS])?;
            }
        }
        Ok(())
    }
}

/// How a type without fields is written.
fn primitive(name: &str, slot: u8) -> Option<Step> {
    Some(match name {
        "boolean" | "byte" => Step::Bytes(1),
        "float" => Step::Bytes(4),
        "double" => Step::Bytes(8),
        "short" | "char" => Step::Number { width: 2, slot },
        "int" => Step::Number { width: 4, slot },
        "long" => Step::Number { width: 8, slot },
        "java.lang.String" => Step::Text { slot },
        _ => return None,
    })
}

struct Maker<'a, 'b> {
    types: &'a Types<'b>,
    /// Fields that were looked at.
    fields: usize,
}

impl Maker<'_, '_> {
    fn field(&mut self, plan: &mut Plan, class: &Class, field: usize, slot: u8, depth: usize) -> Option<()> {
        self.fields += 1;
        if self.fields > FIELDS {
            return None;
        }
        let field = class.fields[field];
        let mut one = Plan::default();
        let slot = if field.array { PASSED } else { slot };
        if field.constant {
            one.steps.push(Step::Number { width: 8, slot });
        } else {
            self.value(&mut one, field.class, slot, depth + 1)?;
        }
        if field.array {
            plan.steps.push(one.many());
        } else {
            plan.steps.append(&mut one.steps);
        }
        Some(())
    }

    /// A value in its place: of a type with fields all of them, one after the other.
    fn value(&mut self, plan: &mut Plan, class: u64, slot: u8, depth: usize) -> Option<()> {
        if depth > DEPTH {
            return None;
        }
        let class = self.types.class(class)?;
        if class.fields.is_empty() {
            plan.steps.extend(primitive(self.types.name(class), slot));
            return Some(());
        }
        (0..class.fields.len()).try_for_each(|field| self.field(plan, class, field, PASSED, depth))
    }
}
