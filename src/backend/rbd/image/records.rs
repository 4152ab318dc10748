//! What is remembered of images, so that it need not be asked again: the record of an id never changes.
//! Forgetting costs a process, never a wrong answer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::rbd::image::record::Record;
use crate::ids::{Place, decode};

/// So many images are remembered; beyond that all are forgotten.
const MOST: usize = 8192;

/// Records by the key of their object.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<HashMap<String, (String, Arc<Record>)>>);

impl Records {
    /// Whether there was an image under this key a while ago.
    pub fn knows(&self, key: &str) -> bool {
        self.0.lock().contains_key(key)
    }

    /// The record of the image under `key`, if it is still the one of this id.
    pub fn of(&self, key: &str, id: &str) -> Option<Record> {
        let known = self.0.lock();
        known.get(key).filter(|(of, _)| of == id).map(|(_, record)| Record::clone(record))
    }

    /// The image that was under `key` a while ago: its id and its record.
    pub fn last(&self, key: &str) -> Option<(String, Record)> {
        self.0.lock().get(key).map(|(id, record)| (id.clone(), Record::clone(record)))
    }

    /// Remembers the record of an image.
    pub fn remember(&self, key: &str, id: &str, record: &Record) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key.to_string(), (id.to_string(), Arc::new(record.clone())));
    }

    /// The name that the image of this id had at `place` a while ago; it may be renamed by now, or gone.
    pub fn name_of(&self, place: &Place, id: &str) -> Option<String> {
        let all_of = place.key("");
        let known = self.0.lock();
        known
            .iter()
            .find_map(|(key, (of, _))| if of == id { decode(key.strip_prefix(&all_of)?) } else { None })
    }

    /// Forgets an image that is gone.
    pub fn forget(&self, key: &str) {
        self.0.lock().remove(key);
    }
}
