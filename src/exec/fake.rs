//! Stand-ins for tests: answers recorded beforehand, in the order in which they must be asked for.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use super::{Class, Cmd, CommandError, Helper, Output, Runner, Tool, Why};
use crate::dispatch::Call;

/// Answers in order. An unexpected question fails the test at once, an unused answer fails it at the end.
#[derive(Debug)]
struct Script<Q, A> {
    expected: Mutex<VecDeque<(Q, A)>>,
}

impl<Q: PartialEq + std::fmt::Debug, A> Script<Q, A> {
    fn expect(&self, question: Q, answer: A) {
        self.expected.lock().push_back((question, answer));
    }

    fn answer(&self, question: &Q) -> A {
        let next = self.expected.lock().pop_front();
        let (expected, answer) =
            next.unwrap_or_else(|| panic!("nothing more was expected, but came {question:?}"));
        assert_eq!(*question, expected, "another one was expected");
        answer
    }
}

impl<Q, A> Default for Script<Q, A> {
    fn default() -> Self {
        Self { expected: Mutex::default() }
    }
}

impl<Q, A> Drop for Script<Q, A> {
    fn drop(&mut self) {
        let left = self.expected.get_mut().len();
        assert!(left == 0 || thread::panicking(), "{left} expected questions were never asked");
    }
}

/// A [`Runner`] that starts nothing: exact command lines in, recorded output out.
#[derive(Debug, Default)]
pub struct FakeRunner {
    script: Script<Vec<String>, Result<Output, CommandError>>,
    ran: Mutex<Vec<Cmd>>,
    missing: Mutex<Vec<Tool>>,
}

impl FakeRunner {
    /// Expects exactly `argv` next (the tool's file name first), which writes `stdout` and ends with 0.
    pub fn expect(&self, argv: &[&str], stdout: &str) {
        self.script.expect(owned(argv), Ok(Output { stdout: stdout.into(), stderr_tail: String::new() }));
    }

    /// The same, and it writes to stderr, too.
    pub fn expect_said(&self, argv: &[&str], stdout: &str, stderr: &str) {
        self.script.expect(owned(argv), Ok(Output { stdout: stdout.into(), stderr_tail: stderr.into() }));
    }

    /// Expects exactly `argv` next, which writes `stderr` and ends with `status`.
    pub fn expect_failure(&self, argv: &[&str], status: i32, stderr: &str) {
        let (stdout, stderr_tail) = (Vec::new(), stderr.to_owned());
        self.expect_error(argv, Why::Failed { status, stdout, stderr_tail });
    }

    /// Expects exactly `argv` next, which gets this error.
    pub fn expect_error(&self, argv: &[&str], why: Why) {
        self.script.expect(owned(argv), Err(why.of(argv.join(" "))));
    }

    /// From now on this tool is missing.
    pub fn lack(&self, tool: Tool) {
        self.missing.lock().push(tool);
    }

    /// The commands run so far, for checks of what is not in the command line (class, stdin).
    pub fn ran(&self) -> Vec<Cmd> {
        self.ran.lock().clone()
    }
}

fn owned(argv: &[&str]) -> Vec<String> {
    argv.iter().map(ToString::to_string).collect()
}

impl Runner for FakeRunner {
    fn run(&self, call: &Call, cmd: &Cmd) -> Result<Output, CommandError> {
        call.enter_step(cmd.to_string());
        // No process runs, so no file is kept open.
        self.ran.lock().push(Cmd { kept_open: None, ..cmd.clone() });
        let args = cmd.args.iter().map(|arg| arg.to_string_lossy().into_owned());
        self.script.answer(&std::iter::once(cmd.tool.file_name().to_owned()).chain(args).collect())
    }

    fn has(&self, tool: Tool) -> Result<(), CommandError> {
        match self.missing.lock().contains(&tool) {
            true => Err(Why::NotFound { tool, searched: Vec::new() }.of(tool.file_name())),
            false => Ok(()),
        }
    }
}

/// A [`Helper`] that starts nothing: exact requests in, recorded replies out.
#[derive(Debug, Default)]
pub struct FakeHelper {
    script: Script<Vec<u8>, Result<Vec<u8>, CommandError>>,
    asked: Mutex<Vec<(String, Class)>>,
}

impl FakeHelper {
    /// Expects exactly `request` next, which gets `reply`.
    pub fn expect(&self, request: impl Into<Vec<u8>>, reply: impl Into<Vec<u8>>) {
        self.script.expect(request.into(), Ok(reply.into()));
    }

    /// Steps and classes asked for so far.
    pub fn asked(&self) -> Vec<(String, Class)> {
        self.asked.lock().clone()
    }
}

impl Helper for FakeHelper {
    fn ask(
        &self,
        call: &Call,
        step: &str,
        class: Class,
        request: &[u8],
        _: Option<&Arc<File>>,
    ) -> Result<Vec<u8>, CommandError> {
        call.enter_step(step);
        self.asked.lock().push((step.to_owned(), class));
        self.script.answer(&request.to_vec())
    }
}

#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn answers_come_in_order() {
        let (runner, call) = (FakeRunner::default(), Call::internal("test"));
        runner.expect(&["btrfs", "--version"], "v6\n");
        runner.expect_failure(&["e2fsck", "-p", "/dev/loop3"], 4, "broken");
        let version = runner.run(&call, &Cmd::new(Tool::Btrfs, Class::Question).arg("--version")).unwrap();
        assert_eq!(version.stdout, b"v6\n");
        let fsck = Cmd::new(Tool::E2fsck, Class::Unbounded).args(["-p", "/dev/loop3"]);
        assert_eq!(runner.run(&call, &fsck).unwrap_err().status(), Some(4));
        assert_eq!(runner.ran()[1].to_string(), fsck.to_string());
    }

    #[test]
    fn another_command_line_fails_the_test() {
        let runner = FakeRunner::default();
        runner.expect(&["btrfs", "a"], "");
        let other = Cmd::new(Tool::Btrfs, Class::Question).arg("b");
        assert!(catch_unwind(AssertUnwindSafe(|| runner.run(&Call::internal("test"), &other))).is_err());
    }

    #[test]
    fn a_command_never_run_fails_the_test() {
        let helper = FakeHelper::default();
        helper.expect("mount", "done");
        assert!(catch_unwind(AssertUnwindSafe(|| drop(helper))).is_err());
    }
}
