//! What was begun on a file system and must be finished before anything else, should a crash come between. It
//! stands in the journal, under the volume's key, as four words: `2`, the work, the image, the stay. Earlier
//! releases wrote two, the work and the volume's ID.
//!
//! A formatting is a right to overwrite what is found. So it is bound to the image, as its name may mean
//! another one later, and where other nodes reach the image, to its stay on this node ([`NodeRecord::stay`]),
//! as they may have written to it since.
//!
//! [`NodeRecord::stay`]: super::record::NodeRecord

use crate::error::Result;
use crate::ids::VolumeId;
use crate::journal::{Change, Table};
use crate::volume::Operations;

/// The version that is written.
const VERSION: &str = "2";

/// The stay of a volume that nobody else can write to; and what earlier releases knew of it.
pub(super) const ANY_STAY: &str = "-";

/// What was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FsWork {
    /// The device was blank and is being formatted.
    Formatting,
    /// The file system is smaller than its device and grows once it is mounted.
    Growing,
}

impl FsWork {
    fn word(self) -> &'static str {
        match self {
            Self::Formatting => "formatting",
            Self::Growing => "growing",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Formatting, Self::Growing].into_iter().find(|work| work.word() == word)
    }
}

/// What was begun, and on what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingFsWork {
    pub work: FsWork,
    /// The image; empty if it is not known.
    pub image: String,
    /// The stay on this node.
    pub stay: String,
}

impl PendingFsWork {
    fn text(&self) -> String {
        [VERSION, self.work.word(), &self.image, &self.stay].join(" ")
    }

    fn parse(text: &str) -> Option<Self> {
        match text.split(' ').collect::<Vec<_>>()[..] {
            [VERSION, work, image, stay] => {
                Some(Self { work: FsWork::parse(work)?, image: image.into(), stay: stay.into() })
            }
            [work, id] => {
                let image = VolumeId::parse(id)?.incarnation.unwrap_or_default();
                Some(Self { work: FsWork::parse(work)?, image, stay: ANY_STAY.into() })
            }
            _ => None,
        }
    }

    /// Whether what is half made on this image, in this stay, was blank before.
    pub fn may_format(&self, image: &str, stay: &str) -> bool {
        let is_it = !image.is_empty() && (self.image.as_str(), self.stay.as_str()) == (image, stay);
        self.work == FsWork::Formatting && is_it
    }
}

impl Operations {
    pub(super) fn pending(&self, id: &VolumeId) -> Option<PendingFsWork> {
        let found = self.journal.get(Table::Formats, &self.record_key(id))?;
        PendingFsWork::parse(std::str::from_utf8(&found).ok()?)
    }

    pub(super) fn write_pending(&self, id: &VolumeId, pending: &PendingFsWork) -> Result<()> {
        self.journal.write(&[Change::put(Table::Formats, self.record_key(id), pending.text().into_bytes())])
    }

    pub(super) fn clear_pending(&self, id: &VolumeId) -> Result<()> {
        self.journal.write(&[Change::remove(Table::Formats, self.record_key(id))])
    }

    /// Forgets what was begun on a volume that is gone.
    pub(crate) fn forget_pending(&self, id: &VolumeId) -> Result<()> {
        if self.pending(id).is_none() {
            return Ok(());
        }
        self.journal.write_unsynced(&[Change::remove(Table::Formats, self.record_key(id))])
    }

    /// Ends the right to format over what is found. It must be gone before anybody can write data there.
    pub(crate) fn clear_format_mark(&self, id: &VolumeId) -> Result<()> {
        match self.pending(id) {
            Some(PendingFsWork { work: FsWork::Formatting, .. }) => self.clear_pending(id),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::{AttachedImage, NodeContext};
    use crate::csi::{Access, Map, Mode};
    use crate::dispatch::Call;
    use crate::secrets::Secrets;
    use crate::volume::node::record::NodeRecord;
    use crate::volume::request::Capability;
    use crate::volume::tests::Scene;

    fn formatting(image: &str, stay: &str) -> PendingFsWork {
        PendingFsWork { work: FsWork::Formatting, image: image.into(), stay: stay.into() }
    }

    #[test]
    fn what_is_written_is_understood() {
        let marks = [
            (formatting("10ab", "0123"), "2 formatting 10ab 0123"),
            (PendingFsWork { work: FsWork::Growing, ..formatting("10ab", ANY_STAY) }, "2 growing 10ab -"),
        ];
        for (mark, text) in marks {
            assert_eq!((mark.text().as_str(), PendingFsWork::parse(text)), (text, Some(mark)));
        }
        for text in ["", "3 formatting 10ab 0123", "2 formatting 10ab", "2 erasing 10ab 0123"] {
            assert_eq!(PendingFsWork::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_right_to_format_is_for_one_image_and_one_stay() {
        let mark = formatting("10ab", "0123");
        assert!(mark.may_format("10ab", "0123"));
        for (image, stay) in [("10ac", "0123"), ("10ab", "0124"), ("10ab", ANY_STAY), ("", "0123")] {
            assert!(!mark.may_format(image, stay), "UNSAFE: {image:?} in {stay:?} may hold data");
        }
        assert!(!PendingFsWork { work: FsWork::Growing, ..mark }.may_format("10ab", "0123"), "UNSAFE");
    }

    #[test]
    fn earlier_releases_knew_the_image_but_not_the_stay() {
        let mark = |text: &str| PendingFsWork::parse(text).unwrap();
        let earlier = mark("formatting rbd:ceph:rbd::web:10ab");
        assert!(earlier.may_format("10ab", ANY_STAY));
        assert!(!earlier.may_format("10ab", "0123"), "UNSAFE: it may be of an earlier stay");
        assert!(!mark("formatting rbd:ceph:rbd::web").may_format("10ab", ANY_STAY), "UNSAFE: of any image");
        assert_eq!(mark("growing local:n:::web:10ab").work, FsWork::Growing);
    }

    /// Another node may have had it between the two.
    #[test]
    fn a_right_to_format_ends_with_the_publication() {
        let scene = Scene::new();
        let id = scene.create();
        let told = scene.publish_to(&id, "n1");
        let (image, operations) = (&told["imageId"], &scene.operations);
        let backend = operations.backends.by_kind(&id.place).unwrap();
        for (earlier, is_kept) in [(told["publication"].as_str(), true), ("0123456789abcdef", false)] {
            let attached = AttachedImage { image: image.clone(), publication: earlier.into() };
            operations.remember(&id, &NodeRecord { attached, ..operations.unrecorded(&id) }).unwrap();
            operations.write_pending(&id, &formatting(image, "0123")).unwrap();
            let (volume, secrets) = (Map::new(), Secrets::default());
            let capability = Capability { access: Access::Block, mode: Mode::SingleNodeWriter };
            let context = NodeContext {
                volume: &volume,
                publish: &told,
                secrets: &secrets,
                capability: &capability,
                read_only: false,
            };
            // It is written down, and then mapped, which this kernel cannot do.
            operations.attach(&Call::internal("test"), backend.as_ref(), &id, &context).unwrap_err();
            assert_eq!(operations.pending(&id).is_some(), is_kept, "UNSAFE: attached for {earlier:?}");
        }
    }
}
