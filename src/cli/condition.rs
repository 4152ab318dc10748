//! The condition of a volume, as it is shown.

use std::fmt;

use serde::Serialize;

use crate::grpc::proto::csi_v1 as wire;
use crate::volume::Fault;

/// The condition of a volume.
#[derive(Debug, Serialize)]
pub struct Condition {
    /// Whether something is wrong.
    pub abnormal: bool,
    message: String,
    reason: Option<&'static str>,
    status: Option<&'static str>,
}

impl From<wire::VolumeCondition> for Condition {
    fn from(wire::VolumeCondition { abnormal, message, .. }: wire::VolumeCondition) -> Self {
        match Fault::parse(&message).filter(|_| abnormal) {
            Some(Fault { reason, detail }) => {
                let (word, status) = (reason.word(), reason.status().word);
                Self { abnormal, message: detail, reason: Some(word), status: Some(status) }
            }
            None => Self { abnormal, message, reason: None, status: None },
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { abnormal: false, .. } => f.write_str("ok"),
            Self { reason: Some(reason), message, .. } => write!(f, "{reason}: {message}"),
            Self { message, .. } => f.write_str(message),
        }
    }
}
