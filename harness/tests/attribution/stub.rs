//! Stubs in this process, and the folders of fixtures.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser as _;
use serve::server::Server;

#[derive(clap::Parser)]
struct Serve {
    #[command(subcommand)]
    command: serve::cli::Command,
}

pub(crate) struct Stub(Server);

impl Stub {
    /// What `stubline serve` with these words starts, on a free port.
    pub(crate) fn start(words: &[&str]) -> Self {
        let words = ["serve"].into_iter().chain(words.iter().copied());
        let words = words.chain(["--port", "0", "--workers", "1"]);
        let checked = Serve::parse_from(words).command.checked(&|_| None).unwrap();
        Self(Server::start(&checked.config, Arc::new(checked.stub)).unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.address())
    }
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// An empty folder of this name.
pub(crate) fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
