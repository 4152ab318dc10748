//! The stream that `rbd import --export-format 2` reads: an empty image and its metadata.
//!
//! The format is that of Ceph's doc/dev/rbd-export.rst. The tags for object size, features and striping are
//! left out: if no option sets them either, the cluster's default holds.

/// A stream of an image of `size` bytes that was never written, with `metadata`.
pub(super) fn empty_image(size: u64, metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut stream = b"rbd image v2\n".to_vec();
    for (key, value) in metadata {
        let pair: Vec<u8> = [*key, *value].into_iter().flat_map(text).collect();
        tag(&mut stream, b'M', &pair);
    }
    stream.push(b'E');
    stream.extend(b"rbd image diffs v2\n");
    // One diff: the image itself, no snapshot before it.
    stream.extend(1u64.to_le_bytes());
    stream.extend(b"rbd diff v2\n");
    tag(&mut stream, b's', &size.to_le_bytes());
    stream.push(b'e');
    stream
}

/// A field that readers can skip.
fn tag(stream: &mut Vec<u8>, name: u8, content: &[u8]) {
    stream.push(name);
    stream.extend((content.len() as u64).to_le_bytes());
    stream.extend(content);
}

/// Text with its length before it. Texts come from requests of a few kilobytes.
fn text(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    length.to_le_bytes().into_iter().chain(text.bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_stream_that_rbd_import_took() {
        let expected = b"rbd image v2\n\
            M\x0a\0\0\0\0\0\0\0\x01\0\0\0k\x01\0\0\0vE\
            rbd image diffs v2\n\x01\0\0\0\0\0\0\0\
            rbd diff v2\ns\x08\0\0\0\0\0\0\0\x43\x42\x0f\0\0\0\0\0e";
        assert_eq!(empty_image(1_000_003, &[("k", "v")]), expected);
    }

    #[test]
    fn metadata_may_be_absent_or_empty() {
        assert!(empty_image(0, &[]).starts_with(b"rbd image v2\nErbd image diffs v2\n"));
        assert!(
            empty_image(0, &[("k", "")])
                .starts_with(b"rbd image v2\nM\x09\0\0\0\0\0\0\0\x01\0\0\0k\0\0\0\0E")
        );
    }
}
