//! Real inference servers in processes of their own, as `servers.toml` tells: installed, started, stopped.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::http::Target;
use crate::stub::stop;

const SERVERS: &str = include_str!("../servers.toml");
/// A control plane that imports much on a slow disk is still starting.
const START_TIMEOUT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(50);

/// How to install and start a server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    install: Vec<Vec<String>>,
    start: Vec<String>,
    ready: String,
}

impl Recipe {
    /// That of `servers.toml` with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let mut servers: BTreeMap<String, Self> =
            toml::from_str(SERVERS).context("servers.toml cannot be read")?;
        let recipe = servers.remove(name);
        recipe.with_context(|| format!("servers.toml has no server {name:?}"))
    }

    /// Installs its packages into a virtual environment in `folder`, unless exactly these are there
    /// already, and returns the environment's `python`.
    ///
    /// # Errors
    /// What Python or pip said last, if it cannot be installed here.
    pub fn install(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let python = folder.join("bin/python");
        let marker = folder.join("installed");
        let wanted = format!("{:?}", self.install);
        if fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
            return Ok(python);
        }
        let _ = fs::remove_dir_all(folder);
        run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        for words in &self.install {
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--no-input"]);
            pip.args([
                "--disable-pip-version-check",
                "--retries",
                "1",
                "--timeout",
                "15",
            ]);
            run(pip.args(words))?;
        }
        fs::write(&marker, wanted)
            .with_context(|| format!("{} cannot be written", marker.display()))?;
        Ok(python)
    }

    /// Starts it with `python`, says what it says to `log`, and waits until it is ready.
    ///
    /// # Errors
    /// If it ends or is not ready in time; its last words are in the error.
    pub fn start(
        &self,
        python: &Path,
        files: &[(&str, &Path)],
        log: &Path,
    ) -> anyhow::Result<Server> {
        let port = free_port()?;
        let said = fs::File::create(log)
            .with_context(|| format!("{} cannot be written", log.display()))?;
        let mut command = Command::new(python);
        for word in &self.start {
            let named = files
                .iter()
                .find(|(name, _)| *word == format!("{{{name}}}"));
            if let Some((_, file)) = named {
                command.arg(file);
            } else if word == "{port}" {
                command.arg(port.to_string());
            } else {
                ensure!(!word.starts_with('{'), "say which file {word} is");
                command.arg(word);
            }
        }
        command
            .env("HF_HUB_OFFLINE", "1")
            .env("PYTHONUNBUFFERED", "1");
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said);
        let mut server = Server {
            child: command.spawn().context("python cannot be started")?,
            url: format!("http://127.0.0.1:{port}"),
        };
        let target = Target::parse(&server.url)?;
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok((200, _)) = target.get(&self.ready, None) {
                return Ok(server);
            }
            let ended = server.child.try_wait()?;
            if ended.is_some() || Instant::now() > until {
                drop(server);
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("the server did not start: {}", last_line(&said));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// A server that is stopped when this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// `http://127.0.0.1:PORT`
    pub url: String,
}

impl Server {
    /// Lets it run until this process is interrupted or told to stop, or until it ends by itself.
    ///
    /// # Errors
    /// If it ended by itself and not well.
    pub fn run(mut self) -> anyhow::Result<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build()?.block_on(async {
            let mut terminated = signal(SignalKind::terminate())?;
            loop {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => return Ok(()),
                    _ = terminated.recv() => return Ok(()),
                    () = tokio::time::sleep(POLL) => {}
                }
                if let Some(status) = self.child.try_wait()? {
                    ensure!(status.success(), "the server ended with {status}");
                    return Ok(());
                }
            }
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Where servers are installed: `stubline` in the user's cache folder.
///
/// # Errors
/// If the environment names neither `XDG_CACHE_HOME` nor `HOME`.
pub fn cache() -> anyhow::Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = named("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(named("HOME")?).join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME says where to install")?;
    Ok(cache.join("stubline"))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{}", last_line(&String::from_utf8_lossy(&said)));
    }
    Ok(())
}

fn last_line(said: &str) -> &str {
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it said nothing")
}

/// A port that was free a moment ago: the servers print no port that they chose themselves.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
