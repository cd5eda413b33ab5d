//! Profiles and responses written as files of tables read back as they were. Damaged files are errors.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Field, Schema};
use athanor_arrow_format::{
    ArrowStreamError, SampleColumns, SampleProfile, SampleReader, SampleRow, SampleValue, SampleWriter,
    StreamMetadata, TableFileFormat, TableFileWriter, TableResponse,
};
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::folded;
use athanor_profile::generate::arbitrary_profile;
use athanor_profile::{Labels, Profile, SpanContext};
use athanor_proto::athanor::v1::{FunctionGroup, FunctionOfGroup, FunctionRow, FunctionsResponse};
use athanor_proto::types::v1::LabelPair;
use bytes::Bytes;
use proptest::prelude::*;

fn labels() -> Labels {
    Labels::new([("pod".to_owned(), "a \"quoted\", pod".to_owned())])
}

fn metadata() -> StreamMetadata {
    StreamMetadata {
        unit: "nanoseconds".to_owned(),
        profile_type: "process_cpu:cpu:nanoseconds:cpu:nanoseconds".to_owned(),
        ..StreamMetadata::default()
    }
}

fn stream(profile: &Profile, span: u64) -> Vec<u8> {
    let mut writer =
        SampleWriter::new(SampleColumns::default(), &metadata(), Box::new(|_| "next".to_owned()))
            .expect("a writer");
    let span = SpanContext { span, trace: u128::from(span) };
    let rows = profile.samples.rows(profile.header.types.len());
    let samples: Vec<SampleValue> =
        rows.map(|(stack, _, values)| SampleValue { stack, value: values[0], span }).collect();
    let labels = labels();
    let rows = SampleProfile { id: 7, time: 1_700_000_000_123_456_789, labels: &labels, samples: &samples };
    writer.with_dictionary(&profile.dictionary).write_profile(&rows, 0, u64::MAX).expect("written");
    writer.finish().expect("finished").to_vec()
}

fn file(format: TableFileFormat, streams: &[Vec<u8>]) -> Vec<u8> {
    let mut file = TableFileWriter::new(format, Vec::new());
    for stream in streams {
        file.append_stream(stream.as_slice()).expect("appended");
    }
    file.finish().expect("a file")
}

fn open(format: TableFileFormat, bytes: Vec<u8>) -> Result<SampleReader<'static>, ArrowStreamError> {
    match format {
        TableFileFormat::Parquet => SampleReader::from_parquet(Bytes::from(bytes)),
        _ => SampleReader::new(std::io::Cursor::new(bytes)),
    }
}

fn usable_profile(seed: u64) -> Option<Profile> {
    let profile = arbitrary_profile(seed);
    let has_values = !profile.header.types.is_empty() && !profile.samples.is_empty();
    (has_values && profile.magnitude(0) < 1 << 61).then_some(profile)
}

/// Returns a profile of distinct stacks, each with a value.
fn wide_profile(stacks: usize) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![athanor_profile::ValueType::new("cpu", "nanoseconds")];
    for number in 0..stacks {
        let names = ["main".to_owned(), format!("function-{number}")];
        let stack = profile.dictionary.intern_named_stack(names.iter().map(String::as_str));
        profile.samples.push(stack, 0, &[number as i64 + 1]);
    }
    profile
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn generated_profiles_read_back_from_files(seed in any::<u64>(), span in 0u64..3) {
        let Some(profile) = usable_profile(seed) else { return Ok(()) };
        for format in [TableFileFormat::Arrow, TableFileFormat::Parquet] {
            let bytes = file(format, &[stream(&profile, span), stream(&profile, span)]);
            let mut reader = open(format, bytes).expect("a schema");
            prop_assert_eq!(reader.metadata(), &metadata());
            let rows: Vec<SampleRow> = reader.by_ref().collect::<Result<_, _>>().expect("rows");
            prop_assert_eq!(reader.cursor(), "");
            let dictionary = reader.into_dictionary();
            let mut totals = vec![0; dictionary.stacks.len()];
            for row in &rows {
                totals[row.stack as usize] += row.value;
                prop_assert_eq!(&row.labels, &labels());
                prop_assert_eq!((row.profile, row.time), (7, 1_700_000_000_123_456_789));
                prop_assert_eq!(row.span, SpanContext { span, trace: u128::from(span) });
            }
            let twice: Vec<i64> = profile.totals_by_stack(0).iter().map(|total| 2 * total).collect();
            let expected = Tree::from_totals(&profile.dictionary, &twice);
            let found = Tree::from_totals(&dictionary, &totals);
            prop_assert_eq!(folded::write(&found), folded::write(&expected));
        }
    }

    #[test]
    fn changed_files_do_not_panic(place in any::<prop::sample::Index>(), mask in 1u8..) {
        for format in [TableFileFormat::Arrow, TableFileFormat::Parquet] {
            let mut bytes = file(format, &[stream(&wide_profile(20), 1)]);
            let place = place.index(bytes.len());
            bytes[place] ^= mask;
            if let Ok(reader) = open(format, bytes) {
                prop_assert!(reader.take_while(Result::is_ok).count() < 10_000);
            }
        }
    }
}

#[test]
fn truncated_files_are_errors() {
    for format in [TableFileFormat::Arrow, TableFileFormat::Parquet] {
        let bytes = file(format, &[stream(&wide_profile(50), 0)]);
        for end in (0..bytes.len() - 8).step_by(61) {
            let read =
                open(format, bytes[..end].to_vec()).and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
            assert!(read.is_err() || read.is_ok_and(|rows| rows.is_empty()), "{format:?} {end}");
        }
    }
}

#[test]
fn large_profile_reads_back_from_parquet() {
    let profile = wide_profile(70_000);
    let bytes = file(TableFileFormat::Parquet, &[stream(&profile, 0)]);
    let mut reader = open(TableFileFormat::Parquet, bytes).expect("a schema");
    let mut rows = 0;
    while let Some(row) = reader.next() {
        let row = row.expect("a row");
        let names = reader.dictionary().frame_names(row.stack);
        assert_eq!(names, ["main".to_owned(), format!("function-{}", row.value - 1)]);
        rows += 1;
    }
    assert_eq!(rows, 70_000);
}

#[test]
fn csv_has_a_line_for_each_row() {
    let bytes = file(TableFileFormat::Csv, &[stream(&wide_profile(2), 5)]);
    let text = String::from_utf8(bytes).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "profile_id,time,labels,stack,value,span_id,trace_id,warnings");
    assert_eq!(
        lines[1],
        "00000000-0000-0000-0000-000000000007,2023-11-14T22:13:20.123456789Z,\
         \"{\"\"pod\"\":\"\"a \\\"\"quoted\\\"\", pod\"\"}\",main;function-0,1,0000000000000005,\
         00000000000000000000000000000005,"
    );
    assert_eq!(lines.len(), 3);
}

#[test]
fn functions_have_all_columns_and_numbers() {
    let groups = vec![FunctionOfGroup { group: 0, self_: 2, total: 3 }];
    let known = FunctionRow {
        name: "work".into(),
        self_: 5,
        total: 7,
        groups,
        file: "work.rs".into(),
        binary: "/bin/shop".into(),
    };
    let unknown = FunctionRow { name: "main".into(), total: 9, ..FunctionRow::default() };
    let response = FunctionsResponse {
        rows: vec![known, unknown],
        period: 10,
        matched_self: 11,
        matched_total: 12,
        ..FunctionsResponse::default()
    };
    let csv = |response: &FunctionsResponse| {
        let stream = response.to_table().expect("a table").to_stream().expect("a stream");
        let mut file = TableFileWriter::new(TableFileFormat::Csv, Vec::new());
        let appended = file.append_stream(&*stream).expect("appended");
        (String::from_utf8(file.finish().expect("a file")).expect("text"), appended.metadata.extra)
    };
    let (text, numbers) = csv(&response);
    assert_eq!(text, "name,self,total,file,binary\nwork,5,7,work.rs,/bin/shop\nmain,0,9,,\n");
    for (key, value) in [("period", "10"), ("matched_self", "11"), ("matched_total", "12")] {
        assert!(numbers.contains(&(format!("athanor.{key}"), value.to_owned())), "{key}: {numbers:?}");
    }
    let labels = vec![LabelPair { name: "pod".into(), value: "a".into() }];
    let groups = vec![FunctionGroup { labels, ..FunctionGroup::default() }];
    let (text, _) = csv(&FunctionsResponse { groups, ..response });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "name,self,total,file,binary,group,group_self,group_total");
    assert_eq!(lines[1..], ["work,5,7,work.rs,/bin/shop,\"{\"\"pod\"\":\"\"a\"\"}\",2,3"]);
}

#[test]
fn stream_of_other_columns_is_refused() {
    let mut file = TableFileWriter::new(TableFileFormat::Csv, Vec::new());
    file.append_stream(stream(&wide_profile(1), 0).as_slice()).expect("appended");
    let other = stream_of("value", Arc::new(StringArray::from(vec!["1"])));
    let error = file.append_stream(other.as_slice()).expect_err("an error");
    assert!(matches!(error, ArrowStreamError::OtherColumns { .. }), "{error}");
}

/// Returns a stream of one column, and of a column of stacks that are texts.
fn stream_of(name: &str, column: ArrayRef) -> Vec<u8> {
    let schema = Arc::new(Schema::new(vec![Field::new(name, column.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).expect("a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).expect("a writer");
    writer.write(&batch).expect("written");
    writer.into_inner().expect("a stream")
}

#[test]
fn files_of_other_schemas_are_refused_by_column() {
    let refusal = |format, bytes| match open(format, bytes).map(|mut reader| reader.next()) {
        Err(error) | Ok(Some(Err(error))) => error.to_string(),
        other => panic!("{:?}", other.map(|row| row.is_some())),
    };
    let keys = DictionaryArray::<Int32Type>::from_iter(["main", "work"]);
    for format in [TableFileFormat::Arrow, TableFileFormat::Parquet] {
        let bytes = file(format, &[stream_of("value", Arc::new(Int64Array::from(vec![1])))]);
        assert!(refusal(format, bytes).contains("no column stack"), "{format:?}");
        let schema = Arc::new(Schema::new(vec![
            Field::new("stack", keys.data_type().clone(), true),
            Field::new("value", arrow_schema::DataType::Int64, true),
        ]));
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys.clone()), values]);
        let mut writer = StreamWriter::try_new(Vec::new(), &schema).expect("a writer");
        writer.write(&batch.expect("a batch")).expect("written");
        let bytes = file(format, &[writer.into_inner().expect("a stream")]);
        assert!(refusal(format, bytes).contains("column stack has type"), "{format:?}");
    }
}

#[test]
fn formats_follow_from_endings() {
    let format = TableFileFormat::from_file_name;
    assert_eq!(format("a.b.Arrow"), Some(TableFileFormat::Arrow));
    assert_eq!(format("a.parquet"), Some(TableFileFormat::Parquet));
    assert_eq!(format("a.csv"), Some(TableFileFormat::Csv));
    assert!([format("arrow"), format("a.xlsx"), format("")].iter().all(Option::is_none));
}

#[test]
fn indexes_beyond_a_dictionary_are_errors() {
    let compressed = stream(&wide_profile(20), 0);
    let mut reader = StreamReader::try_new(compressed.as_slice(), None).expect("a schema");
    let batch = reader.next().expect("a batch").expect("a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("a writer");
    writer.write(&batch).expect("written");
    let plain = writer.into_inner().expect("a stream");
    let keys: Vec<u8> = (0i32..20).flat_map(i32::to_le_bytes).collect();
    let place = plain.windows(keys.len()).position(|bytes| bytes == keys).expect("the indexes of stacks");
    for wrong in [20i32, i32::MAX, -1] {
        let mut changed = plain.clone();
        changed[place + 40..place + 44].copy_from_slice(&wrong.to_le_bytes());
        let read =
            open(TableFileFormat::Arrow, changed).and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
        assert!(read.is_err(), "{wrong}");
    }
    assert_eq!(open(TableFileFormat::Arrow, plain).expect("a schema").count(), 20);
}
