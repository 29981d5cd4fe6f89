//! Inference servers in processes of their own, as `servers.toml` tells: installed, started, stopped.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::bench::Dialect;
use crate::error::UsageError;
use crate::group::{Group, POLL};
use crate::http::Target;
use crate::install;
pub use crate::install::cache;
use crate::stub::LISTENING;
use crate::words::{Values, filled};

const SERVERS: &str = include_str!("../servers.toml");
/// How long a server may take to get ready: one that imports much from a slow disk, or reads a model, is starting.
pub(crate) const START_LIMIT: &str = "2m";
/// How long a port may stay taken when its server is gone.
const PORT_TIMEOUT: Duration = Duration::from_millis(500);
/// Files that whoever starts a server may name.
const FILES: [&str; 3] = ["model", "tokenizer", "worker"];

/// How to install and start a server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    #[serde(skip)]
    name: String,
    /// How long it may take to get ready, [`START_LIMIT`] where nobody says.
    #[serde(skip, default = "start_limit")]
    pub(crate) start_limit: Duration,
    #[serde(default)]
    install: Vec<Vec<String>>,
    python: Option<String>,
    /// What `{program}` is where nobody names it.
    program: Option<String>,
    start: Vec<String>,
    ready: Ready,
    /// Which server it is like.
    pub(crate) dialect: Dialect,
    /// What `{model}` is where nobody names it.
    pub(crate) model: Option<String>,
    /// The member of a request whose grammar, in GBNF, pins what is said.
    pub(crate) pins: Option<String>,
    /// Its usage does not count the token that ends an answer.
    #[serde(default)]
    pub(crate) ends_uncounted: bool,
    /// Writes a truth file.
    #[serde(default)]
    pub(crate) truth: bool,
    /// The words that scenarios need added to `start`, by what is needed.
    #[serde(default)]
    pub(crate) plays: BTreeMap<String, Vec<String>>,
}

fn start_limit() -> Duration {
    humantime::parse_duration(START_LIMIT).unwrap_or_default()
}

/// When a server serves.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "String")]
enum Ready {
    /// It has said where it listens, as `stubline serve` does.
    Listening,
    /// This path answers 200.
    Path(String),
}

impl From<String> for Ready {
    fn from(word: String) -> Self {
        match &*word {
            "listening" => Self::Listening,
            _ => Self::Path(word),
        }
    }
}

impl Recipe {
    /// That of `servers.toml` with this name.
    ///
    /// # Errors
    /// [`UsageError`] if there is none.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        Ok(picked(Self::all()?, "server", name)?)
    }

    /// Those of `servers.toml`, by name.
    pub(crate) fn all() -> anyhow::Result<BTreeMap<String, Self>> {
        let mut servers: BTreeMap<String, Self> =
            toml::from_str(SERVERS).context("servers.toml cannot be read")?;
        for (name, recipe) in &mut servers {
            recipe.name.clone_from(name);
        }
        Ok(servers)
    }

    /// Installs its packages into a virtual environment in `folder`, unless exactly these are there
    /// already, and returns the environment's `python`.
    ///
    /// # Errors
    /// [`UsageError`] if there is nothing to install, else what Python or pip said last.
    pub fn install(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        install::install(&self.name, &self.install, self.python.as_deref(), folder)
    }

    /// What `{program}`, `{python}` and `{bin}` are: of the given program or environment, or of the one
    /// in the cache folder.
    pub(crate) fn programs(&self, given: Option<&Path>) -> anyhow::Result<Values> {
        programs(&self.name, &self.install, self.program.as_deref(), given)
    }

    /// Somebody must say what it loads.
    pub(crate) fn wants_model(&self) -> bool {
        self.model.is_none() && self.start.iter().any(|word| word.contains("{model}"))
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
        let mut values = Values::from([("python", python.display().to_string())]);
        for (name, file) in files {
            let named = FILES.into_iter().find(|known| known == name);
            let named = named.with_context(|| format!("a start names no file {name}"))?;
            values.insert(named, file.display().to_string());
        }
        self.launch(&[], values, log, &AtomicBool::new(false))
    }

    /// The same with more words, until somebody interrupts.
    pub(crate) fn launch(
        &self,
        more: &[String],
        mut values: Values,
        log: &Path,
        interrupt: &AtomicBool,
    ) -> anyhow::Result<Server> {
        let port = free_port()?;
        values.insert("port", port.to_string());
        let mut words = filled(&self.start, &values)?;
        words.extend(filled(more, &values)?);
        let (program, words) = words.split_first().context("`start` names no program")?;
        let mut command = Command::new(program);
        command.args(words);
        command
            .env("HF_HUB_OFFLINE", "1")
            .env("PYTHONUNBUFFERED", "1");
        let mut server = Server {
            group: Group::start(&mut command, log)?,
            url: format!("http://127.0.0.1:{port}"),
        };
        let until = Instant::now() + self.start_limit;
        while !self.is_ready(&mut server)? {
            ensure!(!interrupt.load(Ordering::Relaxed), "interrupted");
            let late = Instant::now() > until;
            if late || server.group.ended()?.is_some() {
                let (name, said) = (&self.name, server.group.last_lines());
                let what = if late {
                    let limit = humantime::format_duration(self.start_limit);
                    format!("was not ready within {limit}")
                } else {
                    "did not start".into()
                };
                bail!("the server {name} {what}: {said}");
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    fn is_ready(&self, server: &mut Server) -> anyhow::Result<bool> {
        match &self.ready {
            Ready::Listening => {
                let said = server.group.said();
                // A line without its end may be half an address.
                let mut whole = said
                    .split_inclusive('\n')
                    .filter(|line| line.ends_with('\n'));
                let url = whole.find_map(|line| line.strip_prefix(LISTENING));
                if let Some(url) = url {
                    url.trim_end().clone_into(&mut server.url);
                }
                Ok(url.is_some())
            }
            Ready::Path(path) => {
                let answered = Target::parse(&server.url)?.get(path, None);
                Ok(matches!(answered, Ok((200, _))))
            }
        }
    }
}

/// The table with this name, or the names that there are.
pub(crate) fn picked<T>(
    mut tables: BTreeMap<String, T>,
    kind: &str,
    name: &str,
) -> Result<T, UsageError> {
    tables.remove(name).ok_or_else(|| {
        let known: Vec<String> = tables.into_keys().collect();
        let known = known.join(", ");
        UsageError(format!("there is no {kind} {name:?}, only {known}"))
    })
}

/// What stands for the programs of a recipe, of a server or a client.
pub(crate) fn programs(
    name: &str,
    steps: &[Vec<String>],
    program: Option<&str>,
    given: Option<&Path>,
) -> anyhow::Result<Values> {
    let ours = std::env::current_exe().context("failed to find this program's file")?;
    let beside = ours.with_file_name("stubline-worker");
    let mut values = Values::from([
        ("stubline", ours.display().to_string()),
        ("worker", beside.display().to_string()),
    ]);
    let folder = match given {
        Some(folder) if folder.is_dir() => std::path::absolute(folder)?,
        Some(program) => {
            let told = || UsageError(format!("{name}: there is no {}", program.display()));
            values.insert("program", executable(program).ok_or_else(told)?);
            return Ok(values);
        }
        None if !steps.is_empty() => cache()?.join(name),
        None => {
            if let Some(program) = program {
                let told = || UsageError(format!("there is no {program}: say {name}=PATH"));
                let path = executable(Path::new(program)).ok_or_else(told)?;
                values.insert("program", path);
            }
            return Ok(values);
        }
    };
    if given.is_none() && !install::is_installed(steps, &folder) {
        let told = format!(
            "{name} is not installed: run `stubline install {name}`, or say where it is with {name}=PATH"
        );
        return Err(UsageError(told).into());
    }
    let bin = folder.join("bin");
    if let Some(program) = program {
        values.insert("program", bin.join(program).display().to_string());
    }
    values.insert("python", install::python(&folder).display().to_string());
    values.insert("bin", bin.display().to_string());
    Ok(values)
}

/// A program's whole path, since clients run in folders of their own; a name is looked for in PATH.
fn executable(program: &Path) -> Option<String> {
    let path = if program.components().count() > 1 || program.exists() {
        Some(std::path::absolute(program).ok()?)
    } else {
        let folders = std::env::var_os("PATH")?;
        let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
        paths.find(|path| path.is_file())
    };
    Some(path.filter(|path| path.is_file())?.display().to_string())
}

/// A server that is stopped when this is dropped.
#[derive(Debug)]
pub struct Server {
    group: Group,
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
                if let Some(status) = self.group.ended()? {
                    ensure!(status.success(), "the server ended with {status}");
                    return Ok(());
                }
            }
        })
    }

    /// Stops it, and says whether it ended with success.
    ///
    /// # Errors
    /// It had ended by itself, or its port is still taken; its last words are in the error.
    pub(crate) fn stop(&mut self) -> anyhow::Result<bool> {
        if let Some(status) = self.group.ended()? {
            let said = self.group.last_lines();
            bail!("the server had ended with {status}: {said}");
        }
        let status = self.group.stop();
        let address = Target::parse(&self.url)?.address;
        let until = Instant::now() + PORT_TIMEOUT;
        while TcpListener::bind(address).is_err() {
            let said = || self.group.last_lines();
            ensure!(
                Instant::now() < until,
                "the server keeps its port: {}",
                said()
            );
            std::thread::sleep(POLL);
        }
        Ok(status.is_some_and(|status| status.success()))
    }

    /// The end of what it has said, in one line.
    pub(crate) fn last_lines(&self) -> String {
        self.group.last_lines()
    }
}

/// A port that was free a moment ago: the servers print no port that they chose themselves.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(start: &str, ready: &str) -> Recipe {
        let text = format!("start = {start}\nready = {ready:?}\ndialect = 'openai'");
        toml::from_str(&text).unwrap()
    }

    fn launch(script: &str) -> anyhow::Result<Server> {
        launch_within(start_limit(), script)
    }

    fn launch_within(start_limit: Duration, script: &str) -> anyhow::Result<Server> {
        let log = std::env::temp_dir().join(format!("server-{:x}.log", fastrand::u64(..)));
        let mut recipe = recipe(r#"["sh", "-c", "{program}"]"#, "listening");
        recipe.start_limit = start_limit;
        let values = Values::from([("program", script.to_owned())]);
        let server = recipe.launch(&[], values, &log, &AtomicBool::new(false));
        std::fs::remove_file(log).unwrap();
        server
    }

    #[test]
    fn every_server_of_the_file_is_read() {
        let all = Recipe::all().unwrap();
        assert!(all.contains_key("executorch") && all["stub:vllm"].truth);
        for (name, recipe) in all {
            assert!(!recipe.start.is_empty(), "{name}");
        }
        let error = Recipe::named("nobody").unwrap_err();
        assert!(error.is::<UsageError>());
    }

    #[test]
    fn a_server_that_dies_is_told_with_its_last_words() {
        let error = launch("echo no port; echo left >&2; exit 4").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the server  did not start: no port | left"
        );
    }

    #[test]
    fn a_server_that_never_gets_ready_is_told_and_ended() {
        let script = "echo loading; exec tail -f /dev/null";
        let error = launch_within(Duration::ZERO, script).unwrap_err();
        let error = error.to_string();
        let (told, _) = error.split_once(": ").unwrap();
        assert_eq!(told, "the server  was not ready within 0s");
    }

    #[test]
    fn a_server_that_died_meanwhile_is_no_success() {
        let mut server = launch("echo listening on http://127.0.0.1:9").unwrap();
        while server.group.ended().unwrap().is_none() {
            std::thread::yield_now();
        }
        let error = server.stop().unwrap_err().to_string();
        assert!(
            error.starts_with("the server had ended with exit status: 0"),
            "{error}"
        );
    }

    #[test]
    fn a_port_that_stays_taken_is_told() {
        let kept = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = kept.local_addr().unwrap().port();
        let script = format!("echo listening on http://127.0.0.1:{port}; exec tail -f /dev/null");
        let error = launch(&script).unwrap().stop().unwrap_err().to_string();
        assert!(error.starts_with("the server keeps its port: "), "{error}");
    }
}
