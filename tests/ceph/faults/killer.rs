//! Kills as many commands as a test wants, each a random time after it began. Scripts take the place of the
//! commands; each kill uses up one file with a delay.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::Answer;
use crate::support::dice::Dice;
use crate::support::machine::text;
use crate::support::requests::delete;
use crate::support::stub::{BEHIND, install};
use crate::support::{Client, Cluster, Code, Corner, Daemon, LONG_PATIENCE, Place, Scratch, is_full};

/// How long all kills of a test may take, on a machine that has other things to do.
const TORMENT: Duration = Duration::from_secs(1200);
/// More than the clusters of tests take to forget a client that died: 10 s.
pub const FORGOTTEN: Duration = Duration::from_secs(60);
/// What is said of a tool that Ceph's libraries have aborted: version 16.2 does at times, on a busy machine.
pub const CRASHED: &str = "signal 6 ended";
/// More than any test needs.
const ROUNDS: usize = 20;
/// The longest delay in microseconds: as long as a command takes on a machine that has nothing else to do.
const LONGEST: usize = 60_000;

/// How many commands of RBD are killed in each test, at random moments.
pub fn kills() -> usize {
    kills_of::<Corner>()
}

/// The same for any backend.
fn kills_of<P: Place>() -> usize {
    if is_full() { P::KILLS } else { P::KILLS.min(30) }
}

/// Commands of a daemon that are killed.
pub struct Kills {
    /// The scripts.
    directory: PathBuf,
    /// Files with the delays of the next kills, and files for the commands that were killed.
    delays: PathBuf,
    killed: PathBuf,
}

impl Kills {
    /// Kills commands with these words. Of all commands that share `turn`, one at a time is killed.
    pub fn of((tools, words): (&[&str], &[&str]), scratch: &Scratch, turn: &Path) -> Self {
        let [directory, delays, killed] = ["scripts", "delays", "killed"].map(|name| scratch.dir(name));
        let places = [&delays, &killed, turn].map(|path| text(path).to_string());
        for tool in tools {
            install(&directory.join(tool), &script(tool, words, &places));
        }
        Self { directory, delays, killed }
    }

    /// The value for CEPHLET_TOOL_PATH.
    pub fn tool_path(&self) -> String {
        format!("{}:{BEHIND}", self.directory.display())
    }

    /// Arms kills of the next `count` commands, each after at most `longest` microseconds.
    pub fn arm(&self, longest: usize, count: usize) {
        let mut dice = Dice::random();
        for number in 0..count {
            let micros = dice.below(longest).max(1);
            fs::write(self.delays.join(number.to_string()), format!("0.{micros:06}")).expect("write a delay");
        }
    }

    /// How many commands are still to be killed.
    pub fn left(&self) -> usize {
        fs::read_dir(&self.delays).expect("the delays").count()
    }

    /// How many commands were killed.
    pub fn killed(&self) -> usize {
        fs::read_dir(&self.killed).expect("the dead").count()
    }

    /// Kills no more for now.
    pub fn spare(&self) {
        for delay in fs::read_dir(&self.delays).expect("the delays").flatten() {
            // A file that is gone was used at this moment.
            let _ = fs::remove_file(delay.path());
        }
    }

    /// Repeats `ask` until it succeeds, not much longer than commands are killed.
    #[track_caller]
    pub fn insist<T>(&self, cluster: &Cluster, ask: impl Fn() -> Answer<T>) -> T {
        // Since when no command was killed.
        let (mut left, mut calm, mut forgotten) = (self.left(), Instant::now(), false);
        let end = calm + TORMENT;
        loop {
            let before = self.left();
            let failure = match ask() {
                Ok(answer) => return answer,
                Err(failure) => failure,
            };
            let for_now = matches!(failure.code, Code::UNAVAILABLE | Code::DEADLINE_EXCEEDED | Code::ABORTED)
                || (failure.code == Code::INTERNAL && before > 0)
                || ["forgotten after 30 s", CRASHED].iter().any(|it| failure.message.contains(it));
            assert!(for_now, "{failure:?}");
            let now = self.left();
            if now != left {
                (left, calm, forgotten) = (now, Instant::now(), false);
            }
            assert!(Instant::now() < end, "not all commands were killed: {failure:?}");
            assert!(calm.elapsed() < LONG_PATIENCE, "not within {LONG_PATIENCE:?} after a kill: {failure:?}");
            if calm.elapsed() > FORGOTTEN && !std::mem::replace(&mut forgotten, true) {
                forget_the_dead(cluster, &failure);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A daemon that serves a place, with commands that can be killed.
pub struct Killer<P = Corner> {
    pub daemon: Daemon,
    pub corner: P,
    pub kills: Kills,
}

impl<P: Place> Killer<P> {
    /// Kills all commands that change something.
    #[track_caller]
    pub fn start() -> Self {
        Self::of(P::CHANGES)
    }

    /// Kills commands with these words.
    #[track_caller]
    pub fn of(words: &[&str]) -> Self {
        let corner = P::take();
        let setup = corner.setup_of(1);
        let turn = corner.cluster().dir().join("killing");
        let kills = Kills::of((P::TOOLS, words), &setup.scratch, &turn);
        // Commands that wait for a dead client must not keep the others from running.
        let setup = setup.set("CEPHLET_WORKERS", 32).set("CEPHLET_TOOLS", 32);
        let daemon = setup.with_tools(kills.tool_path()).start();
        Self { daemon, corner, kills }
    }

    pub fn client(&self) -> Client {
        self.daemon.client()
    }

    /// One and a half times the present duration of a short command, in microseconds.
    fn time_of_a_command(&self) -> usize {
        let begun = Instant::now();
        self.corner.volumes();
        usize::try_from(begun.elapsed().as_micros() * 3 / 2).expect("a short time")
    }

    /// Repeats `round` until as many commands were killed as a test wants. Each round should kill all of
    /// them, but on a machine that is faster for a while some commands end before their kill.
    #[track_caller]
    pub fn rounds(&self, round: impl Fn()) {
        for _ in 0..ROUNDS {
            round();
            eprintln!("{} were killed", self.kills.killed());
            if self.kills.killed() >= kills_of::<P>() {
                return;
            }
        }
        panic!("only {} were killed in {ROUNDS} rounds", self.kills.killed());
    }

    /// Sends all requests at once, and kills their commands until each succeeds; returns the answers.
    #[track_caller]
    pub fn torment<T: Send>(
        &self,
        requests: usize,
        ask: impl Fn(&Client, usize) -> Answer<T> + Sync,
    ) -> Vec<T> {
        let longest = LONGEST.max(self.time_of_a_command());
        self.kills.arm(longest, kills_of::<P>().saturating_sub(self.kills.killed()));
        let answers = thread::scope(|scope| {
            let ask = &ask;
            let running: Vec<_> = (0..requests)
                .map(|number| scope.spawn(move || self.insist(|client| ask(client, number))))
                .collect();
            running.into_iter().map(|one| one.join().expect("it converges")).collect()
        });
        self.kills.spare();
        answers
    }

    /// [`Kills::insist`]
    #[track_caller]
    pub fn insist<T>(&self, ask: impl Fn(&Client) -> Answer<T>) -> T {
        let client = self.client();
        self.kills.insist(self.corner.cluster(), || ask(&client))
    }

    /// Does something for each item, four at a time, without kills.
    #[track_caller]
    pub fn each<T: Sync, U: Send>(&self, of: &[T], act: impl Fn(&T) -> U + Sync) -> Vec<U> {
        let act = &act;
        let some_at_once = |some: &[T]| -> Vec<U> {
            thread::scope(|scope| {
                let running: Vec<_> = some.iter().map(|one| scope.spawn(move || act(one))).collect();
                running.into_iter().map(|one| one.join().expect("undisturbed")).collect()
            })
        };
        of.chunks(4).flat_map(some_at_once).collect()
    }

    /// Deletes these volumes, and asserts that nothing is left.
    #[track_caller]
    pub fn clear(&self, ids: &[String]) {
        assert_eq!(self.kills.left(), 0, "commands are killed still");
        // The cluster may take a while to forget a killed command.
        self.each(ids, |id| self.insist(|client| client.delete_volume(&delete(id))));
        self.corner.assert_nothing();
        self.daemon.assert_well();
    }
}

/// If a client is killed at the moment when it begins to watch, Ceph before 17.2.8 keeps its watcher for ever
/// (tracker.ceph.com/issues/58120), until the OSD was down and checks its clients anew. Live clients watch
/// again by themselves.
pub fn forget_the_dead(cluster: &Cluster, failure: &dyn Debug) {
    eprintln!("all that were killed should be forgotten: {failure:?}");
    cluster.ceph(&["osd", "down", "0"]);
}

/// The script in place of a tool. It kills one command at a time, as beside other commands a command would
/// not come far before its kill.
fn script(tool: &str, words: &[&str], [delays, killed, turn]: &[String; 3]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("*' {word} '*")).collect();
    format!(
        "#!/bin/bash\n\
         PATH={BEHIND}\n\
         case \" $* \" in {words})\n\
         for file in {delays}/*; do\n\
         delay=$(cat $file 2>/dev/null) && rm $file 2>/dev/null || continue\n\
         flock {turn} timeout --signal=KILL $delay {tool} \"$@\"\n\
         status=$?\n\
         [ $status != 137 ] || {{ : >{killed}/$$; kill -KILL $$; }}\n\
         exit $status\n\
         done ;;\n\
         esac\n\
         exec {tool} \"$@\"\n",
        words = words.join("|"),
    )
}
