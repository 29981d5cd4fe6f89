//! Starts a real server of `harness/servers.toml` until it is interrupted, as `just real-executorch` does.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use harness::real::{self, Recipe};

#[expect(clippy::print_stderr, reason = "one line that says what to do")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "says where it listens, as `serve` does"
)]
fn run() -> anyhow::Result<()> {
    let usage = "say the server's name, then each file that its start needs as NAME=FILE";
    let mut words = env::args().skip(1);
    let name = words.next().context(usage)?;
    let recipe = Recipe::named(&name)?;
    let files: Vec<(String, PathBuf)> = words
        .map(|word| {
            let (name, file) = word.split_once('=').context(usage)?;
            let file = Path::new(file);
            let file = file.canonicalize();
            Ok((
                name.to_owned(),
                file.with_context(|| format!("{word}: no such file"))?,
            ))
        })
        .collect::<anyhow::Result<_>>()?;
    let files: Vec<(&str, &Path)> = files
        .iter()
        .map(|(name, file)| (name.as_str(), file.as_path()))
        .collect();
    let folder = real::cache()?.join(&name);
    let python = recipe.install(&folder)?;
    let log = folder.join("log");
    let server = recipe.start(&python, &files, &log)?;
    println!("listening on {}", server.url);
    println!("its log: {}", log.display());
    server.run()
}
