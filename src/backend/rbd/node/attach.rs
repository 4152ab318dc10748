//! Volumes as devices of this node.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::ceph::PoolRef;
use crate::backend::ceph::placement::{self, end_own_publication};
use crate::backend::rbd::context::Context;
use crate::backend::rbd::image::layout::why_read_only;
use crate::backend::rbd::names;
use crate::backend::rbd::node::confirm::{Writer, forget_own};
use crate::backend::rbd::node::lost::{self, Missing, Seen};
use crate::backend::rbd::node::{self, MapOptions, MapRequest, Mapper, Mounter};
use crate::backend::rbd::publish::context::PublishContext;
use crate::backend::rbd::publish::to_node::publish_here;
use crate::backend::rbd::publish::unpublish::unpublish_here;
use crate::backend::rbd::snapshot::limit::refuse_unmappable;
use crate::backend::rbd::tool::ImageRef;
use crate::backend::{
    AttachedImage, Attachment, BlockDevice, Condition, DeviceHere, Fault, NodeContext, NodeDriver,
    PublishedBy, Reason, Served, WriteDown,
};
use crate::clusters::Cluster;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::kernel::Backing;
use crate::secrets::Secrets;

const OUT_OF_DATE: &str =
    "it was attached for an earlier publication, and others may have written to it since";

const EARLIER: &str = "it was attached for an earlier publication, and whether it was shut out since cannot be \
                       asked without rbd and rados of ceph-common";

/// The node's half of the backend.
pub(crate) struct Node {
    context: Arc<Context>,
    mapper: Mapper,
    /// The devices that are mapped for writing, by the image's id.
    confirmed: Mutex<HashMap<String, Confirmed>>,
    missing: Missing,
}

/// A device that may be used.
struct Confirmed {
    device: BlockDevice,
    /// The publication that it is mapped for.
    publication: String,
    /// The pool, with the credentials of the request: a request to detach brings none.
    at: PoolRef,
}

impl Node {
    pub fn new(context: Arc<Context>, mapper: Mapper) -> Self {
        Self { context, mapper, confirmed: Mutex::default(), missing: Missing::default() }
    }

    /// Checks that volumes can be attached here; the error says why not.
    pub fn usable(&self) -> Result<()> {
        self.mapper.usable()
    }

    fn map(
        &self,
        call: &Call,
        id: &VolumeId,
        (published, found): (&PublishContext, Option<&BlockDevice>),
        wanted: &NodeContext<'_>,
    ) -> Result<BlockDevice> {
        let at = self.context.locate(&id.place, wanted.secrets)?;
        let image = node::Image { id: Some(&published.image_id), ..image_of(id, &at.access.cluster) };
        let options = MapOptions {
            mounter: published.mounter,
            options: published.map_options.clone(),
            read_only: wanted.read_only || published.read_only,
            features: published.features.clone(),
        };
        let pool = self.context.pool(call, &at);
        let id_now = || Ok(pool.info(ImageRef::Name(&id.object))?.map(|info| info.id));
        let (access, image, options) = (&at.access, &image, &options);
        let request = MapRequest { access, image, options, found, id_now: &id_now };
        if found.is_none() && options.mounter != Mounter::Nbd && self.context.tool.usable().is_ok() {
            refuse_unmappable(&pool, &published.image_id, self.mapper.or_nbd())?;
        }
        if options.read_only {
            return self.mapper.map(call, &request);
        }
        if found.is_none()
            && !options.features.is_empty()
            && let Some(why) = why_read_only(id, &options.features)
        {
            return Err(Error::precondition(why));
        }
        if self.context.tool.usable().is_err() {
            return match found {
                Some(_) => self.mapper.map(call, &request),
                None => self.map_blindly(call, id, &request),
            };
        }
        let publication = published.publication.as_str();
        let writer = Writer { mapper: &self.mapper, pool: &pool, id, publication, request: &request };
        let device = writer.map()?;
        let publication = publication.to_string();
        let confirmed = Confirmed { device: device.clone(), publication, at: at.clone() };
        self.confirmed.lock().insert(published.image_id.clone(), confirmed);
        Ok(device)
    }

    /// Maps without Ceph's tools, which could tell whether the image is still published: only for a call so
    /// young that its orchestrator still waits. It may age in a queue, or while the machine stands still.
    fn map_blindly(&self, call: &Call, id: &VolumeId, request: &MapRequest<'_>) -> Result<BlockDevice> {
        let is_late = || call.age() > self.context.timing.blind_map;
        if is_late() {
            return Err(too_late(call, id));
        }
        let device = self.mapper.map(call, request)?;
        if is_late() {
            self.mapper.ensure_unmapped(call, request.image)?;
            return Err(too_late(call, id));
        }
        Ok(device)
    }

    /// Whether the device can serve this request without a question to the cluster.
    fn is_usable(
        &self,
        device: &BlockDevice,
        published: Option<&PublishContext>,
        wanted: &NodeContext<'_>,
    ) -> bool {
        let reads = wanted.read_only || published.is_some_and(|published| published.read_only);
        match self.confirmed.lock().get(&device.image) {
            Some(known) => {
                let same = |published: &PublishContext| published.publication == known.publication;
                known.device == *device && published.is_none_or(same)
            }
            None => device.read_only && reads,
        }
    }

    /// Removes the records of the clients by which this node had the image mapped.
    fn forget_clients(&self, call: &Call, id: &VolumeId, image: &str, secrets: &Secrets) -> Result<()> {
        let known = self.confirmed.lock().remove(image);
        if self.context.tool.usable().is_err()
            || placement::serves(&self.context.clusters, &id.place) != Served::Here
        {
            return Ok(());
        }
        let at = self.context.locate(&id.place, secrets);
        let at = at.or_else(|error| known.map(|known| known.at).ok_or(error))?;
        forget_own(&self.context.pool(call, &at), image)
    }

    /// Ends this node's own publication after an attach that failed. If the image is mapped, or an unfinished
    /// map may still map it, the volume stays published to this node until it is detached.
    fn give_up(&self, call: &Call, id: &VolumeId, image: &str, secrets: &Secrets) {
        let is_absent =
            self.with_image(id, |it| self.mapper.is_absent(&node::Image { id: Some(image), ..*it }));
        let known = VolumeId { incarnation: Some(image.to_string()), ..id.clone() };
        let given_up = match is_absent {
            Ok(true) => unpublish_here(&self.context, call, &known, secrets),
            Ok(false) => Err(Error::unavailable("it is mapped here, or about to be")),
            Err(error) => Err(error),
        };
        if let Err(error) = given_up {
            log::warn!(
                "volume {id} was not attached, but stays published to this node until it is unstaged: {error}"
            );
        }
    }

    fn with_image<T>(&self, id: &VolumeId, work: impl FnOnce(&node::Image<'_>) -> Result<T>) -> Result<T> {
        let name = &id.place.cluster;
        let cluster = match self.context.clusters.find(name) {
            Ok(Some(cluster)) => cluster,
            // A cluster that left the configuration, or can no longer be read, may still have images mapped
            // here.
            _ if id.incarnation.is_some() => Arc::new(Cluster::named(name)),
            Ok(None) => {
                return Err(Error::precondition(format!(
                    "cluster {name:?} is not set up here, so volume {id} is known on this node only by the id of \
                     its image: name it {id}:IMAGE-ID"
                )));
            }
            Err(unreadable) => return Err(unreadable),
        };
        work(&image_of(id, &cluster))
    }
}

impl NodeDriver for Node {
    /// Maps the image as the publish context says. Without a publish context the node publishes the volume to
    /// itself first: two nodes without a controller must not write the same volume either.
    fn attach(
        &self,
        call: &Call,
        id: &VolumeId,
        found: Option<&Attachment>,
        wanted: &NodeContext<'_>,
        write_down: WriteDown<'_>,
    ) -> Result<Attachment> {
        names::refuse_internal(id)?;
        let published = PublishContext::from_map(wanted.publish)?;
        let found = found.map(Attachment::device).transpose()?;
        let meant = published.as_ref().map(|published| &published.image_id).or(id.incarnation.as_ref());
        if let Some(device) = found.filter(|device| meant.is_none_or(|meant| *meant == device.image))
            && self.is_usable(device, published.as_ref(), wanted)
        {
            return Ok(Attachment::Block(device.clone()));
        }
        let is_alone = published.is_none();
        let published = match published {
            Some(published) => published,
            None => {
                let using = (wanted.capability, wanted.read_only);
                publish_here(&self.context, call, id, using, wanted.secrets)?
            }
        };
        let PublishContext { image_id: image, publication, .. } = &published;
        let written = write_down(&AttachedImage { image: image.clone(), publication: publication.clone() });
        let found = found.filter(|device| device.image == *image);
        let mapped = written.and_then(|()| self.map(call, id, (&published, found), wanted));
        let mapped = mapped.map(Attachment::Block);
        if mapped.is_err() && is_alone {
            self.give_up(call, id, &published.image_id, wanted.secrets);
        }
        mapped.map_err(|error| error.context(format_args!("attach volume {id}")))
    }

    /// Reads only the kernel, so it works without the cluster, and after the cluster left the configuration.
    fn devices(&self) -> Result<Vec<DeviceHere>> {
        self.mapper.devices().map_err(|error| Error::io("look which images are mapped", &error))
    }

    fn attached(&self, id: &VolumeId) -> Result<Option<Attachment>> {
        Ok(self.with_image(id, |image| self.mapper.find(image))?.map(Attachment::Block))
    }

    fn detach(&self, call: &Call, id: &VolumeId, published: PublishedBy, secrets: &Secrets) -> Result<()> {
        let unmapped = self.with_image(id, |image| self.mapper.ensure_unmapped(call, image));
        let unmapped = unmapped.map_err(|error| error.context(format_args!("detach volume {id}")))?;
        let was = unmapped.first();
        if let Some(image) = was.map(|device| device.image.as_str()).or(id.incarnation.as_deref())
            && !was.is_some_and(|device| device.read_only)
            && let Err(error) = self.forget_clients(call, id, image, secrets)
        {
            // Not an error, as a repeat would gain nothing: the controller that ends the publication shuts
            // out a client whose record stays.
            log::warn!(
                "volume {id} is not mapped here; if it was, its client stays written down in the \
                 cluster: {error}"
            );
        }
        match published {
            PublishedBy::Controller => Ok(()),
            PublishedBy::Node => end_own_publication(&self.context.clusters, (id, secrets), || {
                unpublish_here(&self.context, call, id, secrets)
            }),
        }
    }

    fn forget_earlier_boots(&self, call: &Call, id: &VolumeId) -> Result<()> {
        let secrets = Secrets::default();
        id.incarnation.as_ref().map_or(Ok(()), |image| self.forget_clients(call, id, image, &secrets))
    }

    fn grow(&self, call: &Call, id: &VolumeId, attachment: &Attachment, least: u64) -> Result<()> {
        let device = attachment.device()?;
        self.mapper.refresh(call, device, least).map_err(|error| error.context(format_args!("volume {id}")))
    }

    /// Storage that does not answer proves no loss.
    fn lost(
        &self,
        call: &Call,
        id: &VolumeId,
        (attachment, attached_for): (&Attachment, &str),
        wanted: &NodeContext<'_>,
    ) -> Result<Option<String>> {
        let device = attachment.device()?;
        let told = PublishContext::from_map(wanted.publish)?;
        if told.as_ref().is_some_and(|told| told.image_id != device.image) {
            return Ok(Some("its image was replaced by another one".to_string()));
        }
        if matches!(device.backing, Backing::Nbd(_))
            && let Some(dead) = self.mapper.condition(device)
        {
            return Ok(Some(dead.detail));
        }
        let is_another = told.is_some_and(|told| told.publication != attached_for);
        if device.read_only {
            // Without a record the publication is unknown.
            let is_known = !attached_for.is_empty();
            return Ok((is_known && is_another).then(|| OUT_OF_DATE.to_string()));
        }
        if self.context.tool.usable().is_err() {
            return Ok(is_another.then(|| EARLIER.to_string()));
        }
        let at = self.context.locate(&id.place, wanted.secrets);
        let seen = at.and_then(|at| lost::look(&self.context.pool(call, &at), id, device));
        let seen = seen.unwrap_or_else(|error| {
            log::warn!("volume {id}: whether its device still works is not known: {error}");
            Seen::Unknown
        });
        lost::lost(device, seen, &self.missing, self.context.timing.lost_watch)
            .map_err(|error| error.context(format_args!("volume {id}")))
    }

    /// Callers ask only about volumes in use, so a volume without a device has lost it.
    fn condition(&self, call: &Call, id: &VolumeId) -> Result<Condition> {
        let Some(attachment) = self.attached(id)? else {
            return Ok(Some(Reason::DeviceGone.into()));
        };
        let device = attachment.device()?;
        match self.mapper.condition(device) {
            None if !self.mapper.sees_watch(device) => Ok(self.shut_out(call, id, device)),
            known => Ok(known),
        }
    }
}

impl Node {
    /// Says that the cluster has shut out the client of a mapping whose watch the kernel does not show. None
    /// also if the cluster cannot be asked.
    fn shut_out(&self, call: &Call, id: &VolumeId, device: &BlockDevice) -> Condition {
        if device.read_only || self.context.tool.usable().is_err() {
            return None;
        }
        let confirmed = self.confirmed.lock().get(&device.image).map(|it| it.at.clone());
        let at = confirmed.map_or_else(|| self.context.locate(&id.place, &Secrets::default()), Ok);
        match at.and_then(|at| lost::look(&self.context.pool(call, &at), id, device)) {
            Ok(Seen::ShutOut(address)) => {
                let why = lost::shut_out(device, &address);
                let detail =
                    format!("{why}: unpublish and unstage it everywhere on this node, and stage it again");
                Some(Fault::new(Reason::NodeShutOut, detail))
            }
            Ok(_) => None,
            Err(error) => {
                log::warn!("volume {id}: whether the cluster has shut out its client is not known: {error}");
                None
            }
        }
    }
}

fn too_late(call: &Call, id: &VolumeId) -> Error {
    Error::unavailable(format!(
        "this call for volume {id} is {} s old, and whether the volume is still published to this node cannot be \
         asked without rbd and rados of ceph-common: try again",
        call.age().as_secs()
    ))
}

fn image_of<'a>(id: &'a VolumeId, cluster: &'a Cluster) -> node::Image<'a> {
    node::Image {
        cluster,
        pool: &id.place.pool,
        namespace: &id.place.namespace,
        name: &id.object,
        id: id.incarnation.as_deref(),
    }
}
