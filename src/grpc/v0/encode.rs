//! From what the operations answer to CSI 0.1 messages.

use protobuf::MessageField;

use crate::backend::Volume;
use crate::grpc::proto::csi as wire;

/// The longest string of an answer, in bytes.
const MAX_TEXT: usize = 128;

/// A volume.
pub fn volume(volume: Volume) -> MessageField<wire::VolumeInfo> {
    MessageField::some(wire::VolumeInfo {
        capacity_bytes: volume.size,
        id: volume.id.to_string(),
        attributes: volume.context.into_iter().collect(),
        ..Default::default()
    })
}

/// A text that is meant for people, cut off where it is too long for a field.
pub fn text(mut text: String) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rfind(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_letters() {
        assert_eq!(text("short".into()), "short");
        assert_eq!(text("ü".repeat(64)), "ü".repeat(64));
        assert_eq!(text(format!("x{}", "ü".repeat(64))), format!("x{}", "ü".repeat(63)));
    }
}
