//! The packages for Debian and for rpm: what is in them, and that the tools of both accept them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::Scratch;
use crate::support::daemon::binary;
use crate::support::machine::{exists, run, text};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

/// Builds a package of this version; gives its path.
fn build(kind: &str, version: &str, into: &Path) -> String {
    let script = packaging(kind);
    run(text(&script), &["--program", binary(), "--version", version, "--into", text(into)])
}

/// What both packages have to have, with its mode.
fn expected() -> BTreeMap<String, String> {
    let pages = packaging("man").read_dir().expect("pages").map(|page| {
        let name = page.expect("a page").file_name().into_string().expect("UTF-8");
        (format!("/usr/share/man/man{}/{name}.gz", &name[name.len() - 1..]), "-rw-r--r--")
    });
    let others = [
        ("/usr/bin/cephlet", "-rwxr-xr-x"),
        ("/usr/lib/systemd/system/cephlet.service", "-rw-r--r--"),
        ("/etc/cephlet/cephlet.env", "-rw-------"),
        ("/usr/share/bash-completion/completions/cephlet", "-rw-r--r--"),
        ("/usr/share/fish/vendor_completions.d/cephlet.fish", "-rw-r--r--"),
        ("/usr/share/doc/cephlet/changelog.gz", "-rw-r--r--"),
        ("/usr/share/doc/cephlet/examples/nomad/plugin.nomad.hcl", "-rw-r--r--"),
        ("/usr/share/doc/cephlet/examples/mesos/local.json", "-rw-r--r--"),
    ];
    let others = others.map(|(path, mode)| (path.to_string(), mode));
    pages.chain(others).map(|(path, mode)| (path, mode.to_string())).collect()
}

/// The files of a list as `ls -l` prints it, with their modes. All belong to root, and nobody else may write.
#[track_caller]
fn files(list: &str, owner: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(line.contains(owner) && &words[0][5..6] != "w" && &words[0][8..9] != "w", "{line}");
        if words[0].starts_with('-') {
            let path = words[words.len() - 1].trim_start_matches('.');
            found.insert(path.to_string(), words[0].to_string());
        }
    }
    found
}

#[track_caller]
fn assert_has_all(found: &BTreeMap<String, String>, own: &[&str]) {
    for (path, mode) in expected() {
        assert_eq!(found.get(&path), Some(&mode), "{path}");
    }
    for path in own {
        assert!(found.contains_key(*path), "{path} is missing");
    }
}

#[test]
fn the_package_for_debian_has_what_it_has_to_have() {
    let scratch = Scratch::new();
    let package = build("deb", "1.2.3", &scratch.path(""));
    assert!(package.ends_with("/cephlet_1.2.3-1_amd64.deb"), "{package}");
    let found = files(&run("dpkg-deb", &["--contents", &package]), "root/root");
    let own = [
        "/usr/share/zsh/vendor-completions/_cephlet",
        "/usr/share/doc/cephlet/copyright",
        "/usr/share/doc/cephlet/changelog.Debian.gz",
    ];
    assert_has_all(&found, &own);

    let field = |name: &str| run("dpkg-deb", &["--field", &package, name]);
    assert_eq!(
        (field("Package"), field("Version"), field("Architecture")),
        ("cephlet".into(), "1.2.3-1".into(), "amd64".into())
    );
    let control = scratch.path("control");
    run("dpkg-deb", &["--control", &package, text(&control)]);
    let read = |name: &str| fs::read_to_string(control.join(name)).expect("a file of the package");
    assert_eq!(read("conffiles"), "/etc/cephlet/cephlet.env\n");
    let sums = read("md5sums");
    let summed: BTreeSet<String> =
        sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, path)| format!("/{path}")).collect();
    let data = found.keys().filter(|path| !path.starts_with("/etc/")).cloned().collect();
    assert_eq!(summed, data);

    let root = scratch.path("root");
    run("dpkg-deb", &["--extract", &package, text(&root)]);
    let program = root.join("usr/bin/cephlet");
    assert_eq!(fs::read(&program).expect("read"), fs::read(binary()).expect("read"));
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/cephlet.service")).expect("read");
    assert!(unit.contains("ExecStart=/usr/bin/cephlet serve\n"));
    for (shell, path) in
        [("bash", "bash-completion/completions/cephlet"), ("zsh", "zsh/vendor-completions/_cephlet")]
    {
        let installed = fs::read_to_string(root.join("usr/share").join(path)).expect("read");
        assert_eq!(installed.trim(), run(binary(), &["completion", shell]), "{shell}");
    }
}

#[test]
fn the_package_for_rpm_is_installed_upgraded_and_removed() {
    let scratch = Scratch::new();
    let root = scratch.dir("root");
    let (old, new) = (build("rpm", "1.2.3", &scratch.path("")), build("rpm", "1.2.4", &scratch.path("")));
    assert!(old.ends_with("/cephlet-1.2.3-1.x86_64.rpm"), "{old}");
    let rpm = |arguments: &[&str]| run("rpm", &[&["--root", text(&root)], arguments].concat());
    // The scriptlets need a shell in the root.
    rpm(&["--install", "--noscripts", "--nodeps", &old]);
    let found = files(&rpm(&["--query", "--list", "--verbose", "cephlet"]), "root     root");
    let own = ["/usr/share/zsh/site-functions/_cephlet", "/usr/share/licenses/cephlet/LICENSE"];
    assert_has_all(&found, &own);
    assert_eq!(rpm(&["--query", "--configfiles", "cephlet"]), "/etc/cephlet/cephlet.env");
    assert_eq!(rpm(&["--verify", "--nodeps", "--noscripts", "cephlet"]), "");

    let settings = root.join("etc/cephlet/cephlet.env");
    fs::write(&settings, "CEPHLET_LOG=debug\n").expect("change the settings");
    rpm(&["--upgrade", "--noscripts", "--nodeps", &new]);
    assert_eq!(rpm(&["--query", "cephlet"]), "cephlet-1.2.4-1.x86_64");
    assert_eq!(fs::read_to_string(&settings).expect("read"), "CEPHLET_LOG=debug\n");
    let scripts = rpm(&["--query", "--scripts", "cephlet"]);
    let stops = scripts.lines().filter(|line| line.contains("systemctl"));
    assert_eq!(
        stops.filter(|line| line.contains(" stop ") || line.contains("--now")).count(),
        1,
        "{scripts}"
    );
    rpm(&["--erase", "--noscripts", "cephlet"]);
    assert!(!exists(&root.join("usr/bin/cephlet")) && exists(&root.join("etc/cephlet/cephlet.env.rpmsave")));
}

#[test]
#[ignore = "needs lintian, and takes long: tests/run --full"]
fn lintian_finds_nothing_that_is_not_explained() {
    let scratch = Scratch::new();
    let package = build("deb", "1.2.3", &scratch.path(""));
    assert_eq!(run("lintian", &["--allow-root", "--fail-on", "error,warning", &package]), "");
}
