//! One pipe from a child: read without blocking, kept up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::ioctl_fionbio;

/// How many bytes of a child's stderr are kept, from its end.
const TAIL: usize = 4096;

/// How many bytes are read at once, to the stack.
const CHUNK: usize = 8192;

/// How much one call of [`Stream::drain`] reads at most: the largest pipe an unprivileged process can make
/// (pipe(7)).
const DRAIN: usize = 1 << 20;

/// How rbd(8) writes how far it is: `\rImage flatten: 12% complete...`, at the end with `done.` or `failed.`
const COMPLETE: &str = "% complete...";

/// Which part of a child's output is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// All of it, up to this many bytes. If there are more, nothing is kept.
    All(usize),
    /// The last 4 KiB.
    Tail,
}

/// The reading end of a child's stdout or stderr. Output beyond the limit is read and dropped, so that the
/// child never blocks.
#[derive(Debug)]
pub(super) struct Stream {
    pipe: Option<File>,
    keep: Keep,
    kept: Vec<u8>,
    overflowed: bool,
}

impl Stream {
    pub(super) fn new(pipe: OwnedFd, keep: Keep) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe.into()), keep, kept: Vec::new(), overflowed: false })
    }

    /// The pipe, until it has ended.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(File::as_fd)
    }

    /// Reads the bytes that are there now.
    pub(super) fn drain(&mut self) {
        let mut chunk = [0; CHUNK];
        for _ in 0..DRAIN / CHUNK {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(length) => self.keep(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // read(2) of a pipe has no other error. After any error there is nothing more to read.
                Err(_) => self.pipe = None,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        match self.keep {
            Keep::All(limit) if self.overflowed || self.kept.len() + bytes.len() > limit => {
                self.overflowed = true;
                self.kept = Vec::new();
            }
            Keep::All(_) => self.kept.extend_from_slice(bytes),
            Keep::Tail => {
                self.kept.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
                self.kept.drain(..self.kept.len().saturating_sub(TAIL));
            }
        }
    }

    /// How far the child is, in percent, where it has written that.
    pub(super) fn percent(&self) -> Option<u8> {
        let text = String::from_utf8_lossy(&self.kept);
        let (before, _) = text.rsplit_once(COMPLETE)?;
        before.rsplit(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    }

    /// Whether there was more output than the limit.
    pub(super) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// What was kept.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// What was kept, as text, without how far the child was.
    pub(super) fn take_text(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.take()).into_owned();
        if !text.contains(COMPLETE) {
            return text;
        }
        let lines = text.split(['\r', '\n']).filter(|line| !line.contains(COMPLETE) && !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    fn pipe(keep: Keep) -> (Stream, File) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (Stream::new(reader, keep).unwrap(), writer.into())
    }

    #[test]
    fn an_open_pipe_is_read_without_waiting() {
        let (mut stream, mut writer) = pipe(Keep::All(100));
        stream.drain();
        writer.write_all(b"one ").unwrap();
        stream.drain();
        writer.write_all(b"two").unwrap();
        drop(writer);
        stream.drain();
        assert!(stream.fd().is_none());
        assert_eq!(stream.take(), b"one two");
    }

    #[test]
    fn a_tail_is_the_end() {
        let (mut stream, mut writer) = pipe(Keep::Tail);
        for number in 0..2000 {
            writeln!(writer, "line {number}").unwrap();
            stream.drain();
        }
        let text = stream.take_text();
        assert_eq!(text.len(), TAIL);
        assert!(text.ends_with("line 1998\nline 1999\n"));
        assert!(!stream.overflowed());
    }

    #[test]
    fn how_far_the_child_is_is_told_apart_from_what_it_complains_about() {
        let (mut stream, mut writer) = pipe(Keep::Tail);
        assert_eq!(stream.percent(), None);
        for (text, percent) in [
            ("rbd: a warning\n\rImage flatten: 1% complete...", Some(1)),
            ("\rImage flatten: 57% complete...\rImage flatten: 5", Some(57)),
            ("8% complete...", Some(58)),
            ("\rImage flatten: 58% complete...failed.\nrbd: flatten error: (2) No such file\n", Some(58)),
        ] {
            writer.write_all(text.as_bytes()).unwrap();
            stream.drain();
            assert_eq!(stream.percent(), percent, "{text:?}");
        }
        assert_eq!(stream.take_text(), "rbd: a warning\nrbd: flatten error: (2) No such file");
    }

    #[test]
    fn all_or_nothing_is_kept() {
        let (mut stream, mut writer) = pipe(Keep::All(4));
        writer.write_all(b"1234").unwrap();
        stream.drain();
        assert!(!stream.overflowed());
        writer.write_all(b"5").unwrap();
        stream.drain();
        writer.write_all(b"6").unwrap();
        stream.drain();
        assert!(stream.overflowed());
        assert!(stream.take().is_empty());
    }
}
