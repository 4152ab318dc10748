//! `jobs`: what the daemon is doing; and the line that a terminal shows while a command waits for it.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::cli::failure::CliResult;
use crate::cli::plugin::{Client, Plugin};
use crate::cli::report::{Report, fields, table};
use crate::cli::syntax::{Action, Command, Given};
use crate::error::Result;
use crate::grpc::proto::cephlet_operator_v1 as wire;

/// How often the line is written anew, and how long one question for it may take.
const PAUSE: Duration = Duration::from_secs(1);

/// Characters of the line: no terminal is narrower than it was in 1978.
const WIDTH: usize = 79;

/// `cephlet jobs`.
pub const JOBS: Command = Command {
    name: "jobs",
    about: "list what the daemon is doing: calls, and work in the background",
    words: &[],
    options: &[],
    notes: &[
        "Copies of local volumes and what rbd does without a deadline (flatten, removal) have a percentage.",
    ],
    json:
        "an array of: operation (the rpc, or job), subject (the volume), step, percent (of the step) or null,
seconds (since it began)",
    action: Action::Ask(list),
};

/// A piece of work.
#[derive(Debug, Serialize)]
pub struct Job {
    operation: String,
    subject: String,
    step: String,
    percent: Option<u8>,
    seconds: u64,
}

impl Job {
    /// The step, and how far it is, for people.
    pub fn state(&self) -> String {
        let percent = self.percent.map(|percent| format!(", {percent} %")).unwrap_or_default();
        format!("{}{percent}, for {} s", self.step, self.seconds)
    }
}

/// What the daemon is doing about this volume, by its ID or the name in the request that makes it; about
/// everything without one.
pub fn under_way(plugin: &dyn Plugin, subject: &str) -> Result<Vec<Job>> {
    let jobs = plugin.ask(&wire::JobsRequest::default())?.jobs.into_iter();
    let jobs =
        jobs.filter(|job| job.subject.split([' ', ',']).any(|word| subject.is_empty() || word == subject));
    let job = |job: wire::Job| Job {
        operation: job.operation,
        subject: job.subject,
        step: job.step,
        percent: u8::try_from(job.percent).ok(),
        seconds: job.seconds,
    };
    Ok(jobs.map(job).collect())
}

/// What is shown of a volume in place of all else while a call or a job holds it: a question about it would
/// wait for its lock. What has just begun is waited for, as most calls end at once.
pub fn instead(plugin: &dyn Plugin, id: &str, name: Option<&String>) -> Result<Option<Report>> {
    let under_way = under_way(plugin, id)?;
    if under_way.iter().all(|job| job.seconds == 0) {
        return Ok(None);
    }
    let states = under_way.iter().map(Job::state).collect::<Vec<_>>().join("; ");
    let pairs = [("name", name.cloned().unwrap_or_default()), ("id", id.to_string()), ("under way", states)];
    let json = json!({"name": name, "id": id, "under_way": under_way});
    Ok(Some(Report::new(fields(&pairs), &json)))
}

fn list(plugin: &dyn Plugin, _: &Given) -> CliResult<Report> {
    let jobs = under_way(plugin, "")?;
    let row = |job: &Job| [job.operation.clone(), job.subject.clone(), job.state()];
    let rows: Vec<_> = jobs.iter().map(row).collect();
    Ok(Report::new(table(&["OPERATION", "VOLUME", "STEP"], &rows), &jobs))
}

/// Does `work`, which waits for the daemon to do something about `subject`. Meanwhile, if standard error is a
/// terminal, a line there says how far that is.
pub fn shown<T>(socket: PathBuf, subject: &str, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (done, is_done) = mpsc::channel::<()>();
    let subject = subject.to_string();
    let line = thread::spawn(move || {
        let Ok(client) = Client::connect(&socket, Some(PAUSE)) else { return };
        while is_done.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            let jobs = under_way(&client, &subject).unwrap_or_default();
            let line: String = jobs.first().map(Job::state).unwrap_or_default().chars().take(WIDTH).collect();
            write_line(&line);
        }
        write_line("");
    });
    let outcome = work();
    drop(done);
    // It has written its last line, or has a defect that the outcome need not share.
    let _ = line.join();
    outcome
}

/// Writes this line in place of the former one: CR, and the control sequence EL of ECMA-48.
fn write_line(line: &str) {
    let _ = write!(io::stderr(), "\r\x1b[K{line}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};

    fn fake() -> Fake {
        let job = |subject: &str, percent| wire::Job {
            operation: "job".into(),
            subject: subject.into(),
            step: "rbd flatten".into(),
            percent,
            seconds: 7,
            ..Default::default()
        };
        let jobs = vec![job("remove v1", 12), job("v10", -1)];
        Fake::default().replies::<wire::JobsRequest>(&wire::JobsResponse { jobs, ..Default::default() })
    }

    #[test]
    fn jobs_are_listed_with_how_far_they_are() {
        let report = run(&fake(), "jobs").unwrap();
        assert_eq!(
            report.text,
            "OPERATION  VOLUME     STEP\n\
             job        remove v1  rbd flatten, 12 %, for 7 s\n\
             job        v10        rbd flatten, for 7 s"
        );
        assert_eq!(report.json[0]["percent"], 12);
        assert_eq!(report.json[1]["percent"], json!(null));
    }

    #[test]
    fn a_volume_that_is_worked_on_is_shown_with_that_alone() {
        let fake = fake();
        let report = run(&fake, "volume show v1").unwrap();
        assert_eq!(fake.asked(), ["Jobs"], "a question about the volume would wait");
        assert_eq!(report.text, "id:         v1\nunder way:  rbd flatten, 12 %, for 7 s");
        assert_eq!(report.json["under_way"][0]["percent"], 12);
    }

    #[test]
    fn a_volume_is_found_by_its_whole_name() {
        let subjects = |of: &str| {
            let jobs = under_way(&fake(), of).unwrap();
            jobs.into_iter().map(|job| job.subject).collect::<Vec<_>>()
        };
        assert_eq!(
            (subjects("v1"), subjects("v10")),
            (vec!["remove v1".to_string()], vec!["v10".to_string()])
        );
        assert!(subjects("v").is_empty());
    }
}
