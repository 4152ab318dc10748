//! Base64 with padding (RFC 4648, section 4), in which Ceph writes its keys.

/// The digits, by their values.
const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes a text; None if it is not valid base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bytes, mut bits) = (Vec::new(), 0_usize);
    for (place, digit) in digits.chars().enumerate() {
        bits = bits << 6 | DIGITS.find(digit)?;
        if place % 4 > 0 {
            bytes.push((bits >> (6 - 2 * (place % 4))) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_ceph_writes_it() {
        assert_eq!(decode("").unwrap(), b"");
        assert_eq!(decode("Zg==").unwrap(), b"f");
        assert_eq!(decode("Zm8=").unwrap(), b"fo");
        assert_eq!(decode("Zm9v").unwrap(), b"foo");
        assert_eq!(decode("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
        // type 1 (AES), time of creation, length 16, the key itself
        let key = decode("AQBSdFhcAAAAABAAyE7z2Tq1kKYXvIRd1Hh6Xw==").unwrap();
        assert_eq!((key.len(), &key[..2], &key[10..12]), (28, &[1, 0][..], &[16, 0][..]));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Zm9", "Zm9v=", "====", "Z===", "Zm 9", "Zm9*", "Zg==Zg==", "Zm9v\n"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
