//! Stubs in this process.

use std::sync::Arc;

use clap::Parser as _;
use serve::server::Server;

#[derive(clap::Parser)]
struct Serve {
    #[command(subcommand)]
    command: serve::cli::Command,
}

/// What `stubline serve` with these words starts, on a free port.
pub(crate) fn start(words: &[&str]) -> Server {
    let words = ["serve"].into_iter().chain(words.iter().copied());
    let words = words.chain(["--port", "0", "--workers", "1"]);
    let checked = Serve::parse_from(words).command.checked(&|_| None).unwrap();
    Server::start(&checked.config, Arc::new(checked.stub)).unwrap()
}

pub(crate) fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}
