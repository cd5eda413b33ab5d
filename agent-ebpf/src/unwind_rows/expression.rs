//! DWARF expressions of call frame information, as far as compilers and assemblers write them.

use gimli::Register;

use crate::elf::ByteReader;

const MAX_EXPRESSION_BYTES: usize = 64;
const MAX_OPERANDS: usize = 8;

const OP_DEREF: u8 = 0x06;
const OP_CONST1U: u8 = 0x08;
const OP_CONST1S: u8 = 0x09;
const OP_CONST2U: u8 = 0x0a;
const OP_CONST2S: u8 = 0x0b;
const OP_CONST4U: u8 = 0x0c;
const OP_CONST4S: u8 = 0x0d;
const OP_CONSTU: u8 = 0x10;
const OP_CONSTS: u8 = 0x11;
const OP_AND: u8 = 0x1a;
const OP_MINUS: u8 = 0x1c;
const OP_PLUS: u8 = 0x22;
const OP_PLUS_UCONST: u8 = 0x23;
const OP_SHL: u8 = 0x24;
const OP_GE: u8 = 0x2a;
const OP_LIT0: u8 = 0x30;
const OP_LIT31: u8 = 0x4f;
const OP_BREG0: u8 = 0x70;
const OP_BREG7: u8 = 0x77;
const OP_BREG16: u8 = 0x80;
const OP_BREG31: u8 = 0x8f;
const OP_BREGX: u8 = 0x92;
const OP_NOP: u8 = 0x96;

/// Value of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// Register plus offset.
    Register {
        /// Register.
        register: Register,
        /// Offset.
        offset: i64,
    },
    /// Word in memory at register plus offset, plus addend.
    Memory {
        /// Register of the address.
        register: Register,
        /// Offset of the address.
        offset: i64,
        /// Added to the word.
        addend: i64,
    },
}

/// Operand on the stack of an expression.
#[derive(Clone, Copy)]
enum Operand {
    Constant(i64),
    Location(Location),
}

impl Operand {
    fn add(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Constant(left), Self::Constant(right)) => Some(Self::Constant(left.checked_add(right)?)),
            (Self::Constant(constant), Self::Location(location))
            | (Self::Location(location), Self::Constant(constant)) => {
                Some(Self::Location(location.add(constant)?))
            }
            (Self::Location(_), Self::Location(_)) => None,
        }
    }

    fn negate(self) -> Option<Self> {
        match self {
            Self::Constant(constant) => Some(Self::Constant(constant.checked_neg()?)),
            Self::Location(_) => None,
        }
    }

    fn load(self) -> Option<Self> {
        match self {
            Self::Location(Location::Register { register, offset }) => {
                Some(Self::Location(Location::Memory { register, offset, addend: 0 }))
            }
            _ => None,
        }
    }
}

impl Location {
    fn add(self, constant: i64) -> Option<Self> {
        match self {
            Self::Register { register, offset } => {
                Some(Self::Register { register, offset: offset.checked_add(constant)? })
            }
            Self::Memory { register, offset, addend } => {
                Some(Self::Memory { register, offset, addend: addend.checked_add(constant)? })
            }
        }
    }
}

/// Returns the value of an expression of one register, constants and at most one load. None for all others.
pub(super) fn evaluate_expression(bytes: &[u8]) -> Option<Location> {
    if bytes.len() > MAX_EXPRESSION_BYTES {
        return None;
    }
    let mut reader = ByteReader::new(bytes);
    let mut operands: Vec<Operand> = Vec::with_capacity(MAX_OPERANDS);
    while !reader.rest().is_empty() {
        if operands.len() >= MAX_OPERANDS {
            return None;
        }
        let operation = reader.u8()?;
        let operand = match operation {
            OP_NOP => continue,
            OP_DEREF => operands.pop()?.load()?,
            OP_PLUS => operands.pop()?.add(operands.pop()?)?,
            OP_MINUS => operands.pop()?.negate()?.add(operands.pop()?)?,
            OP_PLUS_UCONST => {
                let constant = i64::try_from(reader.uleb128()?).ok()?;
                operands.pop()?.add(Operand::Constant(constant))?
            }
            OP_BREG0..=OP_BREG31 => register_operand(u16::from(operation - OP_BREG0), &mut reader)?,
            OP_BREGX => register_operand(u16::try_from(reader.uleb128()?).ok()?, &mut reader)?,
            _ => Operand::Constant(read_constant(operation, &mut reader)?),
        };
        operands.push(operand);
    }
    match operands.as_slice() {
        [Operand::Location(location)] => Some(*location),
        _ => None,
    }
}

fn register_operand(number: u16, reader: &mut ByteReader<'_>) -> Option<Operand> {
    let offset = reader.sleb128()?;
    Some(Operand::Location(Location::Register { register: Register(number), offset }))
}

fn read_constant(operation: u8, reader: &mut ByteReader<'_>) -> Option<i64> {
    match operation {
        OP_LIT0..=OP_LIT31 => Some(i64::from(operation - OP_LIT0)),
        OP_CONST1U => reader.u8().map(i64::from),
        OP_CONST1S => reader.u8().map(|byte| i64::from(byte as i8)),
        OP_CONST2U => reader.u16().map(i64::from),
        OP_CONST2S => reader.u16().map(|half| i64::from(half as i16)),
        OP_CONST4U => reader.u32().map(i64::from),
        OP_CONST4S => reader.u32().map(|word| i64::from(word as i32)),
        OP_CONSTU => i64::try_from(reader.uleb128()?).ok(),
        OP_CONSTS => reader.sleb128(),
        _ => None,
    }
}

/// Returns the threshold of the expression for lazily bound calls: rsp + 8 + ((rip & 15) >= threshold) << 3.
pub(super) fn plt_threshold(bytes: &[u8]) -> Option<i32> {
    let lit = |number: u8| OP_LIT0 + number;
    let (head, tail) = bytes.split_at_checked(6)?;
    let (threshold, tail) = tail.split_first()?;
    let is_plt = head == [OP_BREG7, 8, OP_BREG16, 0, lit(15), OP_AND]
        && (OP_LIT0..=lit(15)).contains(threshold)
        && tail == [OP_GE, lit(3), OP_SHL, OP_PLUS];
    is_plt.then(|| i32::from(threshold - OP_LIT0))
}
