//! Batches: items of one request, and their halves after a rejection.

use athanor_chassis::Status;
use futures::stream::{self, Stream, StreamExt};

/// Bounds of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum number of items.
    pub max_items: usize,
    /// Maximum bytes of all items, unless a single one is larger.
    pub max_bytes: usize,
}

/// Items of one request, and the errors of items that cannot be sent.
#[derive(Debug)]
pub struct Batch<T, E> {
    /// Items to send.
    pub items: Vec<T>,
    /// Errors that the stream returned between the items.
    pub errors: Vec<E>,
}

/// Parts of a batch that remain to be sent, each in a request of its own. A rejected part is halved until the
/// rejected item is alone, so one bad item does not reject the others.
#[derive(Debug)]
pub struct BatchParts<T> {
    parts: Vec<Vec<T>>,
}

/// Groups items into batches in their order, until a batch is full.
pub fn batches<T, E>(
    items: impl Stream<Item = Result<T, E>> + Unpin,
    limits: BatchLimits,
    size_bytes: impl Fn(&T) -> usize + Copy,
) -> impl Stream<Item = Batch<T, E>> {
    stream::unfold((items, None::<T>), move |(mut stream, mut waiting)| async move {
        let mut items = Vec::new();
        let mut errors = Vec::new();
        let mut bytes = 0;
        loop {
            let item = match waiting.take() {
                Some(item) => item,
                None => match stream.next().await {
                    Some(Ok(item)) => item,
                    Some(Err(error)) => {
                        errors.push(error);
                        continue;
                    }
                    None => break,
                },
            };
            let size = size_bytes(&item);
            let is_full = items.len() == limits.max_items || bytes + size > limits.max_bytes;
            if is_full && !items.is_empty() {
                return Some((Batch { items, errors }, (stream, Some(item))));
            }
            bytes += size;
            items.push(item);
        }
        let is_end = items.is_empty() && errors.is_empty();
        (!is_end).then_some((Batch { items, errors }, (stream, None)))
    })
}

impl<T> BatchParts<T> {
    /// Creates the single part that contains all items.
    pub fn new(items: Vec<T>) -> Self {
        BatchParts { parts: if items.is_empty() { Vec::new() } else { vec![items] } }
    }

    /// Removes the next part, in the order of the items.
    pub fn next_part(&mut self) -> Option<Vec<T>> {
        self.parts.pop()
    }

    /// Adds the halves of a part that the server rejected. If it is a single item, returns it with the error.
    pub fn split(&mut self, mut rejected: Vec<T>, status: Status) -> Option<(T, Status)> {
        if rejected.len() <= 1 {
            return rejected.pop().map(|item| (item, status));
        }
        let half = rejected.split_off(rejected.len() / 2);
        self.parts.extend([half, rejected]);
        None
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::ErrorCode;

    use super::*;

    const LIMITS: BatchLimits = BatchLimits { max_items: 64, max_bytes: 4 << 20 };

    #[tokio::test]
    async fn batches_are_bounded_in_bytes_and_in_number() {
        let mut items = vec![Ok(LIMITS.max_bytes + 1), Ok(LIMITS.max_bytes - 1), Err("bad"), Ok(1), Ok(2)];
        items.extend((0..LIMITS.max_items).map(|_| Ok(0)));
        items.push(Err("bad"));
        let seen: Vec<_> = batches(stream::iter(items), LIMITS, |size| *size).collect().await;
        let sizes: Vec<_> = seen.iter().map(|batch| (batch.items.len(), batch.errors.len())).collect();
        assert_eq!(sizes, [(1, 0), (2, 1), (LIMITS.max_items, 0), (1, 1)]);
    }

    #[test]
    fn rejected_items_are_isolated_and_others_are_sent_in_order() {
        let bad = [3, 11, 12];
        let mut parts = BatchParts::new((0..20).collect());
        let (mut accepted, mut rejected, mut requests) = (Vec::new(), Vec::new(), 0);
        while let Some(part) = parts.next_part() {
            requests += 1;
            if part.iter().any(|item| bad.contains(item)) {
                rejected.extend(parts.split(part, Status::new(ErrorCode::Invalid, "bad")).map(|one| one.0));
            } else {
                accepted.extend(part);
            }
        }
        assert_eq!(rejected, bad);
        assert_eq!(accepted, (0..20).filter(|item| !bad.contains(item)).collect::<Vec<_>>());
        assert!(requests <= 30, "{requests}");
        assert!(BatchParts::<u8>::new(Vec::new()).next_part().is_none());
    }
}
