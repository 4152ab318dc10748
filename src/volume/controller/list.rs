//! Lists of volumes and snapshots, page by page, and the free space for more.
//!
//! A page ends with a token, the key of its last entry, which begins with the backend. The next page begins
//! after that key, so an entry that exists all the time is neither left out nor listed twice.

use std::cell::RefCell;
use std::sync::Arc;

use crate::backend::{Backend, Capacity, Page, Snapshot, SnapshotFilter, Unlisted, Volume};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::{self, SnapshotId, VolumeId};
use crate::volume::Operations;
use crate::volume::controller::create::old_file_system;
use crate::volume::controller::inspect::with_condition_here;
use crate::volume::request::{GetCapacity, ListSnapshots, PageRequest};

/// One page of a list, with the token of the next.
#[derive(Debug)]
pub struct Listed<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Where the next page begins; empty at the end.
    pub next_token: String,
}

/// The most entries of a page, also if the request sets no limit: gRPC clients refuse an answer of more than
/// 4 MiB.
const LARGEST_PAGE: usize = 5000;

impl Operations {
    /// One page of all volumes. It fails if any place cannot be listed.
    pub fn list(&self, call: &Call, page: &PageRequest) -> Result<Listed<Volume>> {
        self.volumes(call, page, &Err)
    }

    /// One page of the volumes that can be listed, with the names by which they are found, and why others
    /// cannot be.
    pub fn list_reachable(&self, call: &Call, page: &PageRequest) -> Result<(Listed<Volume>, Vec<Error>)> {
        let missing = RefCell::new(Vec::new());
        let mut listed = self.volumes(call, page, &|error| {
            missing.borrow_mut().push(error);
            Ok(())
        })?;
        for volume in &mut listed.entries {
            volume.name = Some(self.name_of(call, volume).unwrap_or_else(|| volume.id.object.clone()));
        }
        Ok((listed, missing.into_inner()))
    }

    /// The name in the request that made a volume. None if it is not known, or if another instance made it,
    /// where the name may mean another volume.
    fn name_of(&self, call: &Call, volume: &Volume) -> Option<String> {
        let is_own = |name: &String| ids::is_named(&self.instance, name, &volume.id.object);
        let asked = || {
            let backend = self.backend_of(&volume.id.place).ok()?;
            backend.volumes().name(call, &volume.id).unwrap_or_default().filter(is_own)
        };
        let known = volume.name.clone().filter(is_own);
        known.or_else(|| self.readable_name(&volume.id)).or_else(asked)
    }

    fn volumes(&self, call: &Call, page: &PageRequest, unlisted: Unlisted<'_>) -> Result<Listed<Volume>> {
        self.pages(page, |backend, after, limit| {
            let with_fault = |volume: Volume| {
                let here = self.on_node(call, &volume.id, backend.as_ref());
                let fault = here.and_then(|here| self.fault_here(&here));
                with_condition_here(volume, fault)
            };
            let Page { entries, next } = backend.volumes().list(call, (after, limit), unlisted)?;
            Ok(Page { entries: entries.into_iter().map(with_fault).collect(), next })
        })
    }

    /// One page of snapshots: all, those of one volume, or one.
    pub fn list_snapshots(&self, call: &Call, request: &ListSnapshots) -> Result<Listed<Snapshot>> {
        if !request.snapshot_id.is_empty() {
            return self.list_one(call, request);
        }
        let filter = match request.source_volume_id.as_str() {
            "" => SnapshotFilter::All,
            id => match VolumeId::parse(id) {
                Some(id) => SnapshotFilter::Of(id),
                None => return Ok(Listed { entries: Vec::new(), next_token: String::new() }),
            },
        };
        self.pages(&request.page, |backend, after, limit| {
            backend.snapshots().list(call, &filter, &request.secrets, after, limit)
        })
    }

    fn list_one(&self, call: &Call, request: &ListSnapshots) -> Result<Listed<Snapshot>> {
        let found = match SnapshotId::parse(&request.snapshot_id)
            .and_then(|id| Some((self.backends.for_place(&id.place)?, id)))
        {
            Some((backend, id)) => backend.snapshots().find(call, &id, &request.secrets)?,
            None => None,
        };
        let source = VolumeId::parse(&request.source_volume_id);
        let is_of = |snapshot: &Snapshot, source: &VolumeId| {
            let incarnation = snapshot.source.incarnation.as_deref().unwrap_or_default();
            self.key(source) == self.key(&snapshot.source) && source.means(incarnation)
        };
        let wanted = |snapshot: &Snapshot| {
            request.source_volume_id.is_empty()
                || source.as_ref().is_some_and(|source| is_of(snapshot, source))
        };
        Ok(Listed { entries: found.into_iter().filter(wanted).collect(), next_token: String::new() })
    }

    /// Fills a page from the backends in their order, from the token's position on.
    pub(super) fn pages<T>(
        &self,
        page: &PageRequest,
        ask: impl Fn(&Arc<dyn Backend>, &str, usize) -> Result<Page<T>>,
    ) -> Result<Listed<T>> {
        let (first, mut after) = self.position(&page.token)?;
        let most = if page.max_entries == 0 { LARGEST_PAGE } else { page.max_entries.min(LARGEST_PAGE) };
        let mut entries = Vec::new();
        for backend in self.backends.iter().skip(first) {
            if entries.len() == most {
                return Ok(Listed { entries, next_token: format!("{}:", backend.name()) });
            }
            let found = ask(backend, &after, most - entries.len())?;
            entries.extend(found.entries);
            if let Some(last) = found.next {
                return Ok(Listed { entries, next_token: last });
            }
            after.clear();
        }
        Ok(Listed { entries, next_token: String::new() })
    }

    /// The backend in which a token begins, and the key after which it begins.
    fn position(&self, token: &str) -> Result<(usize, String)> {
        if token.is_empty() {
            return Ok((0, String::new()));
        }
        let is_key = token.split([':', '@']).all(|field| ids::decode(field).is_some());
        let backend = token.split_once(':').filter(|_| is_key).map(|(backend, _)| backend);
        let index = self.backends.iter().position(|it| Some(it.name()) == backend);
        Ok((index.ok_or_else(|| Error::bad_token(token))?, token.to_string()))
    }

    /// Room for new volumes as described; none if they could not be used or reached.
    pub fn capacity(&self, call: &Call, request: &GetCapacity) -> Result<Capacity> {
        let none = Capacity { available: 0, largest: 0, smallest: 0 };
        let backend = match (request.parameters.get("backend"), self.backends.iter().next()) {
            (None, Some(first)) => first,
            _ => self.backends.for_parameters(&request.parameters)?,
        };
        let usable = request.capabilities.iter().all(|capability| backend.supports(capability).is_ok())
            && old_file_system(&request.parameters, &request.capabilities).is_none();
        let reachable = match (&request.topology, backend.topology()) {
            (Some(asked), Some(_)) => {
                let here = self.segments();
                asked.iter().all(|(key, value)| here.get(key) == Some(value))
            }
            _ => true,
        };
        if usable && reachable {
            backend.volumes().capacity(
                call,
                &request.parameters,
                &request.capabilities,
                request.topology.as_ref(),
            )
        } else {
            Ok(none)
        }
    }
}
