//! Tests of `backing`: devices whose number was given to another file. The helper's side is called in place.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;

use super::tests::kernel;
use super::*;
use crate::error::Kind;
use crate::sys::loopdev;
use crate::sys::mountinfo::Mounts;
use crate::sys::scratch::{LoopImage, in_private_mounts, mkfs};

fn write(image: &LoopImage, at: u64, bytes: &[u8]) {
    let device = std::fs::File::options().write(true).open(image.device()).unwrap();
    device.write_all_at(bytes, at).unwrap();
    device.sync_all().unwrap();
}

/// The device of the first image, whose number was given to the second image since.
fn given_away(first: &LoopImage, second: &LoopImage) -> Backing {
    let mut device = first.attached().clone();
    device.path = second.device().to_owned();
    Backing::Loop(device)
}

fn guard(device: Backing, overwrites: Overwrites) -> Vec<u8> {
    ToolGuard { device, sparse_file: None, overwrites }.to_bytes()
}

#[test]
fn a_number_that_was_given_to_another_file_is_not_touched() {
    in_private_mounts(|dir| {
        let (kernel, call) = kernel();
        let (first, second) = (LoopImage::new(16 << 20), LoopImage::new(16 << 20));
        let device = given_away(&first, &second);
        write(&second, 5000, b"data");
        let refused = |outcome: Result<()>, what: &str| {
            let error = outcome.expect_err(&format!("UNSAFE: {what}"));
            assert_eq!((error.kind(), error.errno()), (Kind::Unavailable, Some(libc::ESTALE)), "{error}");
        };
        refused(kernel.identify(&call, &device, None).map(drop), "another volume was looked at");
        refused(kernel.remove_half_made(&call, &device, None), "another volume's data was taken off");
        mkfs("ext4", second.device());
        let spec =
            MountSpec { source: &device, target: dir, fs_type: "ext4", options: &[], read_only: false };
        refused(kernel.mount(&call, &spec), "another volume was mounted");
        assert!(Mounts::read().unwrap().find_at(dir).is_none());
        for overwrites in [Overwrites::Nothing, Overwrites::Blank, Overwrites::HalfMade] {
            let refusal = admit(&guard(device.clone(), overwrites)).expect_err("UNSAFE: a tool may begin");
            assert!(refusal.contains(second.device().to_str().unwrap()), "{refusal}");
        }
        loopdev::detach(second.attached()).unwrap();
        refused(kernel.identify(&call, &device, None).map(drop), "nothing is there");
    });
}

#[test]
fn a_formatter_begins_only_on_what_it_may_overwrite() {
    let image = LoopImage::new(16 << 20);
    let device = || Backing::Loop(image.attached().clone());
    let begins = |overwrites| admit(&guard(device(), overwrites)).map(drop);
    assert_eq!(begins(Overwrites::Blank), Ok(()));
    write(&image, 5000, b"data");
    let refusal = begins(Overwrites::Blank).expect_err("UNSAFE: data is formatted over");
    assert!(refusal.contains("unknown data"), "{refusal}");
    assert_eq!((begins(Overwrites::HalfMade), begins(Overwrites::Nothing)), (Ok(()), Ok(())));
    mkfs("ext4", image.device());
    for overwrites in [Overwrites::Blank, Overwrites::HalfMade] {
        let refusal = begins(overwrites).expect_err("UNSAFE: a file system is formatted over");
        assert!(refusal.contains("ext4"), "{refusal}");
    }
    assert!(admit(b"").is_err(), "UNSAFE: nothing was looked at");
}

/// No other file gets the device number as long as the tool runs.
#[test]
fn what_a_tool_works_on_stays() {
    let image = LoopImage::new(16 << 20);
    let held = admit(&guard(Backing::Loop(image.attached().clone()), Overwrites::Nothing)).unwrap();
    assert_eq!(loopdev::detach(image.attached()).unwrap(), loopdev::Detached::WhenUnused);
    assert!(loopdev::find(image.file()).unwrap().unwrap().is_leaving);
    let busy = loopdev::attach(image.file(), false).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY), "UNSAFE: it goes when its last user does");
    drop(held);
    assert_eq!(loopdev::detach(image.attached()).unwrap(), loopdev::Detached::Gone);
}
