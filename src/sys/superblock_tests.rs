//! Tests of `superblock`: real file systems made by mkfs, and crafted bytes.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use super::*;
use crate::sys::scratch::{LoopImage, in_private_mounts, mkfs};
use tempfile::NamedTempFile;

fn image(bytes: u64) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(bytes).unwrap();
    file
}

fn look(image: &NamedTempFile) -> Content {
    identify(image.as_file(), image.as_file().metadata().unwrap().len(), None).unwrap()
}

fn file_system(content: Content) -> FileSystem {
    match content {
        Content::FileSystem(file_system) => file_system,
        other => panic!("not a file system: {other:?}"),
    }
}

fn foreign_name(content: Content) -> String {
    match content {
        Content::Foreign(name) => name,
        other => panic!("not foreign: {other:?}"),
    }
}

#[test]
fn ext_types_are_told_apart() {
    for (fs_type, options) in [(FsType::Ext2, "ext2"), (FsType::Ext3, "ext3"), (FsType::Ext4, "ext4")] {
        let image = image(16 << 20);
        let made =
            Command::new("mke2fs").args(["-q", "-F", "-t", options]).arg(image.path()).status().unwrap();
        assert!(made.success());
        let found = file_system(look(&image));
        assert_eq!((found.fs_type, found.bytes, found.needs_check), (fs_type, 16 << 20, false));
    }
}

#[test]
fn xfs_and_btrfs_have_their_size() {
    for (name, fs_type, bytes) in [("xfs", FsType::Xfs, 320 << 20), ("btrfs", FsType::Btrfs, 128 << 20)] {
        let image = image(bytes);
        mkfs(name, image.path());
        let found = file_system(look(&image));
        assert_eq!((found.fs_type, found.bytes, found.needs_check), (fs_type, bytes, false));
        assert_eq!(found.journal, if name == "xfs" { Journal::Unknown } else { Journal::Clean });
    }
}

#[test]
fn a_file_system_smaller_than_its_device_says_its_own_size() {
    for (name, bytes) in [("ext4", 16 << 20), ("xfs", 320 << 20), ("btrfs", 128 << 20)] {
        let image = image(bytes);
        mkfs(name, image.path());
        image.as_file().set_len(bytes * 2).unwrap();
        assert_eq!(file_system(look(&image)).bytes, bytes, "{name}");
    }
}

#[test]
fn an_error_needs_a_check_and_a_dirty_journal_does_not() {
    let image = image(16 << 20);
    mkfs("ext4", image.path());
    // s_feature_incompat: needs_recovery; s_state: not cleanly unmounted.
    let mut sb = read_range(image.as_file(), 1024..2048).unwrap();
    sb[96] |= 0x4;
    sb[58] = 0;
    image.as_file().write_all_at(&sb, 1024).unwrap();
    let found = file_system(look(&image));
    assert!(!found.needs_check && found.journal == Journal::Dirty);
    sb[58] = 3;
    image.as_file().write_all_at(&sb, 1024).unwrap();
    assert!(file_system(look(&image)).needs_check);
}

#[test]
fn xfs_that_asks_for_repair_needs_a_check() {
    let image = image(320 << 20);
    mkfs("xfs", image.path());
    image.as_file().write_all_at(&XFS_NEEDS_REPAIR.to_be_bytes(), XFS_INCOMPAT as u64).unwrap();
    assert!(file_system(look(&image)).needs_check);
}

#[test]
fn a_mkfs_that_did_not_end_is_no_file_system() {
    let image = image(320 << 20);
    mkfs("xfs", image.path());
    image.as_file().write_all_at(&[1], XFS_IN_PROGRESS as u64).unwrap();
    assert_eq!(foreign_name(look(&image)), "unfinished xfs");
}

#[test]
fn blank_is_blank_with_and_without_the_file_below() {
    let image = image(1 << 40);
    assert_eq!(look(&image), Content::Blank);
    assert_eq!(identify(image.as_file(), 1 << 40, Some(image.as_file())).unwrap(), Content::Blank);
}

#[test]
fn sizes_down_to_nothing_can_be_looked_at() {
    for bytes in [0, 1, 511, 512, 4096, 70_000, 1 << 20] {
        assert_eq!(look(&image(bytes)), Content::Blank, "{bytes}");
    }
}

#[test]
fn a_byte_in_the_middle_is_found_through_the_file_below() {
    let image = image(1 << 40);
    image.as_file().write_all_at(b"x", (1 << 39) + 5).unwrap();
    assert_eq!(look(&image), Content::Blank, "nobody reads a whole device");
    let found = identify(image.as_file(), 1 << 40, Some(image.as_file())).unwrap();
    assert_eq!(foreign_name(found), format!("unknown data (byte {} is not zero)", (1u64 << 39) + 5));
}

#[test]
fn written_zeros_are_blank() {
    let image = image(64 << 20);
    image.as_file().write_all_at(&vec![0; 8 << 20], 16 << 20).unwrap();
    assert_eq!(identify(image.as_file(), 64 << 20, Some(image.as_file())).unwrap(), Content::Blank);
}

#[test]
fn a_byte_at_either_end_is_unknown_data() {
    for at in [0, (4 << 20) - 1, (64 << 20) - 1] {
        let image = image(64 << 20);
        image.as_file().write_all_at(b"x", at).unwrap();
        assert_eq!(foreign_name(look(&image)), format!("unknown data (byte {at} is not zero)"));
    }
}

#[test]
fn what_a_device_was_written_counts_before_it_reached_the_file() {
    let image = LoopImage::new(64 << 20);
    let writer = File::options().write(true).open(image.device()).unwrap();
    writer.write_all_at(b"x", 32 << 20).unwrap();
    let (device, file) = (File::open(image.device()).unwrap(), File::open(image.file()).unwrap());
    let found = identify(&device, 64 << 20, Some(&file)).unwrap();
    assert!(foreign_name(found).contains(&(32u64 << 20).to_string()));
}

#[test]
fn every_signature_has_its_name() {
    for (name, at, magic) in SIGNATURES {
        let mut head = vec![0; HEAD];
        head[*at..at + magic.len()].copy_from_slice(magic);
        assert_eq!(classify(&head, &[], 1 << 30), Content::Foreign((*name).to_owned()));
    }
}

#[test]
fn swap_is_named() {
    let image = image(1 << 20);
    assert!(Command::new("mkswap").arg("-q").arg(image.path()).status().unwrap().success());
    assert_eq!(foreign_name(look(&image)), "swap");
}

#[test]
fn zfs_is_found_in_either_byte_order() {
    for magic in ZFS_MAGICS {
        let mut head = vec![0; HEAD];
        head[(128 << 10) + 5 * 1024..][..8].copy_from_slice(&magic);
        assert_eq!(classify(&head, &[], 1 << 30), Content::Foreign("ZFS".into()));
    }
}

#[test]
fn a_partition_table_needs_a_partition() {
    let mut head = vec![0; HEAD];
    head[510..512].copy_from_slice(b"\x55\xaa");
    assert_eq!(
        classify(&head, &[], 1 << 30),
        Content::Blank,
        "no signature; the bytes themselves are found later"
    );
    head[446 + 4] = 0x83;
    head[446 + 12] = 1;
    assert_eq!(classify(&head, &[], 1 << 30), Content::Foreign("MBR partition table".into()));
}

#[test]
fn a_mirrored_member_is_not_the_file_system_inside_it() {
    for from_end in [8 << 10, 64 << 10] {
        let image = image(16 << 20);
        mkfs("ext4", image.path());
        // The array is smaller than its member by the size of its superblock.
        image.as_file().set_len((16 << 20) + (64 << 10)).unwrap();
        image.as_file().write_all_at(b"\xfc\x4e\x2b\xa9", (16 << 20) + (64 << 10) - from_end).unwrap();
        assert_eq!(foreign_name(look(&image)), "md RAID member and ext4");
    }
}

#[test]
fn data_inside_a_file_system_is_its_own() {
    let image = image(16 << 20);
    mkfs("ext4", image.path());
    image.as_file().write_all_at(b"CD001", 32769).unwrap();
    image.as_file().write_all_at(b"\xfc\x4e\x2b\xa9", (16 << 20) - (8 << 10)).unwrap();
    assert_eq!(file_system(look(&image)).fs_type, FsType::Ext4);
}

#[test]
fn a_signature_in_the_boot_sector_counts() {
    let image = image(16 << 20);
    mkfs("ext4", image.path());
    image.as_file().write_all_at(b"LUKS\xba\xbe", 0).unwrap();
    assert_eq!(foreign_name(look(&image)), "LUKS encryption and ext4");
}

#[test]
fn no_garbage_makes_the_parsers_fail() {
    for fill in [0x00, 0x53, 0x55, 0xff] {
        for length in [0, 1, 511, 1024, 1500, 2048, 66_000, HEAD] {
            let mut head = vec![fill; length];
            if let Some(magic) = head.get_mut(1080..1082) {
                magic.copy_from_slice(&EXT_MAGIC.to_le_bytes());
            }
            if let Some(magic) = head.get_mut(..4) {
                magic.copy_from_slice(XFS_MAGIC);
            }
            classify(&head, &head, length as u64);
        }
    }
}

#[test]
fn a_mounted_file_system_is_recognised_while_it_is_used() {
    in_private_mounts(|dir| {
        let image = LoopImage::new(16 << 20);
        mkfs("ext4", image.device());
        let _mount = image.mount("ext4", dir);
        let found = identify(&File::open(image.device()).unwrap(), 16 << 20, None).unwrap();
        assert!(!file_system(found).needs_check);
    });
}
