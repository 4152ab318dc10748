//! The creation record: the request for an image. It is kept in the image's metadata, and goes wherever the
//! image goes.

use serde::{Deserialize, Serialize};

use crate::backend::NewVolume;
use crate::backend::ceph::cache::Cache;
use crate::backend::creation_record::{CreationRequest, Placed, Unknown, VERSION, from_bytes, to_bytes};
use crate::backend::parameters::fs_type_for;
use crate::backend::rbd::names::RECORD_KEY;
use crate::backend::rbd::parameters::Settings;
use crate::csi::Map;
use crate::error::{Error, Result};

/// The request for an image, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    /// The request.
    pub asked: CreationRequest,
    /// The id that the image had when it was made, if it is recorded: a mirrored image has another id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_id: Option<String>,
    /// What topology chose, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Placed>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    unknown: Unknown,
}

impl Record {
    /// The record of what `new` asks. It is the same for every controller that gets the request.
    pub fn new(new: &NewVolume, settings: &Settings, placed: Option<Placed>) -> Self {
        Self {
            version: VERSION,
            asked: CreationRequest::new(new, fs_type_for(settings.fs_type.as_deref(), &new.capabilities)),
            first_id: None,
            placed,
            unknown: Unknown::new(),
        }
    }

    /// The text that goes into the metadata.
    pub fn text(&self) -> Result<String> {
        let text = to_bytes(self)?;
        String::from_utf8(text)
            .map_err(|error| Error::internal(format!("a record cannot be written: {error}")))
    }

    /// The record in this text.
    ///
    /// # Errors
    /// Internal, also for a record of a later version: the image is there, so no refusal may free its name.
    pub fn parse(text: &str) -> Result<Self> {
        from_bytes(text.as_bytes()).map_err(|wrong| {
            Error::internal(format!("its record ({RECORD_KEY} in the image's metadata): {wrong}"))
        })
    }

    /// What the parameters of the request mean, at the place where the image is.
    pub fn settings(&self) -> Result<Settings> {
        Ok(Settings::parse(&self.asked.parameters, &Map::new())?.at(self.placed.as_ref()))
    }
}

/// The records of images, by the keys of their objects. The record of an image id never changes.
#[derive(Debug, Default)]
pub(crate) struct RecordCache(Cache<String, (String, Record)>);

impl RecordCache {
    /// Whether there was an image under this key a while ago.
    pub fn contains(&self, key: &str) -> bool {
        self.0.contains(&key.to_string())
    }

    /// The record of the image under `key`, if it is still the one of this id.
    pub fn get(&self, key: &str, id: &str) -> Option<Record> {
        self.last(key).filter(|(last, _)| last == id).map(|(_, record)| record)
    }

    /// The image that was under `key` a while ago: its id and its record.
    pub fn last(&self, key: &str) -> Option<(String, Record)> {
        self.0.get(&key.to_string())
    }

    /// Remembers the record of an image.
    pub fn remember(&self, key: &str, id: &str, record: &Record) {
        self.0.remember(key.to_string(), (id.to_string(), record.clone()));
    }

    /// Forgets an image that is gone.
    pub fn forget(&self, key: &str) {
        self.0.forget(&key.to_string());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::rbd::tests::wanted;
    use crate::topology::Domains;

    #[test]
    fn fields_of_a_later_release_survive() {
        let record = Record::new(&wanted("a", 1 << 20, None), &Settings::default(), None);
        let mut value = serde_json::to_value(&record).unwrap();
        value["later"] = 1.into();
        value["asked"]["later"] = 2.into();
        let written = Record::parse(&value.to_string()).unwrap().text().unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), value);
    }

    #[test]
    fn what_topology_chose_is_written_only_where_it_did() {
        let record = |placed| Record::new(&wanted("a", 1 << 20, None), &Settings::default(), placed);
        let plain = record(None).text().unwrap();
        assert!(!plain.contains("placed"), "{plain}");
        assert_eq!(Record::parse(&plain).unwrap(), record(None));
        let placed = Placed { domains: Domains::new([("zone", "eu-1")]).unwrap(), data_pool: None };
        let text = record(Some(placed.clone())).text().unwrap();
        assert!(text.contains(r#""placed":{"domains":{"zone":"eu-1"}}"#), "{text}");
        assert_eq!(Record::parse(&text).unwrap().placed, Some(placed));
    }
}
