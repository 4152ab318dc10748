//! The record of renames in the journal. The key of an entry is the temporary name in its place.

use serde_json::{Value, json};

use crate::backend::{BegunRenames, Rename};
use crate::error::{Kind, Result};
use crate::ids::Place;
use crate::journal::{Change, Journal, Table};

impl BegunRenames for Journal {
    fn begin(&self, place: &Place, rename: &Rename) -> Result<()> {
        let Rename { from, to, image } = rename;
        let value = json!({ "image": image, "to": to });
        match self.write(&[Change::put(Table::Renames, place.key(from), value)]) {
            Err(error) if error.kind() == Kind::NoSpace => {
                log::debug!("the rename of {from} goes unrecorded: {error}");
                Ok(())
            }
            written => written,
        }
    }

    fn end(&self, place: &Place, from: &str) {
        let key = place.key(from);
        if self.get(Table::Renames, &key).is_some() {
            self.note(&[Change::remove(Table::Renames, key)]);
        }
    }

    fn begun(&self, place: &Place) -> Vec<Rename> {
        let prefix = place.key("");
        let read = |(key, value): (String, Value)| {
            let from = key.strip_prefix(&prefix)?.to_string();
            let text = |field: &str| value.get(field)?.as_str().map(str::to_string);
            Some(Rename { from, to: text("to")?, image: text("image")? })
        };
        self.entries(Table::Renames).into_iter().filter_map(read).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::journal::ram::{RamDisk, errno};

    fn place(pool: &str) -> Place {
        Place { backend: "rbd".into(), cluster: "main".into(), pool: pool.into(), namespace: String::new() }
    }

    fn rename() -> Rename {
        let from = "csi-tmp-00c0ffee-abcdefghij234-zyxw7654".into();
        Rename { from, to: "csi-vol-web-abcdefghij234".into(), image: "10ab".into() }
    }

    #[test]
    fn a_rename_is_on_record_at_its_place_until_it_has_ended() {
        let disk = RamDisk::default();
        let open = || Journal::open(Arc::new(disk.clone()), |_| {}).unwrap();
        open().begin(&place("vms"), &rename()).unwrap();
        let journal = open();
        let (key, value) = journal.entries(Table::Renames).remove(0);
        assert_eq!(key, "rbd:main:vms::csi-tmp-00c0ffee-abcdefghij234-zyxw7654");
        assert_eq!(value.to_string(), r#"{"image":"10ab","to":"csi-vol-web-abcdefghij234"}"#);
        assert_eq!((journal.begun(&place("vms")), journal.begun(&place("vm"))), (vec![rename()], vec![]));
        journal.end(&place("vms"), &rename().from);
        assert_eq!(journal.begun(&place("vms")), []);
    }

    #[test]
    fn a_rename_goes_on_where_the_journal_has_no_room() {
        let disk = RamDisk::default();
        let journal = Journal::open(Arc::new(disk.clone()), |_| {}).unwrap();
        disk.hook(|op, _| if op == "write" { Err(errno(libc::ENOSPC)) } else { Ok(()) });
        journal.begin(&place("vms"), &rename()).unwrap();
        assert_eq!(journal.begun(&place("vms")), []);
    }
}
