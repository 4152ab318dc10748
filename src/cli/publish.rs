//! `volume publish`, `unpublish` and `reclaim`.

use std::path::Path;

use protobuf::MessageField;
use serde_json::json;

use crate::at_boot::{self, Units};
use crate::cli::failure::{CliError, CliResult};
use crate::cli::plugin::Plugin;
use crate::cli::report::Report;
use crate::cli::syntax::Given;
use crate::cli::{settings, values, volume};
use crate::error::{Error, Kind};
use crate::grpc::proto::cephlet_operator_v1 as operator;
use crate::grpc::proto::csi_v1 as wire;

/// The options by which a volume is published after a boot as it was with `--at-boot`.
const FLAGS_AT_BOOT: [&str; 2] = ["read-only", "block"];
const OPTIONS_AT_BOOT: [&str; 3] = ["fs", "mode", "flags"];

/// Publishes a volume to this node and mounts it at a path.
pub fn publish(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    if given.has("retry") && given.value("secrets") == Some("-") {
        return Err(CliError::usage("--secrets -: with --retry they can come from a file only"));
    }
    let request = operator::PublishHereRequest {
        volume_id: given.word(0).to_string(),
        target_path: target(given)?,
        volume_capability: MessageField::some(volume::capability(given)?),
        readonly: given.has("read-only"),
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    let (id, path) = (&request.volume_id, &request.target_path);
    let units = match given.has("at-boot") {
        true => Some(Units::new(path, id, &commands_at_boot(given, &settings::socket(given)?, id, path)?)?),
        false => None,
    };
    let node_id = plugin.ask(&request)?.node_id;
    units.map_or(Ok(()), |units| units.set_up()).map_err(|error| {
        error.context(format_args!(
            "volume {id} is published at {path}, but not after a boot: repeat the command"
        ))
    })?;
    Ok(Report::new("", &json!({"id": id, "node_id": node_id, "target_path": path})))
}

/// The command lines that publish a volume after a boot and unpublish it before the next one. They say all
/// that comes from the environment or from the directory of this one.
fn commands_at_boot(given: &Given, socket: &Path, id: &str, path: &str) -> CliResult<[Vec<String>; 2]> {
    let program = std::env::current_exe().map_err(|error| Error::io("find this program", &error))?;
    let program = values::path_text(&program)?;
    let absolute = |text: &str| values::path_text(&values::path(text)?);
    let mut shared = vec![format!("--socket={}", absolute(&values::path_text(socket)?)?)];
    match given.value("secrets") {
        Some("-") => return Err(CliError::usage("--secrets -: after a boot they can come from a file only")),
        Some(file) => shared.push(format!("--secrets={}", absolute(file)?)),
        None => {}
    }
    let flags = FLAGS_AT_BOOT.iter().filter(|flag| given.has(flag)).map(|flag| format!("--{flag}"));
    let option = |name: &&str| given.value(name).map(|value| format!("--{name}={value}"));
    let options = flags.chain(OPTIONS_AT_BOOT.iter().filter_map(option)).collect::<Vec<_>>();
    let line = |verb: &str, options: &[String]| {
        let words = [&program, "volume", verb, id, path].map(str::to_string);
        words.iter().chain(&shared).chain(options).cloned().collect()
    };
    let publish = [options, vec!["--retry".to_string()]].concat();
    Ok([line("publish", &publish), line("unpublish", &["--keep-at-boot".to_string()])])
}

/// Unmounts a volume from a path. With the last path the volume leaves this node.
pub fn unpublish(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let request = operator::UnpublishHereRequest {
        volume_id: given.word(0).to_string(),
        target_path: target(given)?,
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    let (id, path) = (&request.volume_id, &request.target_path);
    let answer = plugin.ask(&request);
    let is_gone = answer.as_ref().is_err_and(|error| error.kind() == Kind::NotFound);
    let another = match !given.has("keep-at-boot") && (answer.is_ok() || is_gone) {
        true => at_boot::undo(path, id)?,
        false => None,
    };
    let report = Report::new("", &json!({"id": id, "target_path": path, "detached": answer?.has_left}));
    Ok(another.into_iter().fold(report, |report, other| {
        report.with_note(format!("volume {other} is still published at {path} after a boot"))
    }))
}

fn target(given: &Given) -> CliResult<String> {
    values::path_text(&values::path(given.word(1))?)
}

/// Takes a volume back from a node, as an orchestrator would.
pub fn reclaim(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let (id, node) = (given.word(0), given.word(1));
    plugin.ask(&wire::ControllerUnpublishVolumeRequest {
        volume_id: id.to_string(),
        node_id: node.to_string(),
        secrets: values::secrets(given)?,
        ..Default::default()
    })?;
    Ok(Report::new("", &json!({"id": id, "node_id": node})))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::commands::COMMANDS;
    use crate::cli::fake::{Fake, run};
    use crate::cli::syntax::{Parsed, parse};

    #[test]
    fn a_publish_asks_for_what_the_options_say() {
        let node = operator::PublishHereResponse { node_id: "n1".into(), ..Default::default() };
        let fake = Fake::default().replies::<operator::PublishHereRequest>(&node);
        let secrets = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secrets.path(), "userKey=hidden\n").unwrap();
        let line = format!(
            "volume publish v1 /mnt//a/ --fs xfs --flags noatime --read-only --secrets {}",
            secrets.path().display()
        );
        let report = run(&fake, &line).unwrap();
        assert_eq!(fake.asked(), ["PublishHere"]);
        let asked: operator::PublishHereRequest = fake.request();
        assert_eq!((asked.volume_id.as_str(), asked.target_path.as_str()), ("v1", "/mnt/a"));
        assert_eq!((asked.readonly, asked.secrets["userKey"].as_str()), (true, "hidden"));
        let mount = asked.volume_capability.mount();
        assert_eq!((mount.fs_type.as_str(), mount.mount_flags.as_slice()), ("xfs", &["noatime".into()][..]));
        let json = json!({"id": "v1", "node_id": "n1", "target_path": "/mnt/a"});
        assert_eq!((report.text.as_str(), report.json), ("", json));
        let wrong = Fake::default();
        for options in ["--mode rw", "--retry --secrets -"] {
            assert_eq!(
                run(&wrong, &format!("volume publish v1 /mnt/a {options}")).unwrap_err().exit_code(),
                2
            );
        }
        assert!(wrong.asked().is_empty());
    }

    fn given(line: &str) -> Given {
        match parse(COMMANDS, line.split_whitespace().map(Into::into).collect()).unwrap() {
            Parsed::Run(_, given) => given,
            Parsed::Help(_) => panic!("no command in {line:?}"),
        }
    }

    #[test]
    fn the_commands_at_boot_say_what_the_first_one_said() {
        let line = "volume publish web /mnt/a --at-boot --read-only --block --fs xfs --flags noatime,nosuid --mode \
                    single-node-writer --secrets ./k --timeout 5 --json --parameter pool=fast";
        let [publish, unpublish] =
            commands_at_boot(&given(line), Path::new("./s.sock"), "v1", "/mnt/a").unwrap();
        let here = std::env::current_dir().unwrap();
        let (socket, secrets) =
            (format!("--socket={}/s.sock", here.display()), format!("--secrets={}/k", here.display()));
        let words = |words: &[String]| words[1..].to_vec();
        let shared = ["v1", "/mnt/a", &socket, &secrets];
        let options = [
            "--read-only",
            "--block",
            "--fs=xfs",
            "--mode=single-node-writer",
            "--flags=noatime,nosuid",
            "--retry",
        ];
        assert_eq!(words(&publish), [&["volume", "publish"][..], &shared, &options].concat());
        assert_eq!(words(&unpublish), [&["volume", "unpublish"][..], &shared, &["--keep-at-boot"]].concat());
        let refused =
            commands_at_boot(&given("volume publish v1 /mnt/a --secrets -"), Path::new("/s"), "v1", "/mnt/a");
        assert_eq!(refused.unwrap_err().exit_code(), 2);
    }

    /// An option that is added to the command has to be added to those at boot, or here.
    #[test]
    fn no_option_of_a_publish_is_forgotten_at_boot() {
        let command = COMMANDS.iter().find(|command| command.name == "volume publish").unwrap();
        for option in command.options().map(|option| option.name) {
            let is_kept = FLAGS_AT_BOOT.contains(&option) || OPTIONS_AT_BOOT.contains(&option);
            assert!(is_kept || ["at-boot", "retry", "secrets", "parameter"].contains(&option), "{option}");
        }
    }

    #[test]
    fn an_unpublish_says_whether_the_volume_has_left_the_node() {
        for has_left in [true, false] {
            let reply = operator::UnpublishHereResponse { has_left, ..Default::default() };
            let fake = Fake::default().replies::<operator::UnpublishHereRequest>(&reply);
            let report = run(&fake, "volume unpublish v1 /mnt/a").unwrap();
            assert_eq!(report.json, json!({"id": "v1", "target_path": "/mnt/a", "detached": has_left}));
        }
    }

    #[test]
    fn a_refusal_is_the_daemons_own() {
        let full = Fake::default().refuses::<operator::PublishHereRequest>(Error::no_space("full"));
        let failure = run(&full, "volume publish v1 /mnt/a").unwrap_err();
        assert_eq!((failure.exit_code(), failure.to_string().as_str()), (7, "RESOURCE_EXHAUSTED: full"));
    }

    #[test]
    fn a_volume_is_reclaimed_from_the_node_that_is_named() {
        let fake = Fake::default();
        let report = run(&fake, "volume reclaim v1 n2").unwrap();
        let asked: wire::ControllerUnpublishVolumeRequest = fake.request();
        assert_eq!((asked.volume_id.as_str(), asked.node_id.as_str()), ("v1", "n2"));
        assert_eq!((report.text.as_str(), report.json), ("", json!({"id": "v1", "node_id": "n2"})));
    }
}
