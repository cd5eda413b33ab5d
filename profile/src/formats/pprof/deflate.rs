//! Gzip compression without a time or file name, so equal input gives equal output.

use libdeflater::{CompressionLvl, Compressor};

/// Compresses data that is stored, at the default level.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    gzip_at(CompressionLvl::default(), bytes)
}

/// Compresses data that is only sent: faster and larger than [`gzip`]. The level below this one does not
/// compress at all.
#[must_use]
pub fn gzip_fast(bytes: &[u8]) -> Vec<u8> {
    gzip_at(CompressionLvl::new(1).expect("one of the levels"), bytes)
}

fn gzip_at(level: CompressionLvl, bytes: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(level);
    let mut out = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let length = compressor.gzip_compress(bytes, &mut out).expect("the bound is large enough");
    out.truncate(length);
    out
}

#[cfg(test)]
mod tests {
    use super::super::inflate;
    use super::{gzip, gzip_fast};

    #[test]
    fn what_is_compressed_is_smaller_and_reads_the_same() {
        let text: Vec<u8> =
            (0..2000).flat_map(|number| format!("main;run_{number} 1\n").into_bytes()).collect();
        let (kept, sent) = (gzip(&text), gzip_fast(&text));
        assert!(kept.len() < sent.len() && sent.len() < text.len() / 2, "{} {}", kept.len(), sent.len());
        for packed in [kept, sent] {
            assert_eq!(inflate(&packed, text.len()).unwrap(), text);
        }
    }
}
