//! Volumes as devices of this node.

use std::sync::Arc;

use crate::backend::rbd::Rbd;
use crate::backend::rbd::node::{self, MapOptions};
use crate::backend::rbd::publish::context::PublishContext;
use crate::backend::rbd::tool::Image;
use crate::backend::{Backend, BlockDevice, Condition, NodeContext, PublishedBy, Served};
use crate::call::Call;
use crate::clusters::Cluster;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// What is told of a volume in use that has no device.
const LOST: &str = "its device is gone from this node, perhaps with the rbd-nbd process that served it: \
                    unpublish and unstage it \
                    here, and stage it again";

impl Rbd {
    /// Maps the image as the controller said. Without a word from it the node does the controller's part
    /// first: two nodes that skip it must not write the same volume either.
    pub(crate) fn attach_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        context: &NodeContext<'_>,
    ) -> Result<BlockDevice> {
        let spot = self.spot(&id.place, context.secrets)?;
        let published = PublishContext::from_map(context.publish)?;
        let alone = published.is_none();
        let published = match published {
            Some(published) => published,
            None => self.publish_here(call, id, context.capability, context.read_only, context.secrets)?,
        };
        let image = node::Image { id: Some(&published.image_id), ..image_of(id, &spot.access.cluster) };
        let options = MapOptions {
            mounter: published.mounter,
            options: published.map_options.clone(),
            read_only: context.read_only || published.read_only,
            features: published.features.clone(),
        };
        let id_now = || Ok(self.tool.info(call, &spot, Image::Named(&id.object))?.map(|info| info.id));
        let wanted = node::Wanted { access: &spot.access, image: &image, options: &options, id_now: &id_now };
        let mapped = self.mapper.map(call, &wanted);
        let mapped = mapped.inspect_err(|_| {
            if alone {
                self.give_up(call, id, &image, context.secrets);
            }
        });
        mapped
            .map(|mapping| mapping.device)
            .map_err(|error| error.context(format_args!("attach volume {id}")))
    }

    /// Undoes the controller's part of an attach that failed, unless the image is mapped or still may be by
    /// what was begun: then it stays given to this node until it is detached.
    fn give_up(&self, call: &Call, id: &VolumeId, image: &node::Image<'_>, secrets: &Secrets) {
        let given_up = match self.mapper.is_absent(image) {
            Ok(true) => self.unpublish_here(call, id, secrets),
            Ok(false) => Err(Error::unavailable("it is mapped here, or about to be")),
            Err(error) => Err(error),
        };
        if let Err(error) = given_up {
            log::warn!(
                "volume {id} was not attached, but stays published to this node until it is unstaged: {error}"
            );
        }
    }

    /// The device of the volume, asked of the kernel: also without the cluster, and after it was taken out of
    /// the set-up.
    pub(crate) fn device_of(&self, id: &VolumeId) -> Result<Option<BlockDevice>> {
        Ok(self.mapping_of(id)?.map(|mapping| mapping.device))
    }

    fn mapping_of(&self, id: &VolumeId) -> Result<Option<node::Mapping>> {
        self.with_image(id, |image| self.mapper.find(image))
    }

    fn with_image<T>(&self, id: &VolumeId, work: impl FnOnce(&node::Image<'_>) -> Result<T>) -> Result<T> {
        // One that was taken out of the set-up, or cannot be read any more, has left its images mapped.
        let known = self.clusters.find(&id.place.cluster).ok().flatten();
        let others = known.is_none().then(|| self.clusters.all());
        let cluster = known.unwrap_or_else(|| Arc::new(Cluster::named(&id.place.cluster)));
        work(&node::Image { others: others.as_deref(), ..image_of(id, &cluster) })
    }

    pub(crate) fn detach_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        published: PublishedBy,
        secrets: &Secrets,
    ) -> Result<()> {
        let unmapped = self.with_image(id, |image| self.mapper.ensure_unmapped(call, image));
        unmapped.map_err(|error| error.context(format_args!("detach volume {id}")))?;
        match (published, self.serves(&id.place)) {
            (PublishedBy::Controller, _) => Ok(()),
            (PublishedBy::Node, Served::Here) => self.unpublish_here(call, id, secrets),
            (PublishedBy::Node, _) => {
                let rest = "ControllerUnpublishVolume ends that where the cluster is set up";
                log::warn!(
                    "volume {id} is detached; in its cluster, which is not set up here any more, it stays \
                     published: {rest}"
                );
                Ok(())
            }
        }
    }

    pub(crate) fn refresh_device(&self, call: &Call, id: &VolumeId, least: u64) -> Result<()> {
        let gone =
            || Error::precondition(format!("volume {id} is no longer mapped on this node: stage it again"));
        let mapping = self.mapping_of(id)?.ok_or_else(gone)?;
        self.mapper.refresh(call, &mapping, least).map_err(|error| error.context(format_args!("volume {id}")))
    }

    /// Asked of volumes in use alone, so that one without a device has lost it.
    pub(crate) fn condition_of_device(&self, id: &VolumeId) -> Result<Condition> {
        Ok(self
            .mapping_of(id)?
            .map_or_else(|| Some(LOST.to_string()), |mapping| self.mapper.condition(&mapping)))
    }
}

fn image_of<'a>(id: &'a VolumeId, cluster: &'a Cluster) -> node::Image<'a> {
    node::Image {
        cluster,
        others: None,
        fsid: cluster.fsid.as_deref(),
        pool: &id.place.pool,
        namespace: &id.place.namespace,
        name: &id.object,
        id: id.incarnation.as_deref(),
    }
}
