//! A fixture folder that is being written.

use std::io;
use std::path::{Path, PathBuf};

use wire::http1::{WholeRequest, WholeResponse};
use wire::recording::{Case, INDEX, Index, REQUEST, RESPONSE, TIMES, Times};

/// The folder and what is in it so far.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    index: Index,
}

impl Store {
    /// Opens a folder, which may be there already; its index is written anew.
    pub(super) fn open(dir: &Path, recorded: String) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
            index: Index {
                recorded: Some(recorded),
                ..Index::default()
            },
        })
    }

    /// The number of cases so far.
    pub(super) fn len(&self) -> usize {
        self.index.cases.len()
    }

    /// Writes a case's files.
    pub(super) fn put(
        &mut self,
        name: &str,
        request: &[u8],
        (response, times): (&[u8], &Times),
        notes: Option<&str>,
    ) -> io::Result<()> {
        let file = |end: &str| self.dir.join(format!("{name}{end}"));
        if let Some(folder) = file(REQUEST).parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(file(REQUEST), request)?;
        std::fs::write(file(RESPONSE), response)?;
        std::fs::write(file(TIMES), serde_json::to_vec(times)?)?;
        let asked = WholeRequest::parse(request).ok().flatten();
        let to_head = asked
            .as_ref()
            .is_some_and(|asked| asked.head.method == "HEAD");
        let answer = WholeResponse::parse(response, to_head, true).ok().flatten();
        self.index.cases.push(Case {
            name: name.to_owned(),
            method: asked
                .as_ref()
                .map_or_else(String::new, |asked| asked.head.method.to_owned()),
            path: asked
                .as_ref()
                .map_or_else(String::new, |asked| asked.head.target.to_owned()),
            status: answer.as_ref().map_or(0, |answer| answer.status),
            stream: answer.is_some_and(|answer| answer.is_event_stream),
            notes: notes.map(str::to_owned),
            ..Case::default()
        });
        Ok(())
    }

    /// Writes the index.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut json = serde_json::to_vec_pretty(&self.index)?;
        json.push(b'\n');
        std::fs::write(self.dir.join(INDEX), json)
    }
}
