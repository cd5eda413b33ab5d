//! Answers of other nodes that come in pieces: parts of what is asked for, then what the node has to say of it.

use athanor_chassis::{Code, Status};
use bytes::Bytes;
use futures::stream::{Stream, TryStreamExt};

/// A piece of an answer.
pub enum Piece<D> {
    /// A part of what is asked for.
    Partial(Bytes),
    /// What is said of it; nothing but more of these follows.
    Done(D),
    /// What this version does not know.
    Unknown,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unheard {
    /// Who was asked did not give one.
    There(Status),
    /// This node cannot take it.
    Here(Status),
}

/// Receives all pieces; each part is given to `take`. Of what is said there is at most so much.
pub async fn receive<D>(
    pieces: impl Stream<Item = Result<Piece<D>, Status>>,
    most: usize,
    mut take: impl FnMut(Bytes) -> Result<(), Status>,
) -> Result<Vec<D>, Unheard> {
    let mut done = Vec::new();
    let mut pieces = std::pin::pin!(pieces);
    while let Some(piece) = pieces.try_next().await.map_err(Unheard::There)? {
        match piece {
            Piece::Partial(bytes) if done.is_empty() => take(bytes).map_err(Unheard::Here)?,
            Piece::Done(of) if done.len() < most => done.push(of),
            _ => {
                let why = "a node says what was not asked for; is it of another version?";
                return Err(Unheard::There(Status::new(Code::Internal, why)));
            }
        }
        // A long answer may lie there whole.
        tokio::task::consume_budget().await;
    }
    Ok(done)
}

impl Unheard {
    /// In words.
    pub fn status(self) -> Status {
        match self {
            Unheard::There(status) | Unheard::Here(status) => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    async fn received(pieces: Vec<Result<Piece<u8>, Status>>) -> (Result<Vec<u8>, Unheard>, usize) {
        let mut parts = 0;
        let taken = receive(stream::iter(pieces), 2, |bytes| {
            parts += 1;
            match bytes.is_empty() {
                true => Err(Status::new(Code::Exhausted, "no room")),
                false => Ok(()),
            }
        });
        (taken.await, parts)
    }

    fn part(byte: &'static [u8]) -> Result<Piece<u8>, Status> {
        Ok(Piece::Partial(Bytes::from_static(byte)))
    }

    #[tokio::test]
    async fn parts_come_before_what_is_said_of_them() {
        let (done, parts) =
            received(vec![part(b"a"), part(b"b"), Ok(Piece::Done(1)), Ok(Piece::Done(2))]).await;
        assert_eq!((done, parts), (Ok(vec![1, 2]), 2));
        assert_eq!(received(vec![]).await.0, Ok(vec![]));
        let late = vec![Ok(Piece::Done(1)), part(b"a")];
        let more = vec![Ok(Piece::Done(1)), Ok(Piece::Done(2)), Ok(Piece::Done(3))];
        for odd in [late, more, vec![Ok(Piece::Unknown)]] {
            let refused = received(odd).await.0;
            assert!(
                matches!(&refused, Err(Unheard::There(why)) if why.code == Code::Internal),
                "{refused:?}"
            );
        }
    }

    #[tokio::test]
    async fn who_is_at_fault_is_known() {
        let broke = Status::new(Code::Unavailable, "cut");
        assert_eq!(received(vec![part(b"a"), Err(broke.clone())]).await, (Err(Unheard::There(broke)), 1));
        let (full, _) = received(vec![part(b"")]).await;
        assert!(matches!(full, Err(Unheard::Here(why)) if why.code == Code::Exhausted));
    }
}
