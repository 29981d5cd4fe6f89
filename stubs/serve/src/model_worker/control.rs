//! The pipe over which a server cancels turns.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};

use rustix::fs::OFlags;

/// A pipe that is read without waiting.
#[derive(Debug)]
pub(super) struct Control(Option<File>);

impl Control {
    /// Opens the descriptor of that number, if it is a pipe above stderr that can be read.
    ///
    /// It is opened anew, so that reading can be non-blocking without touching the descriptor itself.
    pub(super) fn open(number: &str) -> Option<Self> {
        let number: u32 = number.parse().ok()?;
        if number <= 2 || !is_readable(number) {
            return None;
        }
        let path = format!("/dev/fd/{number}");
        if !std::fs::metadata(&path).ok()?.file_type().is_fifo() {
            return None;
        }
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag fits");
        let mut options = File::options();
        let file = options.read(true).custom_flags(flags).open(path).ok()?;
        Some(Self(Some(file)))
    }

    /// What has come since the last time.
    pub(super) fn read(&mut self) -> Vec<u8> {
        let mut read = Vec::new();
        let mut part = [0; 512];
        while let Some(file) = &mut self.0 {
            match file.read(&mut part) {
                Ok(0) => self.0 = None,
                Ok(count) => read.extend_from_slice(&part[..count]),
                Err(_) => break,
            }
        }
        read
    }
}

/// Whether the descriptor was opened for reading, as far as the system tells.
fn is_readable(number: u32) -> bool {
    let Ok(told) = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else {
        return true;
    };
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & 3 != 1)
}
