//! Base64 with padding (RFC 4648, section 4), in which Ceph writes its keys.

/// Decodes a text; None if it is not valid base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let padding = text.iter().rev().take_while(|digit| **digit == b'=').count();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let (mut bytes, mut bits) = (Vec::with_capacity(text.len() / 4 * 3), 0u32);
    for (place, digit) in text[..text.len() - padding].iter().enumerate() {
        bits = bits << 6 | value(*digit)?;
        match place % 4 {
            1 => bytes.push((bits >> 4) as u8),
            2 => bytes.push((bits >> 2) as u8),
            3 => bytes.push(bits as u8),
            _ => {}
        }
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
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
