//! Answers of many sources become one, on whichever threads they come.

use std::sync::{Mutex, PoisonError};

/// Adds an answer to those that met at a place. Whoever finds one there takes it and merges it into its own, so that
/// no thread waits while another one merges.
pub fn meet<T, E>(
    place: &Mutex<Option<T>>,
    mut mine: T,
    merge: impl Fn(T, T) -> Result<T, E>,
) -> Result<(), E> {
    loop {
        let mut held = place.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(other) = held.take() else {
            *held = Some(mine);
            return Ok(());
        };
        drop(held);
        mine = merge(other, mine)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of threads")]
    fn nothing_that_comes_is_lost() {
        let place = Mutex::new(None);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let place = &place;
                scope.spawn(move || {
                    (0..1000).try_for_each(|n| meet(place, thread * 1000 + n, |a, b| Ok::<_, ()>(a + b)))
                });
            }
        });
        assert_eq!(place.into_inner().unwrap(), Some((0..4000).sum()));
        let failing = Mutex::new(Some(1));
        assert_eq!(meet(&failing, 2, |_, _| Err("too much")), Err("too much"));
    }
}
