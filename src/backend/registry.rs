//! The backends, and the choice of the one that an object belongs to.

use std::sync::Arc;

use crate::backend::{Backend, Served};
use crate::csi::Map;
use crate::error::{Error, Result};
use crate::ids::Place;

/// The backends that may be set up, now or later.
#[derive(Clone)]
pub struct Backends(Vec<Arc<dyn Backend>>);

impl Backends {
    /// These backends.
    pub fn new(backends: Vec<Arc<dyn Backend>>) -> Self {
        Self(backends)
    }

    /// All backends, also those that are not set up yet.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.0.iter()
    }

    /// The backends that are set up.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.0.iter().filter(|backend| backend.is_set_up())
    }

    /// The backend a new volume's parameters ask for: by name, or the only one.
    pub fn for_parameters(&self, parameters: &Map) -> Result<&Arc<dyn Backend>> {
        let known = || self.iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", ");
        let set_up: Vec<&Arc<dyn Backend>> = self.iter().collect();
        match (parameters.get("backend"), set_up.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(Error::invalid(format!(
                "the parameter 'backend' is missing: set it to one of {}",
                known()
            ))),
            (Some(name), _) => self.iter().find(|backend| backend.name() == name).ok_or_else(|| {
                Error::invalid(format!("the parameter 'backend' is {name:?}: allowed are {}", known()))
            }),
        }
    }

    /// The backend for an object in use on this node: the backend of the kind of `place`, even if the place
    /// is no longer configured here.
    pub fn by_kind(&self, place: &Place) -> Option<&Arc<dyn Backend>> {
        self.0.iter().find(|backend| backend.name() == place.backend)
    }

    /// The backend that an object at `place` belongs to, if that place is configured here.
    pub fn for_place(&self, place: &Place) -> Option<&Arc<dyn Backend>> {
        self.by_kind(place).filter(|backend| backend.serves(place) == Served::Here)
    }
}
