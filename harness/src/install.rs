//! Packages from `PyPI`, each set in a virtual environment of its own in the user's cache folder.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::UsageError;
use crate::group::last_lines;

/// Says which steps of an installation are done.
const MARKER: &str = "installed";

/// Where servers and clients are installed: `stubline` in the user's cache folder.
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

/// An environment's `python`.
pub(crate) fn python(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

/// Exactly these packages are in the folder.
pub(crate) fn is_installed(steps: &[Vec<String>], folder: &Path) -> bool {
    done(steps, folder) == steps.len() && python(folder).exists()
}

/// Puts the packages of each step, which are words behind `pip install`, into the folder's environment,
/// and goes on behind the last step that was finished. `version` is of the Python that is looked for
/// first, such as `3.12`; `name` is what is installed.
///
/// # Errors
/// [`UsageError`] if there is no step, else what Python or pip said last.
pub(crate) fn install(
    name: &str,
    steps: &[Vec<String>],
    version: Option<&str>,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    if steps.is_empty() {
        let told = format!("{name} is nothing that can be installed from here");
        return Err(UsageError(told).into());
    }
    let python = python(folder);
    let mut first = done(steps, folder);
    if !python.exists() || first == 0 {
        first = 0;
        let _ = fs::remove_dir_all(folder);
        let mut venv = Command::new(found(version));
        venv.args(["-m", "venv"]).arg(folder);
        run(&mut venv, &ProgressBar::hidden())?;
    }
    for (number, words) in steps.iter().enumerate().skip(first) {
        let packages = words.join(" ");
        tracing::info!(
            "step {} of {}: pip install {packages}",
            number + 1,
            steps.len()
        );
        let progress = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{elapsed} {wide_msg}");
        progress.set_style(style.expect("the template is one"));
        let mut pip = Command::new(&python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--no-input",
            "--progress-bar",
            "off",
        ]);
        pip.args(["--disable-pip-version-check", "--retries", "1"]);
        pip.args(["--timeout", "15"]);
        let ended = run(pip.args(words), &progress);
        progress.finish_and_clear();
        ended?;
        let marker = folder.join(MARKER);
        fs::write(&marker, format!("{:?}", &steps[..=number]))
            .with_context(|| format!("{} cannot be written", marker.display()))?;
    }
    Ok(python)
}

/// Steps that the folder's marker says are done; 0 if it names others.
fn done(steps: &[Vec<String>], folder: &Path) -> usize {
    let Ok(marker) = fs::read_to_string(folder.join(MARKER)) else {
        return 0;
    };
    let is_done = |count: &usize| format!("{:?}", &steps[..*count]) == marker;
    (1..=steps.len()).rev().find(is_done).unwrap_or(0)
}

/// The program of a Python version, or the usual one where that is not there.
fn found(version: Option<&str>) -> String {
    let wanted = version.map(|version| format!("python{version}"));
    let works = |program: &String| {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null());
        command.output().is_ok_and(|output| output.status.success())
    };
    wanted.filter(works).unwrap_or_else(|| "python3".into())
}

/// Runs a command to its end and shows its last line meanwhile.
fn run(command: &mut Command, progress: &ProgressBar) -> anyhow::Result<()> {
    let program = command.get_program().display().to_string();
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null());
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn();
    // The command has the pipe's other ends, without which reading would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.with_context(|| format!("{program} cannot be started"))?;
    let mut said = String::new();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.by_ref().read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        progress.set_message(text.trim_end().to_owned());
        said.push_str(&text);
        line.clear();
    }
    if !child.wait()?.success() {
        bail!("{}", last_lines(&said));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(words: &[&str]) -> Vec<Vec<String>> {
        words.iter().map(|word| vec![(*word).into()]).collect()
    }

    #[test]
    fn what_is_done_is_not_done_again() {
        let folder = std::env::temp_dir().join(format!("install-{:x}", fastrand::u64(..)));
        fs::create_dir_all(folder.join("bin")).unwrap();
        let wanted = steps(&["a==1", "b==2"]);
        assert_eq!(done(&wanted, &folder), 0);
        let mark = |steps: &[Vec<String>]| {
            fs::write(folder.join(MARKER), format!("{steps:?}")).unwrap();
        };
        mark(&wanted[..1]);
        assert_eq!(done(&wanted, &folder), 1);
        mark(&wanted);
        assert_eq!(done(&wanted, &folder), 2);
        assert!(!is_installed(&wanted, &folder));
        fs::write(python(&folder), "").unwrap();
        assert!(is_installed(&wanted, &folder));
        assert_eq!(done(&steps(&["a==2", "b==2"]), &folder), 0);
        // Both steps are there, so nothing is started.
        assert_eq!(
            install("a", &wanted, None, &folder).unwrap(),
            python(&folder)
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_command_that_fails_tells_its_last_words() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo two >&2; exit 3"]);
        let error = run(&mut shell, &ProgressBar::hidden()).unwrap_err();
        assert_eq!(error.to_string(), "one | two");
    }
}
