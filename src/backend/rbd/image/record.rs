//! The creation record: how an image was asked for, kept in its metadata, where it goes wherever the image
//! goes.

use serde::{Deserialize, Serialize};

use crate::backend::NewVolume;
use crate::backend::creation_record::{Asked, VERSION, from_bytes, to_bytes};
use crate::backend::rbd::parameters::Settings;
use crate::csi::Map;
use crate::error::{Error, Result};

/// The key in the image's metadata. Keys without a leading dot are mirrored by rbd-mirror.
pub(crate) const KEY: &str = "cephlet.request";

/// How an image was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    /// The request.
    pub asked: Asked,
    /// The id the image had when it was made, where that was written down: a mirrored image has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_id: Option<String>,
}

impl Record {
    /// The record of what `new` asks. It is the same for every controller that gets the request.
    pub fn new(new: &NewVolume, settings: &Settings) -> Self {
        Self {
            version: VERSION,
            asked: Asked::new(new, settings.fs_type_for(&new.capabilities)),
            first_id: None,
        }
    }

    /// The text that goes into the metadata.
    pub fn text(&self) -> Result<String> {
        let text = to_bytes(self)?;
        String::from_utf8(text)
            .map_err(|error| Error::internal(format!("a record cannot be written: {error}")))
    }

    /// The record in this text, or what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        from_bytes(text.as_bytes())
            .map_err(|wrong| format!("its record ({KEY} in the image's metadata) {wrong}"))
    }

    /// What the parameters of the request mean.
    pub fn settings(&self) -> Result<Settings> {
        Settings::parse(&self.asked.parameters, &Map::new())
    }
}
