//! Rules of rows: what one row of call frame information becomes.

use gimli::{CfaRule as DwarfCfa, RegisterRule, UnwindContextStorage, UnwindExpression};
use gimli::{UnwindTableRow, X86_64};

use super::expression::{Location, evaluate_expression, plt_threshold};
use crate::layout::{CfaRule, RbpRule, UnwindRow};

/// Distance from the CFA of the return address.
const RETURN_ADDRESS_OFFSET: i64 = -8;
/// Offset of the saved stack pointer from the stack pointer in a signal frame of the kernel.
const SIGNAL_RSP_OFFSET: i64 = 160;
/// Offset of the saved instruction pointer from the stack pointer in a signal frame of the kernel.
const SIGNAL_RIP_OFFSET: i64 = 168;

/// Row without its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowRule(UnwindRow);

impl RowRule {
    /// There is no row.
    pub(super) const NONE: Self = Self::without_offsets(CfaRule::None, RbpRule::Same);
    /// Outermost frame.
    pub(super) const END: Self = Self::without_offsets(CfaRule::End, RbpRule::Same);
    /// Frame of the kernel for a signal handler.
    pub(super) const SIGNAL: Self = Self::without_offsets(CfaRule::Signal, RbpRule::Same);
    /// There is a rule, and it cannot be expressed.
    pub(super) const UNSUPPORTED: Self = Self::without_offsets(CfaRule::Unsupported, RbpRule::Unknown);

    const fn without_offsets(cfa_rule: CfaRule, rbp_rule: RbpRule) -> Self {
        Self(UnwindRow { pc: 0, rule: cfa_rule as u8 | (rbp_rule as u8) << 4, rbp_offset8: 0, cfa: 0 })
    }

    /// Returns the rule of a row.
    pub(super) fn from_row(row: &UnwindRow) -> Self {
        Self(UnwindRow { pc: 0, ..*row })
    }

    /// Returns the row at an address.
    pub(super) fn at(self, pc: u16) -> UnwindRow {
        UnwindRow { pc, ..self.0 }
    }
}

/// Expressions of the entry that a row is part of.
pub(super) trait ExpressionSource {
    /// Returns the bytes of an expression. Empty if its range is damaged.
    fn expression(&self, expression: &UnwindExpression<usize>) -> &[u8];
}

/// Returns the rule of a row of call frame information.
pub(super) fn rule_of_row<S: UnwindContextStorage<usize>>(
    row: &UnwindTableRow<usize, S>,
    expressions: &impl ExpressionSource,
) -> RowRule {
    let return_address = row.register(X86_64::RA);
    if return_address == Some(RegisterRule::Undefined) {
        return RowRule::END;
    }
    let cfa = cfa_location(row.cfa(), expressions);
    if is_signal_frame(cfa, return_address.as_ref(), expressions) {
        return RowRule::SIGNAL;
    }
    if return_address != Some(RegisterRule::Offset(RETURN_ADDRESS_OFFSET)) {
        return RowRule::UNSUPPORTED;
    }
    let encoded = match (cfa, row.cfa()) {
        (Some(location), _) => encode_cfa(location),
        (None, DwarfCfa::Expression(expression)) => {
            plt_threshold(expressions.expression(expression)).map(|threshold| (CfaRule::Plt, threshold))
        }
        (None, DwarfCfa::RegisterAndOffset { .. }) => None,
    };
    let Some((cfa_rule, encoded_cfa)) = encoded else { return RowRule::UNSUPPORTED };
    let (rbp_rule, rbp_offset8) = rbp_of_row(row.register(X86_64::RBP), cfa, expressions);
    RowRule(UnwindRow::new(0, cfa_rule, encoded_cfa, rbp_rule, rbp_offset8))
}

fn cfa_location(cfa: &DwarfCfa<usize>, expressions: &impl ExpressionSource) -> Option<Location> {
    match cfa {
        DwarfCfa::RegisterAndOffset { register, offset } => {
            Some(Location::Register { register: *register, offset: *offset })
        }
        DwarfCfa::Expression(expression) => evaluate_expression(expressions.expression(expression)),
    }
}

/// Returns whether the saved registers are where the kernel puts them for a signal handler.
fn is_signal_frame(
    cfa: Option<Location>,
    return_address: Option<&RegisterRule<usize>>,
    expressions: &impl ExpressionSource,
) -> bool {
    let saved_rsp = Location::Memory { register: X86_64::RSP, offset: SIGNAL_RSP_OFFSET, addend: 0 };
    let saved_rip = Location::Register { register: X86_64::RSP, offset: SIGNAL_RIP_OFFSET };
    let Some(RegisterRule::Expression(expression)) = return_address else { return false };
    cfa == Some(saved_rsp) && evaluate_expression(expressions.expression(expression)) == Some(saved_rip)
}

/// Returns rule and number of a CFA. None if it does not fit.
fn encode_cfa(location: Location) -> Option<(CfaRule, i32)> {
    match location {
        Location::Register { register: X86_64::RSP, offset } => {
            Some((CfaRule::Rsp, i32::try_from(offset).ok()?))
        }
        Location::Register { register: X86_64::RBP, offset } => {
            Some((CfaRule::Rbp, i32::try_from(offset).ok()?))
        }
        Location::Register { register, offset } => {
            let number = i64::from(register.0);
            let encoded = offset.checked_mul(16).filter(|_| number < 16)? | number;
            Some((CfaRule::Register, i32::try_from(encoded).ok()?))
        }
        Location::Memory { register, offset, addend } => {
            let rule = match register {
                X86_64::RSP => CfaRule::DerefRsp,
                X86_64::RBP => CfaRule::DerefRbp,
                _ => return None,
            };
            let low = i32::from(i16::try_from(offset).ok()?) & 0xffff;
            let high = i32::from(i16::try_from(addend).ok()?) << 16;
            Some((rule, low | high))
        }
    }
}

/// Returns the rule of rbp. `cfa` is the location of the CFA if it is known.
fn rbp_of_row(
    rule: Option<RegisterRule<usize>>,
    cfa: Option<Location>,
    expressions: &impl ExpressionSource,
) -> (RbpRule, i8) {
    let unknown = (RbpRule::Unknown, 0);
    match rule {
        None | Some(RegisterRule::SameValue) => (RbpRule::Same, 0),
        Some(RegisterRule::Offset(offset)) => encode_rbp_offset(offset).unwrap_or(unknown),
        Some(RegisterRule::Expression(expression)) => {
            let saved = evaluate_expression(expressions.expression(&expression));
            rbp_of_address(saved, cfa).unwrap_or(unknown)
        }
        Some(_) => unknown,
    }
}

/// Returns the rule of rbp that is saved at an address: next to the CFA, or at rbp.
fn rbp_of_address(saved: Option<Location>, cfa: Option<Location>) -> Option<(RbpRule, i8)> {
    let Some(Location::Register { register, offset }) = saved else { return None };
    if let Some(Location::Register { register: cfa_register, offset: cfa_offset }) = cfa
        && register == cfa_register
        && let Some(encoded) = encode_rbp_offset(offset.checked_sub(cfa_offset)?)
    {
        return Some(encoded);
    }
    (register == X86_64::RBP && offset == 0).then_some((RbpRule::AtRbp, 0))
}

fn encode_rbp_offset(offset: i64) -> Option<(RbpRule, i8)> {
    if offset % 8 != 0 {
        return None;
    }
    Some((RbpRule::AtCfa, i8::try_from(offset / 8).ok()?))
}
