//! Packs the recordings that `conform` sends into one compressed file for each corpus, and lists the
//! scenarios of `compare` and `gap`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const WIRE: &str = "../fixtures/wire";
const COMPARES: &str = "scenarios/compare";
const GAPS: &str = "scenarios/gap";
/// Fast, and within a tenth of the best.
const LEVEL: u8 = 6;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed={WIRE}");
    println!("cargo::rerun-if-changed={COMPARES}");
    println!("cargo::rerun-if-changed={GAPS}");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut list = String::from("&[\n");
    for corpus in folders(Path::new(WIRE))? {
        let name = file_name(&corpus);
        // The real engine's own recordings say nothing that the scripted ones do not.
        let is_second = name.ends_with("-cpu-engine");
        let is_packed = ["sglang-", "vllm-"].iter().any(|own| name.starts_with(own));
        if !is_packed || is_second || !corpus.join("cases.json").is_file() {
            continue;
        }
        let mut packed = Vec::new();
        pack(&corpus, "scripts.json", &mut packed)?;
        for configuration in folders(&corpus)? {
            pack_folder(&corpus, &file_name(&configuration), &mut packed)?;
        }
        let path = out.join(format!("{name}.packed"));
        std::fs::write(&path, miniz_oxide::deflate::compress_to_vec(&packed, LEVEL))?;
        let path = path.display().to_string();
        writeln!(list, "    ({name:?}, include_bytes!({path:?})),").expect("a String takes all");
    }
    list.push_str("]\n");
    std::fs::write(out.join("corpora.rs"), list)?;
    std::fs::write(out.join("compares.rs"), scenarios(COMPARES)?)?;
    std::fs::write(out.join("gaps.rs"), scenarios(GAPS)?)
}

/// Names and texts of a folder's scenarios, by name.
fn scenarios(dir: &str) -> std::io::Result<String> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        paths.push(std::fs::canonicalize(entry?.path())?);
    }
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    let mut list = String::from("&[\n");
    for path in paths {
        let name = file_name(&path);
        let name = name.trim_end_matches(".toml");
        let path = path.display().to_string();
        writeln!(list, "    ({name:?}, include_str!({path:?})),").expect("a String takes all");
    }
    list.push_str("]\n");
    Ok(list)
}

fn folders(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str());
    name.expect("fixtures have plain names").to_owned()
}

fn pack_folder(corpus: &Path, folder: &str, packed: &mut Vec<u8>) -> std::io::Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(corpus.join(folder))? {
        names.push(file_name(&entry?.path()));
    }
    names.sort();
    // Like beside like compresses best.
    for end in ["cases.json", ".request.http", ".response.http"] {
        for name in names.iter().filter(|name| name.ends_with(end)) {
            pack(corpus, &format!("{folder}/{name}"), packed)?;
        }
    }
    Ok(())
}

/// Appends the lengths of name and content as four bytes each, and both.
fn pack(corpus: &Path, name: &str, packed: &mut Vec<u8>) -> std::io::Result<()> {
    let content = std::fs::read(corpus.join(name))?;
    for length in [name.len(), content.len()] {
        let length = u32::try_from(length).expect("a fixture is small");
        packed.extend_from_slice(&length.to_le_bytes());
    }
    packed.extend_from_slice(name.as_bytes());
    packed.extend_from_slice(&content);
    Ok(())
}
