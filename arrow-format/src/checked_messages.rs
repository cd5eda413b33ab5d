//! Messages of an Arrow IPC stream with checked sizes.
//!
//! A compressed buffer begins with its uncompressed size, and the library allocates that size before it decompresses. So
//! a damaged size would end the process.

use std::io::{self, Read};

use arrow_ipc::{Message, RecordBatch, root_as_message};

/// Maximum size of the description of a message.
const MAX_HEAD_BYTES: u64 = 64 << 20;
/// Maximum size of the buffers of a message, compressed and not compressed.
const MAX_BODY_BYTES: u64 = 1 << 30;
/// First word of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Uncompressed size that stands for a buffer without compression.
const NOT_COMPRESSED: i64 = -1;

/// Reader that passes a stream on, one message at a time.
pub(crate) struct CheckedMessages<R> {
    stream: R,
    message: Vec<u8>,
    position: usize,
}

impl<R: Read> CheckedMessages<R> {
    pub(crate) fn new(stream: R) -> Self {
        CheckedMessages { stream, message: Vec::new(), position: 0 }
    }

    /// Reads the next message. An incomplete one is passed on as it is.
    fn read_message(&mut self) -> io::Result<()> {
        self.message.clear();
        self.position = 0;
        if self.append(4)? < 4 {
            return Ok(());
        }
        if self.message == CONTINUATION && self.append(4)? < 4 {
            return Ok(());
        }
        let words = self.message.last_chunk::<4>().copied().unwrap_or_default();
        let head_bytes = u64::from(u32::from_le_bytes(words));
        check("description", head_bytes, MAX_HEAD_BYTES)?;
        let head = self.message.len();
        if self.append(head_bytes)? < head_bytes || head_bytes == 0 {
            return Ok(());
        }
        let body = self.message.len();
        let Ok(description) = root_as_message(&self.message[head..]) else { return Ok(()) };
        let body_bytes = u64::try_from(description.bodyLength()).unwrap_or(u64::MAX);
        check("body", body_bytes, MAX_BODY_BYTES)?;
        if self.append(body_bytes)? < body_bytes {
            return Ok(());
        }
        let (start, buffers) = self.message.split_at(body);
        match root_as_message(&start[head..]) {
            Ok(description) => check_buffers(&description, buffers),
            Err(_) => Ok(()),
        }
    }

    /// Reads up to `count` more bytes of the message. Returns their number, which is smaller at the end of the stream.
    fn append(&mut self, count: u64) -> io::Result<u64> {
        self.stream.by_ref().take(count).read_to_end(&mut self.message).map(|read| read as u64)
    }
}

impl<R: Read> Read for CheckedMessages<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position == self.message.len() {
            self.read_message()?;
        }
        let read = (&self.message[self.position..]).read(buffer)?;
        self.position += read;
        Ok(read)
    }
}

/// Checks the sizes of the buffers of a message.
fn check_buffers(description: &Message<'_>, body: &[u8]) -> io::Result<()> {
    let dictionary = description.header_as_dictionary_batch().and_then(|batch| batch.data());
    let batch: Option<RecordBatch<'_>> = description.header_as_record_batch().or(dictionary);
    let Some(batch) = batch.filter(|batch| batch.compression().is_some()) else { return Ok(()) };
    let mut total = 0;
    for buffer in batch.buffers().iter().flatten() {
        let start = usize::try_from(buffer.offset()).unwrap_or(usize::MAX);
        let Some(size) = body.get(start..).and_then(|bytes| bytes.first_chunk::<8>()) else { continue };
        let size = i64::from_le_bytes(*size);
        if buffer.length() == 0 || size == NOT_COMPRESSED {
            continue;
        }
        total = u64::try_from(size).unwrap_or(u64::MAX).saturating_add(total);
        check("uncompressed buffers", total, MAX_BODY_BYTES)?;
    }
    Ok(())
}

fn check(part: &str, bytes: u64, limit: u64) -> io::Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    let message =
        format!("{part} of a message has {bytes} bytes, the limit is {limit}; the stream is damaged");
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}
