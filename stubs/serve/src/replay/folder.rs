//! A folder of recordings, read.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use plan::replay::Recorded;
use wire::recording::{INDEX, Index, REQUEST, RESPONSE, TIMES, Times};

/// All exchanges under a folder: its own in the order of its `cases.json`, others by name behind them,
/// then those of its folders by name.
pub fn load(dir: &Path) -> anyhow::Result<Vec<Recorded>> {
    ensure!(dir.is_dir(), "{} is no folder", dir.display());
    let mut recorded = Vec::new();
    collect(dir, dir, &mut recorded)?;
    Ok(recorded)
}

fn collect(root: &Path, dir: &Path, recorded: &mut Vec<Recorded>) -> anyhow::Result<()> {
    let (mut names, mut folders) = (Vec::new(), Vec::new());
    let entries = std::fs::read_dir(dir);
    for entry in entries.with_context(|| format!("failed to list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            names.extend(name.strip_suffix(REQUEST).map(str::to_owned));
        }
    }
    let order = order(dir)?;
    names.sort_by_cached_key(|name| {
        let place = order.iter().position(|known| known == name);
        (place.unwrap_or(order.len()), name.clone())
    });
    folders.sort();
    for name in names {
        let exchange = exchange(root, dir, &name);
        recorded.extend(exchange.with_context(|| format!("failed to read case {name}"))?);
    }
    for folder in folders {
        collect(root, &folder, recorded)?;
    }
    Ok(())
}

fn order(dir: &Path) -> anyhow::Result<Vec<String>> {
    let path = dir.join(INDEX);
    let Some(json) = optional(&path)? else {
        return Ok(Vec::new());
    };
    let index = Index::parse(&json).with_context(|| path.display().to_string())?;
    Ok(index.cases.into_iter().map(|case| case.name).collect())
}

/// A case, unless its response was not recorded.
fn exchange(root: &Path, dir: &Path, name: &str) -> anyhow::Result<Option<Recorded>> {
    let file = |end: &str| -> PathBuf { dir.join(format!("{name}{end}")) };
    let Some(response) = optional(&file(RESPONSE))? else {
        return Ok(None);
    };
    let times = optional(&file(TIMES))?;
    let times = times.map(|json| Times::parse(&json)).transpose();
    let folder = dir.strip_prefix(root).unwrap_or(dir);
    Ok(Some(Recorded {
        name: folder.join(name).display().to_string(),
        request: std::fs::read(file(REQUEST))?,
        response,
        times: times.with_context(|| format!("{name}{TIMES}"))?,
    }))
}

fn optional(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}
