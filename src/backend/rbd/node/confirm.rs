//! The order in which a node with Ceph's tools maps an image for writing ([`fence`]):
//!
//! 1. It reads the publication. The kernel takes the image's lock as it maps, and shuts out an owner whose
//!    watch has just ended, which may be the entitled writer. rbd-nbd takes no lock before it writes. For it
//!    the node reads the image's watchers instead: only a new watcher afterwards shows which client it is.
//! 2. It maps the image.
//! 3. It records its client.
//! 4. It reads the publication again, and shuts out another machine of its name that mapped the image by the
//!    same publication. Only then may the device be read or written.
//!
//! A call may stand still at any point, with its machine, and go on long after the volume was given to
//! another node.
//!
//! [`fence`]: crate::backend::rbd::publish::fence

use crate::backend::BlockDevice;
use crate::backend::ceph::publication::{NodePublication, PublicationLock, Stage};
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::watchers::{addresses, await_dead, staying_of};
use crate::backend::rbd::node::{MapRequest, Mapper, Mounter};
use crate::backend::rbd::node_clients::{Client, Clients, KnownClient, strike_out, write_down};
use crate::backend::rbd::publish::fence::shut_out_namesakes;
use crate::backend::rbd::tool::{ImageRef, LockTarget, Watcher};
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::kernel::Backing;
use crate::sys::address;

/// An image that this node is to write to.
pub(super) struct Writer<'a> {
    pub mapper: &'a Mapper,
    pub pool: &'a Pool<'a>,
    pub id: &'a VolumeId,
    /// [`NodePublication::nonce`]
    pub publication: &'a str,
    pub request: &'a MapRequest<'a>,
}

impl Writer<'_> {
    /// Maps the image, or takes its device, and confirms that the device may be used.
    pub fn map(&self) -> Result<BlockDevice> {
        let is_mapped = self.request.found.is_some();
        let before = if is_mapped { Vec::new() } else { self.look_before()? };
        let device = self.mapper.map(self.pool.call, self.request)?;
        let confirmed = self.confirm(&device, is_mapped, &before);
        // An earlier mapping may be in use. Other errors do not prove that its publication has ended.
        let is_over =
            |error: &Error| !is_mapped || matches!(error.kind(), Kind::Precondition | Kind::NotFound);
        match confirmed {
            Err(error) if is_over(&error) => Err(self.unmap(&device, error)),
            confirmed => confirmed.map(|()| device),
        }
    }

    fn look_before(&self) -> Result<Vec<Watcher>> {
        match self.request.options.mounter {
            Mounter::Nbd => self.watchers(),
            Mounter::Kernel => self.publication().map(|_| Vec::new()),
        }
    }

    fn confirm(&self, device: &BlockDevice, is_found: bool, before: &[Watcher]) -> Result<()> {
        let image = self.request.image.id()?;
        let known = if is_found { Clients::read(self.pool, image)?.all } else { Vec::new() };
        let watchers = self.watchers()?;
        let Some(address) = self.own_address(device, &known, (before, &watchers))? else {
            // A client that other images may share is not recorded: shutting it out would cut them off.
            let publication = self.publication()?;
            return match &device.backing {
                Backing::Rbd(image) if !image.address.is_empty() => {
                    self.refuse_others(&publication, &image.address, watchers)
                }
                _ => Ok(()),
            };
        };
        if !watchers.iter().any(|watcher| watcher.address == address) {
            return Err(Error::unavailable(format!(
                "{} is mapped as {}, but its client at {address} does not watch it: it may be shut out \
                 (`ceph osd blocklist ls`)",
                self.request.image,
                device.path.display()
            )));
        }
        let client = Client::of(&self.pool.context.identity, self.publication, &address);
        if !known.iter().any(|known| known.client == client) {
            write_down(self.pool, image, &client)?;
        }
        let publication = self.publication()?;
        // Of two machines of this name, the one that records its client later sees the other.
        shut_out_namesakes(self.pool, image, &publication, &watchers)?;
        self.refuse_others(&publication, &address, watchers)?;
        // Records of this client for earlier publications.
        let former = |known: &&KnownClient| known.client.address == address && known.client != client;
        known.iter().filter(former).try_for_each(|known| strike_out(self.pool, image, known))
    }

    /// The publication that this call was made for, if it is still in force.
    fn publication(&self) -> Result<NodePublication> {
        let node = &self.pool.context.identity.node;
        let holders = self.pool.holders(LockTarget::Header(self.request.image.id()?))?;
        let given = |lock: &PublicationLock| {
            let it = &lock.publication;
            lock.stage == Stage::Given && it.node == *node && it.nonce == self.publication
        };
        let lock = PublicationLock::read_all(&holders)?.into_iter().find(given);
        lock.map(|lock| lock.publication).ok_or_else(|| {
            Error::precondition(format!(
                "volume {} is not published to node {node:?}, or not any more as it was when this call was made: \
                 publish it again (ControllerPublishVolume), and use what that answers",
                self.id
            ))
        })
    }

    fn watchers(&self) -> Result<Vec<Watcher>> {
        Ok(self.pool.watchers(&self.id.object)?.unwrap_or_default())
    }

    /// The address of the mapping's client in the cluster; None if other images may share the client, as in a
    /// mapping that was made by hand, or by version 0.1.0.
    fn own_address(
        &self,
        device: &BlockDevice,
        known: &[KnownClient],
        (before, after): (&[Watcher], &[Watcher]),
    ) -> Result<Option<String>> {
        match &device.backing {
            Backing::Rbd(image) if !image.has_own_client => Ok(None),
            Backing::Rbd(image) if image.address.is_empty() => Err(Error::precondition(format!(
                "this node's kernel does not tell the address of its clients, by which a lost node is shut out: \
                 install Linux 4.11 or later{}",
                self.mapper.or_nbd()
            ))),
            Backing::Rbd(image) => Ok(Some(image.address.clone())),
            _ => {
                let own = |it: &&KnownClient| {
                    it.client.is_of_boot(&self.pool.context.identity)
                        && after.iter().any(|watcher| watcher.address == it.client.address)
                };
                match known.iter().find(own) {
                    Some(known) => Ok(Some(known.client.address.clone())),
                    None => self.new_watcher(before, after).map(Some),
                }
            }
        }
    }

    /// The only new watcher at an address of this node.
    fn new_watcher(&self, before: &[Watcher], after: &[Watcher]) -> Result<String> {
        let is_new = |it: &&Watcher| !before.contains(it) && address::is_here(&it.address);
        let new: Vec<&Watcher> = after.iter().filter(is_new).collect();
        match new.as_slice() {
            [one] => Ok(one.address.clone()),
            others => Err(Error::unavailable(format!(
                "which client of {} is that of its rbd-nbd process cannot be told: {} are new on this node; try \
                 again",
                self.request.image,
                others.len()
            ))),
        }
    }

    /// Refuses other clients beside a single writer, even clients without a publication. A mirrored image
    /// passes: its mirrors watch it.
    fn refuse_others(&self, publication: &NodePublication, own: &str, watchers: Vec<Watcher>) -> Result<()> {
        if !publication.is_single_writer() {
            return Ok(());
        }
        let (name, mut known) = (&self.id.object, Some(watchers));
        let mut others = || -> Result<Vec<Watcher>> {
            let mut watchers = known.take().map_or_else(|| self.watchers(), Ok)?;
            watchers.retain(|watcher| watcher.address != own);
            Ok(watchers)
        };
        if staying_of(self.pool, name, &mut others)?.is_empty() {
            return Ok(());
        }
        if self.pool.info(ImageRef::Name(&self.id.object))?.is_some_and(|info| info.mirroring.is_some()) {
            return Ok(());
        }
        // The others may be dead, such as an rbd-nbd process by which this node had the image mapped.
        let left = await_dead(self.pool, name, others)?;
        if left.is_empty() {
            return Ok(());
        }
        Err(Error::precondition(format!(
            "volume {} is open at {} as well, which could write to it: unmap the image there, or shut that client out \
             (`ceph osd blocklist add ADDRESS 31536000`)",
            self.id,
            addresses(&left)
        )))
    }

    /// Unmaps the device. If that fails, the error says that it may stay mapped.
    fn unmap(&self, device: &BlockDevice, why: Error) -> Error {
        let call = self.pool.call;
        let image = self.request.image;
        let unmapped = self.mapper.ensure_unmapped(call, image);
        match unmapped.and_then(|_| forget_own(self.pool, image.id()?)) {
            Ok(()) => why,
            Err(error) => why.context(format_args!("{} may stay mapped ({error})", device.path.display())),
        }
    }
}

/// Removes the records of this node's clients, earlier boots included, after the node has unmapped the image.
/// Their entries in the blocklist stay.
pub(super) fn forget_own(pool: &Pool<'_>, image: &str) -> Result<()> {
    let clients = Clients::read(pool, image)?;
    let own = clients.all.iter().filter(|known| known.client.is_from(&pool.context.identity));
    own.map(|known| strike_out(pool, image, known)).fold(Ok(()), Result::and)
}
