//! What can be wrong with a volume, or with storage as a node reaches it: one table. VolumeCondition and the
//! health rpcs of CSI, the command line and cephlet(8) all read it.

use std::fmt;

use crate::error::{Error, Kind};

/// The condition of a volume: None means that nothing is known to be wrong.
pub type Condition = Option<Fault>;

/// How bad a fault is, as CSI v1.13 tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The word of `VolumeHealthErrorType` or of `StorageHealthErrorType`.
    pub word: &'static str,
    /// Its number there.
    pub number: i32,
}

/// The volume can be used, but not as it should be.
const DEGRADED: Status = Status { word: "DEGRADED", number: 1 };
/// The volume cannot be used: from this node if a node says so, else from no node.
const INACCESSIBLE: Status = Status { word: "INACCESSIBLE", number: 2 };
/// Content of the volume is lost for good, as far as is known.
const DATA_LOSS: Status = Status { word: "DATA_LOSS", number: 3 };
/// The storage can be used, but not as it should be.
const STORAGE_DEGRADED: Status = Status { word: "STORAGE_DEGRADED", number: 1 };
/// No volume in the storage can be used from this node.
const STORAGE_UNREACHABLE: Status = Status { word: "STORAGE_UNREACHABLE", number: 2 };

/// Declares the reasons, with their words, statuses and sentences.
macro_rules! reasons {
    ($($reason:ident $word:literal $status:ident $sentence:literal,)*) => {
        /// Why something is not well.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $(#[doc = $sentence] $reason,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$reason,)*];

            /// The word for it, in CamelCase. Orchestrators and alerts know it, so it never changes.
            pub fn word(self) -> &'static str {
                match self { $(Self::$reason => $word,)* }
            }

            /// How bad it is.
            pub fn status(self) -> Status {
                match self { $(Self::$reason => $status,)* }
            }

            /// What it means, in words.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$reason => $sentence,)* }
            }
        }
    };
}

reasons! {
    ImageMissing "ImageMissing" DATA_LOSS "its image is missing: restore it from a backup, or delete it",
    ImageCutOff "ImageCutOff" DATA_LOSS "its image is shorter than it was made: restore it from a backup, or delete it",
    RecordUnreadable "RecordUnreadable" INACCESSIBLE "its record cannot be read: restore it, or use the volume by its ID without incarnation",
    ClusterUnreachable "ClusterUnreachable" INACCESSIBLE "its cluster cannot be reached: `ceph -s` shows whether its monitors have a quorum",
    DeviceGone "DeviceGone" INACCESSIBLE "its device is gone from this node: unpublish and stage it again",
    ProcessEnded "ProcessEnded" INACCESSIBLE "the rbd-nbd or ceph-fuse process that serves it on this node has ended: unpublish and unstage it here, and stage it again",
    WatchLost "WatchLost" INACCESSIBLE "its device has lost its watch on the image, and so fails or will fail all I/O: unpublish and unstage it everywhere on this node, and stage it again",
    NodeShutOut "NodeShutOut" INACCESSIBLE "the cluster has shut out the client by which this node uses it: unpublish and unstage it everywhere on this node, and stage it again",
    MountGone "MountGone" INACCESSIBLE "it is no longer mounted there: unpublish it and publish it again",
    MountDead "MountDead" INACCESSIBLE "its mount is dead (its storage is gone or failed): unpublish it and publish it again",
    FileSystemSilent "FileSystemSilent" INACCESSIBLE "its file system does not answer: `ceph fs status` shows whether an MDS is up, and its users wait until then",
    FileSystemShutDown "FileSystemShutDown" INACCESSIBLE "the kernel shut its file system down after an error: unpublish and unstage it, and stage it again; if it comes back, publish it as a block volume and check it (e2fsck, xfs_repair)",
    FileSystemReadOnly "FileSystemReadOnly" DEGRADED "the kernel made it read-only after an error: unpublish and unstage it, and stage it again; if it comes back, publish it as a block volume and check it (e2fsck, xfs_repair)",
    FileSystemErrors "FileSystemErrors" DEGRADED "the kernel found errors in its file system: publish it as a block volume and check it (e2fsck, xfs_repair)",
    ClientShutOut "ClientShutOut" DEGRADED "a client of it is on the cluster's blocklist and can write no more: unstage the volume there and stage it again",
    PoolFull "PoolFull" DEGRADED "the pool with its data is full and takes no more writes: add storage, raise its quota, or delete what is not needed",
    PoolNearlyFull "PoolNearlyFull" DEGRADED "the pool with its data is nearly full: add storage, raise its quota, or delete what is not needed",
    QuotaUsedUp "QuotaUsedUp" DEGRADED "its quota is used up: delete files, or expand it",
    QuotaNearlyUsedUp "QuotaNearlyUsedUp" DEGRADED "its quota is nearly used up: delete files, or expand it",
    DiskNearlyFull "DiskNearlyFull" DEGRADED "the file system of local volumes is nearly full: free space there, or its next write may fail",
    ReplicationFailed "ReplicationFailed" DEGRADED "its replication has failed: `cephlet replication status` says more",
    MonitorsUnreachable "MonitorsUnreachable" STORAGE_UNREACHABLE "no monitor of a cluster answers this node: see that they run, and that the network lets this node reach them",
    ClusterDisabled "ClusterDisabled" STORAGE_UNREACHABLE "the configuration of a cluster cannot be used: `cephlet config` says more",
    StorageSilent "StorageSilent" STORAGE_UNREACHABLE "a look at the storage does not end within a second: see whether its disk or its cluster hangs",
    LocalDiskFailed "LocalDiskFailed" STORAGE_UNREACHABLE "the file system of local volumes fails: see the kernel's log (dmesg)",
    MonitorsMissing "MonitorsMissing" STORAGE_DEGRADED "some monitors of a cluster do not answer this node: see that they run",
    LocalDiskNearlyFull "LocalDiskNearlyFull" STORAGE_DEGRADED "the file system of local volumes is nearly full: free space there",
}

/// Something that is not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Why.
    pub reason: Reason,
    /// What is wrong and what to do, as precisely as is known.
    pub detail: String,
}

impl Fault {
    /// A fault about which more is known than the table says.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }

    /// The fault of a volume that could not be looked at for this error, if the error is that its storage
    /// does not answer.
    pub fn of_unreachable(error: &Error) -> Option<Self> {
        let is_silent = matches!(error.kind(), Kind::Timeout | Kind::Unavailable);
        is_silent.then(|| Self::new(Reason::ClusterUnreachable, error.to_string()))
    }

    /// Reads what `Display` wrote; None if it begins with no reason.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, detail) = text.split_once(": ")?;
        let reason = Reason::ALL.iter().find(|reason| reason.word() == word)?;
        Some(Self::new(*reason, detail))
    }
}

/// A fault of which nothing else is known.
impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::new(reason, reason.sentence())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.word(), self.detail)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_read_back_from_its_text() {
        for reason in Reason::ALL {
            let fault = Fault::from(*reason);
            assert_eq!(Fault::parse(&fault.to_string()), Some(fault));
        }
        for text in ["the volume is well", "gone", "Gone: it is gone", ""] {
            assert_eq!(Fault::parse(text), None, "{text}");
        }
    }

    /// What CSI says of a reason, and what the manual can show.
    #[test]
    fn every_row_is_fit_for_orchestrators_and_for_people() {
        for reason in Reason::ALL {
            let (word, sentence) = (reason.word(), reason.sentence());
            assert!(
                word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric),
                "{word}"
            );
            assert!(sentence.starts_with(char::is_lowercase) && !sentence.ends_with('.'), "{sentence}");
            let is_of_storage = reason.status().word.starts_with("STORAGE_");
            assert_eq!(is_of_storage, *reason >= Reason::MonitorsUnreachable, "{word}: storage comes last");
        }
    }
}
