//! ExecuTorch's server with our worker behind it.

mod driven; // turns from end to end
mod recorded; // every recorded exchange, in the order in which it was recorded

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Parser;
use serve::cli::Running;
use serve::control_plane::{Args, start};
use serve::server::Stopped;

use crate::support::Client;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// A running server and what it logs.
pub(crate) struct Plane {
    running: Running,
    log: Log,
}

/// What is written to a log, kept.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Plane {
    /// Starts what `stubline serve executorch` would start with these words, on a free port.
    pub(crate) fn start<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let words = ["stubline"].into_iter().chain(words);
        let cli = Cli::parse_from(words.chain(["--port", "0", "--allow-chatml-fallback"]));
        let log = Log::default();
        let running = start(&cli.args, log.clone()).unwrap();
        Self { running, log }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.address()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// What was logged since this was last asked.
    pub(crate) fn logged(&self) -> String {
        let logged = std::mem::take(&mut *self.log.0.lock().unwrap());
        String::from_utf8(logged).unwrap()
    }

    pub(crate) fn stop(self) -> Stopped {
        self.running.stop().unwrap()
    }
}

/// A file of this test run with that text.
pub(crate) fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}
