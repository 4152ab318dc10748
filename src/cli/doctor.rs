//! `doctor`: what is not as it should be, what it costs, and how it is mended.

use std::collections::BTreeMap;

use crate::cli::failure::{CliError, CliResult, FOUND};
use crate::cli::names;
use crate::cli::plugin::Plugin;
use crate::cli::report::{Report, fields};
use crate::cli::syntax::{Action, Command, Given, option};
use crate::config::{Config, Mistake};
use crate::daemon;
use crate::error::Kind;
use crate::grpc::proto::cephlet_operator_v1 as operator;
use crate::grpc::proto::csi_v1 as csi;
use crate::volume::finding::{DAEMON_SILENT, SETTING_REFUSED, VOLUME_SILENT};
use crate::volume::{Fault, Finding};

/// `cephlet doctor`.
pub const DOCTOR: Command = Command {
    name: "doctor",
    about: "look for faults, and show how to mend each one",
    words: &[],
    options: &[option("fix", "NAME", "mend the finding of this name, and nothing else")],
    notes: &[
        "Without --fix nothing is changed. The exit status is 12 if there is a finding.",
        "It looks at the settings, tools, devices, mounts and volumes of this node, at the journal and, where the
daemon serves the controller, at the clusters and all volumes. If no daemon answers, it checks why one cannot
start: run it with the daemon's environment then.",
    ],
    json: "an array of: name, meaning, cost, mend",
    action: Action::Ask(ask),
};

/// What the daemon finds, and what is wrong with volumes.
fn ask(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let mend = given.value("fix").unwrap_or_default().to_string();
    let is_mending = !mend.is_empty();
    let answer = plugin.ask(&operator::ExamineRequest { mend, ..Default::default() })?;
    if is_mending {
        return Ok(Report::new("mended", &serde_json::json!([])));
    }
    let finding = |operator::Finding { name, meaning, cost, mend, .. }| Finding {
        name,
        meaning,
        cost,
        mend,
        remedy: None,
    };
    let mut found: Vec<Finding> = answer.findings.into_iter().map(finding).collect();
    let volumes = unwell(plugin).into_iter().chain(unwell_here(plugin, answer.volume_ids));
    // The controller and the node may find the same.
    let volumes: BTreeMap<String, Finding> = volumes.map(|fault| (fault.name.clone(), fault)).collect();
    found.extend(volumes.into_values());
    Ok(report(&found))
}

/// What is found where no daemon answers. A wrong command line and a caller who may not use the socket are
/// errors: they say nothing about the daemon.
pub fn without_daemon(failure: CliError, config: Result<Config, Vec<Mistake>>) -> CliResult<Report> {
    let found = match (config, failure) {
        (Err(mistakes), _) => {
            mistakes.iter().map(|it| Finding::new(&SETTING_REFUSED, &it.name, &it.what)).collect()
        }
        (Ok(config), CliError::Refused(silence)) if silence.errno() != Some(libc::EACCES) => {
            let mut found = vec![Finding::new(&DAEMON_SILENT, "", silence)];
            found.extend(daemon::examine(&config));
            found
        }
        (Ok(_), failure) => return Err(failure),
    };
    Ok(report(&found))
}

/// The volumes of which the storage says that they are not well; none if the daemon is no controller.
fn unwell(plugin: &dyn Plugin) -> Vec<Finding> {
    let mut found = Vec::new();
    let page =
        |starting_token| csi::ControllerListVolumeHealthRequest { starting_token, ..Default::default() };
    let all = plugin.ask_all(page, |reply| {
        found.extend(reply.entries.into_iter().flat_map(|health| faults(plugin, health)));
        reply.next_token
    });
    if let Err(error) = all
        && error.kind() != Kind::Unimplemented
    {
        let all = Finding::new(&VOLUME_SILENT, "", error);
        found.push(all.mended_by("cephlet volume list shows those that can be reached"));
    }
    found
}

/// What this node finds wrong with the volumes that it uses.
fn unwell_here(plugin: &dyn Plugin, ids: Vec<String>) -> Vec<Finding> {
    let look = |volume_id: String| {
        let request = csi::NodeGetVolumeHealthRequest { volume_id: volume_id.clone(), ..Default::default() };
        match plugin.ask(&request) {
            Ok(answer) => faults(plugin, answer.volume_health.unwrap_or_default()),
            // It has left the node since.
            Err(error) if error.kind() == Kind::NotFound => Vec::new(),
            Err(error) => vec![Finding::new(&VOLUME_SILENT, names::of(plugin, &volume_id), error)],
        }
    };
    ids.into_iter().flat_map(look).collect()
}

fn faults(plugin: &dyn Plugin, health: csi::VolumeHealth) -> Vec<Finding> {
    let name = names::of(plugin, &health.volume_id);
    let fault = |entry: csi::volume_health::VolumeHealthEntry| {
        Fault::parse(&format!("{}: {}", entry.reason, entry.message))
    };
    let known = health.health_statuses.into_iter().filter_map(fault);
    known.map(|fault| Finding::of_fault(fault, &name)).collect()
}

fn report(found: &[Finding]) -> Report {
    let item = |it: &Finding| {
        let rows = fields(&[
            ("means", it.meaning.clone()),
            ("costs", it.cost.clone()),
            ("mended by", it.mend.clone()),
        ]);
        format!("{}\n  {}", it.name, rows.replace('\n', "\n  "))
    };
    let text = match found {
        [] => String::from("nothing was found"),
        found => found.iter().map(item).collect::<Vec<_>>().join("\n\n"),
    };
    let status = if found.is_empty() { 0 } else { FOUND };
    Report { status, ..Report::new(text, &found) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::cli::fake::{Fake, run};
    use crate::cli::plugin::no_answer;
    use crate::config::Role;
    use crate::error::Error;
    use crate::grpc::proto::cephlet_operator_v1::FindByNameResponse;

    fn found() -> operator::Finding {
        operator::Finding {
            name: "CopyLeft:main/rbd/csi-tmp-1".into(),
            meaning: "a copy".into(),
            cost: "space".into(),
            mend: "cephlet doctor --fix CopyLeft:main/rbd/csi-tmp-1".into(),
            ..Default::default()
        }
    }

    fn examined(reply: &operator::ExamineResponse) -> Fake {
        Fake::default().replies::<operator::ExamineRequest>(reply)
    }

    #[test]
    fn a_healthy_host_has_no_findings() {
        let report = run(&Fake::default(), "doctor").unwrap();
        assert_eq!((report.text.as_str(), report.status), ("nothing was found", 0));
    }

    #[test]
    fn a_finding_says_what_it_means_and_how_it_is_mended() {
        let reply = operator::ExamineResponse { findings: vec![found()], ..Default::default() };
        let report = run(&examined(&reply), "doctor").unwrap();
        let text = "CopyLeft:main/rbd/csi-tmp-1\n  means:      a copy\n  costs:      space\n  \
                    mended by:  cephlet doctor --fix CopyLeft:main/rbd/csi-tmp-1";
        assert_eq!((report.text.as_str(), report.status), (text, FOUND));
        assert_eq!(report.json[0]["meaning"], "a copy");
    }

    #[test]
    fn a_volume_that_controller_and_node_find_unwell_is_shown_once_by_its_name() {
        let entry = csi::volume_health::VolumeHealthEntry {
            reason: "MountGone".into(),
            message: "it is gone".into(),
            ..Default::default()
        };
        let health = csi::VolumeHealth {
            volume_id: "local:n:::x:1".into(),
            health_statuses: vec![entry],
            ..Default::default()
        };
        let listed =
            csi::ControllerListVolumeHealthResponse { entries: vec![health.clone()], ..Default::default() };
        let looked = csi::NodeGetVolumeHealthResponse {
            volume_health: protobuf::MessageField::some(health),
            ..Default::default()
        };
        let here =
            operator::ExamineResponse { volume_ids: vec!["local:n:::x:1".into()], ..Default::default() };
        let name =
            FindByNameResponse { id: "local:n:::x:1".into(), name: "web".into(), ..Default::default() };
        let fake = examined(&here)
            .replies::<operator::FindByNameRequest>(&name)
            .replies::<csi::ControllerListVolumeHealthRequest>(&listed)
            .replies::<csi::NodeGetVolumeHealthRequest>(&looked);
        let report = run(&fake, "doctor").unwrap();
        assert!(report.text.starts_with("MountGone:web\n  means:      it is gone\n"), "{}", report.text);
        assert_eq!(report.json.as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn what_does_not_answer_is_a_finding_too() {
        let here =
            operator::ExamineResponse { volume_ids: vec!["local:n:::x:1".into()], ..Default::default() };
        let fake = examined(&here).refuses::<csi::NodeGetVolumeHealthRequest>(Error::unavailable("it hangs"));
        assert!(run(&fake, "doctor").unwrap().text.starts_with("VolumeSilent:local:n:::x:1\n"));
    }

    #[test]
    fn a_finding_is_mended_only_if_it_is_named() {
        let fake = Fake::default();
        run(&fake, "doctor").unwrap();
        assert_eq!(fake.request::<operator::ExamineRequest>().mend, "");
        assert_eq!(run(&fake, "doctor --fix CopyLeft:x").unwrap().text, "mended");
        assert_eq!(fake.request::<operator::ExamineRequest>().mend, "CopyLeft:x");
    }

    /// The settings of an environment without any.
    fn config() -> Result<Config, Vec<Mistake>> {
        Config::from_variables(Role::Client, [])
    }

    #[test]
    fn who_asks_in_a_wrong_way_is_told_so_and_nothing_is_found() {
        let denied = no_answer(Path::new("/s"), &io::Error::from_raw_os_error(libc::EACCES));
        for (failure, status) in [(CliError::usage("--timeout xyz"), 2), (denied.into(), 6)] {
            assert_eq!(without_daemon(failure, config()).unwrap_err().exit_code(), status);
        }
    }

    #[test]
    fn without_a_daemon_its_silence_comes_first() {
        let report = without_daemon(Error::unavailable("no daemon answers").into(), config()).unwrap();
        assert!(
            report.text.starts_with("DaemonSilent\n  means:      no daemon answers\n"),
            "{}",
            report.text
        );
        assert_eq!(report.status, FOUND);
    }
}
