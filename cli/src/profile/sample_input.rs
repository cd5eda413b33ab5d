//! Rows of samples in Arrow and Parquet files, read back as a profile.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use athanor_arrow_format::{SampleReader, StreamMetadata};
use athanor_chassis::{ErrorCode, Status};
use athanor_profile::{Dictionary, Profile, ProfileHeader, ProfileType, Samples, ValueType};
use bytes::Bytes;

use crate::failure;
use crate::table_output::table_error;

/// First bytes of an Arrow IPC stream: the mark of a message.
const ARROW_STREAM_MAGIC: &[u8] = &[0xff; 4];
/// First bytes of an Arrow IPC file, which cannot replace dictionaries.
const ARROW_FILE_MAGIC: &[u8] = b"ARROW1";
/// First bytes of a Parquet file.
const PARQUET_MAGIC: &[u8] = b"PAR1";
/// Metadata key of a profile's duration in nanoseconds.
const DURATION_KEY: &str = "athanor.duration_nanos";
/// Metadata key of the frames that views leave out.
const DROP_FRAMES_KEY: &str = "athanor.drop_frames";
/// Metadata key of the frames that views keep.
const KEEP_FRAMES_KEY: &str = "athanor.keep_frames";

/// File format of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFormat {
    /// Arrow IPC stream.
    ArrowStream,
    /// Arrow IPC file.
    ArrowFile,
    /// Parquet file.
    Parquet,
}

/// Returns the format that content begins with. None if it is no table.
pub fn detect(content: &[u8]) -> Option<SampleFormat> {
    let known = [
        (ARROW_STREAM_MAGIC, SampleFormat::ArrowStream),
        (ARROW_FILE_MAGIC, SampleFormat::ArrowFile),
        (PARQUET_MAGIC, SampleFormat::Parquet),
    ];
    known.into_iter().find(|(magic, _)| content.starts_with(magic)).map(|(_, format)| format)
}

/// Returns the format of a file by its first bytes.
pub fn detect_file(path: &Path) -> Result<Option<SampleFormat>, Status> {
    let failed = |error: io::Error| failure::io_error(path, error);
    let mut head = Vec::new();
    let limit = ARROW_FILE_MAGIC.len() as u64;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut head)).map_err(failed)?;
    Ok(detect(&head))
}

/// Reads a file of samples. It may be larger than other inputs, because it is read in batches.
pub fn read_file(path: &Path, format: SampleFormat) -> Result<Profile, Status> {
    let file = File::open(path).map_err(|error| failure::io_error(path, error))?;
    let reader = match format {
        SampleFormat::ArrowStream => SampleReader::new(BufReader::new(file)),
        SampleFormat::Parquet => SampleReader::from_parquet(file),
        SampleFormat::ArrowFile => return Err(arrow_file(path)),
    };
    read_rows(path, reader.map_err(|error| table_error(path, &error))?)
}

/// Reads samples from memory.
pub fn read_bytes(path: &Path, format: SampleFormat, bytes: Vec<u8>) -> Result<Profile, Status> {
    let reader = match format {
        SampleFormat::ArrowStream => SampleReader::new(Cursor::new(bytes)),
        SampleFormat::Parquet => SampleReader::from_parquet(Bytes::from(bytes)),
        SampleFormat::ArrowFile => return Err(arrow_file(path)),
    };
    read_rows(path, reader.map_err(|error| table_error(path, &error))?)
}

fn arrow_file(path: &Path) -> Status {
    let why = "Arrow file in the random access format; write it as an Arrow stream or as Parquet";
    failure::invalid_file(path, why)
}

/// Sums all rows by stack.
fn read_rows(path: &Path, mut reader: SampleReader<'_>) -> Result<Profile, Status> {
    let mut totals: Vec<i64> = Vec::new();
    let mut first_time = 0;
    for row in &mut reader {
        let row = row.map_err(|error| table_error(path, &error))?;
        let stack = row.stack as usize;
        totals.resize(totals.len().max(stack + 1), 0);
        totals[stack] = totals[stack].checked_add(row.value).ok_or_else(|| sum_error(path))?;
        if row.time != 0 && (first_time == 0 || row.time < first_time) {
            first_time = row.time;
        }
    }
    for warning in reader.warnings() {
        eprintln!("athanor: {}: partial result: {}", path.display(), crate::output::harmless(warning));
    }
    let header = header(reader.metadata(), first_time);
    Ok(profile(header, &totals, reader.into_dictionary()))
}

fn sum_error(path: &Path) -> Status {
    let message = format!(
        "{}: sum of the values of a stack does not fit in 63 bits, the limit is {}; export a shorter time range",
        path.display(),
        i64::MAX
    );
    Status::new(ErrorCode::Invalid, message)
}

fn profile(header: ProfileHeader, totals: &[i64], dictionary: Dictionary) -> Profile {
    let mut samples = Samples::default();
    for (stack, &total) in (0u32..).zip(totals) {
        if total != 0 {
            samples.push(stack, 0, &[total]);
        }
    }
    Profile { header, samples, dictionary }
}

/// Returns the metadata entries of a profile's header.
pub fn header_entries(header: &ProfileHeader) -> Vec<(String, String)> {
    let duration = match header.duration_nanos {
        0 => String::new(),
        nanos => nanos.to_string(),
    };
    let entries = [
        (DURATION_KEY, duration),
        (DROP_FRAMES_KEY, header.drop_frames.clone()),
        (KEEP_FRAMES_KEY, header.keep_frames.clone()),
    ];
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Returns the header of a profile with one value type.
fn header(metadata: &StreamMetadata, time_nanos: i64) -> ProfileHeader {
    let entry = |key: &str| {
        let found = metadata.extra.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let (value, period) = match metadata.profile_type.parse::<ProfileType>() {
        Ok(known) => (known.value, known.period),
        Err(_) => (ValueType::new("samples", &metadata.unit), ValueType::default()),
    };
    ProfileHeader {
        types: vec![value],
        period_type: (period != ValueType::default()).then_some(period),
        time_nanos,
        duration_nanos: entry(DURATION_KEY).parse().unwrap_or_default(),
        drop_frames: entry(DROP_FRAMES_KEY),
        keep_frames: entry(KEEP_FRAMES_KEY),
        ..ProfileHeader::default()
    }
}
