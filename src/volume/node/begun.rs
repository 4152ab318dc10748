//! Work on a file system that was begun and must be finished before anything else if a crash interrupts it.
//!
//! A formatting that was begun is a right to overwrite the device's content. So it is bound to the image, as
//! the volume's name may mean another image later, and to the publication, as another node may have written
//! to the image between two publications. It ends with the record, and at the latest with the boot if other
//! nodes can reach the image.

use crate::backend::AttachedImage;
use crate::error::Result;
use crate::volume::Operations;
use crate::volume::node::mounts::OnNode;
use crate::volume::node::record::{BegunWork, FsWork, NodeRecord};

impl BegunWork {
    /// Whether this image was blank when it was attached for this publication, and was formatted then.
    pub fn may_format(&self, image: &str, publication: &str) -> bool {
        let is_same =
            !image.is_empty() && (self.image.as_str(), self.publication.as_str()) == (image, publication);
        self.work == FsWork::Formatting && is_same
    }

    /// Whether the work still has to be done once this image is attached.
    pub fn is_for(&self, attached: &AttachedImage) -> bool {
        match self.work {
            FsWork::Formatting => self.may_format(&attached.image, &attached.publication),
            FsWork::Growing => self.image == attached.image,
        }
    }
}

impl NodeRecord {
    /// The formatting that was begun, if it was.
    pub fn formatting(&self) -> Option<&BegunWork> {
        self.begun.as_ref().filter(|begun| begun.work == FsWork::Formatting)
    }

    /// Removes the right to format from a record that is not written yet.
    pub(super) fn forget_formatting(&mut self) {
        self.begun.take_if(|begun| begun.work == FsWork::Formatting);
    }
}

impl Operations {
    /// Records that this work begins on the image that is attached; durable when Ok.
    pub(super) fn begin_work(&self, volume: &OnNode<'_>, work: FsWork, image: &str) -> Result<()> {
        let record = volume.recorded()?;
        let publication = record.attached.publication.clone();
        let begun = BegunWork { work, image: image.to_string(), publication };
        self.write_record(volume, NodeRecord { begun: Some(begun), ..record })
    }

    /// Records that the work has ended; durable when Ok. The record itself stays, as the device is attached.
    pub(super) fn end_work(&self, volume: &OnNode<'_>) -> Result<()> {
        match volume.record() {
            Some(record) if record.begun.is_some() => {
                let record = NodeRecord { begun: None, ..record };
                self.journal.write_for_removal(&[record.to_change(self.record_key(volume.id))?])?;
                volume.was_recorded(Some(record));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends the right to format over existing content; durable when Ok. This comes before anything else can
    /// write data to the device.
    pub(crate) fn clear_format_mark(&self, volume: &OnNode<'_>) -> Result<()> {
        match volume.record().is_some_and(|record| record.formatting().is_some()) {
            true => self.end_work(volume),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::NodeContext;
    use crate::csi::{Access, Map, Mode};
    use crate::dispatch::Call;
    use crate::secrets::Secrets;
    use crate::volume::request::Capability;
    use crate::volume::tests::Scene;

    fn formatting(image: &str, publication: &str) -> BegunWork {
        BegunWork { work: FsWork::Formatting, image: image.into(), publication: publication.into() }
    }

    fn attached(image: &str, publication: &str) -> AttachedImage {
        AttachedImage { image: image.into(), publication: publication.into() }
    }

    #[test]
    fn a_right_to_format_is_for_one_image_and_one_publication() {
        let mark = formatting("10ab", "0123");
        assert!(mark.may_format("10ab", "0123"));
        for (image, publication) in [("10ac", "0123"), ("10ab", "0124"), ("10ab", ""), ("", "0123")] {
            assert!(
                !mark.may_format(image, publication),
                "UNSAFE: {image:?} of {publication:?} may hold data"
            );
        }
        assert!(!formatting("", "").may_format("", ""), "UNSAFE: of an unknown image");
        let growing = BegunWork { work: FsWork::Growing, ..mark };
        assert!(!growing.may_format("10ab", "0123"), "UNSAFE: it is no formatting");
    }

    #[test]
    fn a_file_system_grows_under_a_later_publication_too() {
        let mark = BegunWork { work: FsWork::Growing, ..formatting("10ab", "0123") };
        assert!(mark.is_for(&attached("10ab", "0124")));
        assert!(!mark.is_for(&attached("10ac", "0123")), "another image");
    }

    /// Another node may have used the volume between the two publications.
    #[test]
    fn a_right_to_format_ends_with_the_publication() {
        let scene = Scene::new();
        let id = scene.create();
        let told = scene.publish_to(&id, "n1");
        let (image, operations) = (&told["imageId"], &scene.operations);
        let backend = operations.backends.by_kind(&id.place).unwrap();
        for (earlier, is_kept) in [(told["publication"].as_str(), true), ("0123456789abcdef", false)] {
            let attached = AttachedImage { image: image.clone(), publication: earlier.into() };
            let begun = Some(formatting(image, earlier));
            let record = NodeRecord { attached, begun, ..operations.unrecorded(&id) };
            operations.remember(&id, &record).unwrap();
            let (volume, secrets) = (Map::new(), Secrets::default());
            let capability = Capability { access: Access::Block, mode: Mode::SingleNodeWriter };
            let context = NodeContext {
                volume: &volume,
                publish: &told,
                secrets: &secrets,
                capability: &capability,
                read_only: false,
            };
            // The attachment is recorded first, and then mapped, which this kernel cannot do.
            let call = Call::internal("test");
            let volume = operations.on_node(&call, &id, backend.as_ref()).unwrap();
            operations.attach(&volume, &context).unwrap_err();
            let begun = operations.node_record(&id).unwrap().unwrap().begun;
            assert_eq!(begun.is_some(), is_kept, "UNSAFE: attached for {earlier:?}");
        }
    }
}
