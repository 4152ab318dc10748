//! The content of a namespace, to be compared with what should be there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::LONG_PATIENCE;
use super::corner::{Corner, await_that, object_of};
use super::machine::Checksum;

impl Corner {
    /// What `rbd ls -l` says of each image, by name.
    #[track_caller]
    pub fn rows(&self) -> BTreeMap<String, Value> {
        await_that("all images are listed", || self.try_rows())
    }

    /// The same once, which fails if an image vanishes meanwhile.
    fn try_rows(&self) -> Result<BTreeMap<String, Value>, String> {
        let rows = list(self.try_json(&["ls", "--long", &self.place()])?);
        let images = rows.into_iter().filter(|row| row["snapshot"].is_null());
        Ok(images.map(|row| (word(&row["image"]), row)).collect())
    }

    /// Writes bytes to a volume that differ from zeros.
    #[track_caller]
    pub fn fill(&self, id: &str) {
        for part in 0..16 {
            let bytes: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(at) >> 3) as u8 ^ part).collect();
            self.poke(id, u64::from(part) * 511 * 1024, &bytes);
        }
    }

    /// The SHA-256 of the first `bytes` of a volume.
    #[track_caller]
    pub fn checksum_of_first(&self, bytes: i64, id: &str) -> Checksum {
        let script =
            "set -eo pipefail; rbd export --no-progress $1 - | { head -c $2; cat >/dev/null; } | sha256sum";
        let output = self
            .cluster
            .command("bash")
            .args(["-c", script, "sum", &self.spec(id), &bytes.to_string()])
            .output();
        let output = output.expect("bash");
        assert!(output.status.success(), "export {id}: {}", String::from_utf8_lossy(&output.stderr));
        Checksum::told(&String::from_utf8_lossy(&output.stdout))
    }

    /// Everything in the namespace except for random parts and times: images, snapshots, trash, objects.
    #[track_caller]
    pub fn shape(&self) -> Vec<String> {
        await_that("all that is here is listed", || self.try_shape())
    }

    /// The same once, which fails if an image vanishes meanwhile.
    fn try_shape(&self) -> Result<Vec<String>, String> {
        let mut labels = BTreeMap::new();
        let mut lines = Vec::new();
        for (name, row) in self.try_rows()? {
            let id = word(&row["id"]);
            let label = name.replace(&id, "ID");
            let parent = if row["parent"].is_null() { "" } else { ", a clone" };
            lines.push(format!("image {label}: {}{parent}", row["size"]));
            for snap in list(self.try_json(&["snap", "ls", "--all", &self.spec(&name)])?) {
                let trashed = word(&snap["namespace"]["type"]) == "trash";
                let snap = if trashed { "trashed".to_string() } else { without_drawn(&word(&snap["name"])) };
                lines.push(format!("snapshot {label}@{snap}"));
            }
            labels.insert(id, label);
        }
        for row in list(self.try_json(&["trash", "ls", "--all", &self.place()])?) {
            lines.push(format!("trash {}", word(&row["name"])));
            labels.insert(word(&row["id"]), format!("trash-{}", word(&row["name"])));
        }
        lines.extend(self.objects().iter().map(|object| labelled(object, &labels)));
        lines.sort();
        Ok(lines)
    }

    /// Waits until the namespace has this shape: deleted objects may go in the background.
    #[track_caller]
    pub fn await_shape(&self, wanted: &[String]) {
        self.await_lines(wanted, || self.shape());
    }

    /// The names of all objects, in order.
    #[track_caller]
    pub fn sorted_objects(&self) -> Vec<String> {
        let mut names = self.objects();
        names.sort();
        names
    }

    /// Waits until there are these objects and no other: none of images that were forgotten or are in the
    /// trash.
    #[track_caller]
    pub fn await_objects(&self, wanted: &[String]) {
        self.await_lines(wanted, || self.sorted_objects());
    }

    #[track_caller]
    fn await_lines(&self, wanted: &[String], look: impl Fn() -> Vec<String>) {
        let until = Instant::now() + LONG_PATIENCE;
        loop {
            let is = look();
            if is == wanted {
                return;
            }
            let place = self.place();
            assert!(
                Instant::now() < until,
                "UNSAFE: {place}\nhas    {is:#?}\nwanted {wanted:#?}\nin all {:#?}",
                self.shape()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Whether an image is that of a volume.
pub fn is_image_of(name: &str, ids: &[String]) -> bool {
    ids.iter().any(|id| object_of(id) == name)
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(rows) => rows,
        other => panic!("no list: {other}"),
    }
}

/// The name of a snapshot without its random digits.
fn without_drawn(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((name, _)) if name.starts_with("csi-") => format!("{name}-R"),
        _ => name.to_string(),
    }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

/// An object's name with the image's name in place of its id. The ids of snapshots in names are random.
fn labelled(object: &str, labels: &BTreeMap<String, String>) -> String {
    let mut parts: Vec<String> = object.split('.').map(String::from).collect();
    if let [kind, _, last] = parts.as_mut_slice()
        && kind == "rbd_object_map"
    {
        *last = "SNAP".into();
    }
    let parts = parts.into_iter().map(|part| match labels.get(&part) {
        Some(label) => label.clone(),
        // An image may have its id in its name.
        None => labels.keys().fold(part, |part, id| part.replace(id, "ID")),
    });
    format!("object {}", parts.collect::<Vec<_>>().join("."))
}
