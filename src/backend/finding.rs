//! What `cephlet doctor` can find, besides the conditions of volumes and of storage: one table, which
//! cephlet(8) reads as well.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::condition::{Fault, Reason, Status};
use crate::dispatch::Call;
use crate::error::Result;

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The word for it, in CamelCase. Scripts know it, so it never changes.
    pub word: &'static str,
    /// What it costs.
    pub cost: &'static str,
    /// How it is mended; `{}` is the subject.
    pub mend: &'static str,
}

/// Declares the kinds of findings.
macro_rules! troubles {
    ($($name:ident $word:literal $cost:literal $mend:literal,)*) => {
        $(#[doc = $cost] pub const $name: Trouble = Trouble { word: $word, cost: $cost, mend: $mend };)*

        impl Trouble {
            /// All kinds, for the manual.
            #[cfg(test)]
            pub const ALL: &'static [Self] = &[$($name,)*];
        }
    };
}

troubles! {
    DAEMON_SILENT "DaemonSilent" "no volume is made, mounted or deleted until it is back; mounted volumes stay" "systemctl start cephlet; if it ends again: journalctl -u cephlet",
    SETTING_REFUSED "SettingRefused" "a daemon does not start with this environment" "set {} as said, and start the daemon",
    SETTING_UNHEEDED "SettingUnheeded" "the daemon works on without it" "correct it, then: systemctl reload cephlet",
    JOURNAL_REFUSED "JournalRefused" "the daemon does not start" "do as said about {}, then: systemctl start cephlet",
    JOURNAL_WITHOUT_ROOM "JournalWithoutRoom" "on a full disk volumes may not be given up" "free 1 MiB in {}, then: systemctl restart cephlet",
    BACKEND_UNUSABLE "BackendUnusable" "volumes of this kind cannot be made or mounted here" "do as said, then: systemctl restart cephlet",
    TOOL_MISSING "ToolMissing" "what needs the tool fails" "install the package, or set CEPHLET_TOOL_PATH, then: systemctl restart cephlet",
    CLUSTER_UNWELL "ClusterUnwell" "its volumes may hang or fail" "ceph health detail",
    CLOCK_SKEWED "ClockSkewed" "monitors may lose their quorum, and users their access" "synchronise the clocks of the monitors' hosts (chronyc tracking)",
    PLACE_REFUSED "PlaceRefused" "the volumes there are not listed, and may not be made or deleted" "give the user the rights that cephlet-rbd(7) or cephlet-cephfs(7) lists (ceph auth caps), or take {} out of the configuration",
    FENCE_STAYS "FenceStays" "no host with this address can use the cluster, for years" "when it uses no volume any more: ceph osd blocklist rm {}",
    DELETION_PENDING "DeletionPending" "its space stays in use" "set its cluster up here again, then: systemctl reload cephlet",
    COPY_LEFT "CopyLeft" "the space of what is left of a copy" "cephlet doctor --fix CopyLeft:{}",
    DELETED_STAYS "DeletedStays" "the space of a deleted volume" "cephlet doctor --fix DeletedStays:{}",
    ENTRY_UNREADABLE "EntryUnreadable" "its volume is neither listed nor deleted, and deleted snapshots of its file system stay" "install the release of cephlet that wrote {}, or a later one, here",
    DEVICE_UNKNOWN "DeviceUnknown" "its volume cannot be deleted, and may be written without cephlet" "end its use, then detach it",
    MOUNT_UNKNOWN "MountUnknown" "its volume cannot be detached or deleted" "umount {}",
    VOLUME_SILENT "VolumeSilent" "whether it is well is not known" "cephlet volume show {}",
}

/// Mends a finding.
pub type Remedy = Box<dyn FnOnce(&Call) -> Result<()> + Send>;

/// Something that is not as it should be.
#[derive(Serialize)]
pub struct Finding {
    /// `WORD:SUBJECT`, or `WORD` alone. The same fault has the same name each time.
    pub name: String,
    /// What it means.
    pub meaning: String,
    /// What it costs.
    pub cost: String,
    /// The command that mends it, or what to do before it.
    pub mend: String,
    /// Mends it, where cephlet can.
    #[serde(skip)]
    pub remedy: Option<Remedy>,
}

impl Finding {
    /// A finding about `subject`, an object by its name.
    pub fn new(kind: &Trouble, subject: impl fmt::Display, meaning: impl fmt::Display) -> Self {
        let subject = subject.to_string();
        Self {
            name: named(kind.word, &subject),
            meaning: meaning.to_string(),
            cost: kind.cost.to_string(),
            mend: kind.mend.replace("{}", &subject),
            remedy: None,
        }
    }

    /// The same finding, mended in another way than others of its kind.
    #[must_use]
    pub fn mended_by(self, mend: impl Into<String>) -> Self {
        Self { mend: mend.into(), ..self }
    }

    /// The same finding, which cephlet can mend.
    #[must_use]
    pub fn with_remedy(self, remedy: impl FnOnce(&Call) -> Result<()> + Send + 'static) -> Self {
        Self { remedy: Some(Box::new(remedy)), ..self }
    }

    /// What is wrong with a volume, or with storage if there is no `subject`.
    pub fn of_fault(Fault { reason, detail }: Fault, subject: &str) -> Self {
        Self {
            name: named(reason.word(), subject),
            meaning: detail,
            cost: cost(reason.status()).to_string(),
            mend: reason.advice().to_string(),
            remedy: None,
        }
    }
}

fn named(word: &str, subject: &str) -> String {
    if subject.is_empty() { word.to_string() } else { format!("{word}:{subject}") }
}

/// A device of a volume on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHere {
    /// The path of the device node.
    pub path: PathBuf,
    /// The volume's object.
    pub object: String,
    /// The command that detaches it.
    pub detach: String,
}

fn cost(status: Status) -> &'static str {
    match status.word {
        "DATA_LOSS" => "data of the volume is lost",
        "INACCESSIBLE" => "the volume cannot be used",
        "STORAGE_UNREACHABLE" => "no volume of this storage can be used from this node",
        "STORAGE_DEGRADED" => "volumes work, but one more failure may stop them",
        _ => "the volume works, but not as it should",
    }
}

impl Reason {
    /// What to do about it: the second half of its sentence.
    fn advice(self) -> &'static str {
        self.sentence().split_once(": ").map_or(self.sentence(), |(_, advice)| advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_named_by_its_kind_and_its_subject() {
        let left = Finding::new(&COPY_LEFT, "main/rbd/csi-tmp-1", "a copy");
        assert_eq!(left.name, "CopyLeft:main/rbd/csi-tmp-1");
        assert_eq!(left.mend, "cephlet doctor --fix CopyLeft:main/rbd/csi-tmp-1");
        let fault = Fault::from(Reason::MountGone);
        assert_eq!(Finding::of_fault(fault.clone(), "web").name, "MountGone:web");
        assert_eq!(Finding::of_fault(fault, "").name, "MountGone");
    }

    /// The advice is shown alone.
    #[test]
    fn every_reason_and_every_kind_says_what_to_do() {
        for reason in Reason::ALL {
            assert!(reason.sentence().contains(": "), "{}", reason.word());
        }
        for (place, kind) in Trouble::ALL.iter().enumerate() {
            assert!(!kind.mend.is_empty() && !kind.cost.ends_with('.'), "{}", kind.word);
            assert!(Trouble::ALL[place + 1..].iter().all(|other| other.word != kind.word), "{}", kind.word);
            assert!(Reason::ALL.iter().all(|reason| reason.word() != kind.word), "{}", kind.word);
        }
    }
}
