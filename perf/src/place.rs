//! Which cores each side has.

use rustix::thread::{CpuSet, sched_getaffinity};
use serde::Serialize;

/// Where a side runs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Place {
    /// Its cores, if it is kept on some.
    pub(crate) cores: Option<Vec<usize>>,
    /// Its threads.
    pub(crate) workers: usize,
}

/// Where both sides run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Places {
    /// The client.
    pub(crate) client: Place,
    /// The server.
    pub(crate) server: Place,
}

impl Places {
    /// Half of this process's cores for each side, a thread per core where nobody asks for another
    /// number.
    pub(crate) fn new(
        pin: bool,
        server_workers: Option<usize>,
        client_workers: Option<usize>,
    ) -> Self {
        let cores = cores();
        let (server, client) = cores.split_at(cores.len() / 2);
        let pin = pin && !server.is_empty();
        let place = |cores: &[usize], workers: Option<usize>| Place {
            cores: pin.then(|| cores.to_vec()),
            workers: workers.unwrap_or_else(|| cores.len().max(1)),
        };
        Self {
            client: place(client, client_workers),
            server: place(server, server_workers),
        }
    }
}

impl Place {
    /// Threads that can run at once, of a side with so many.
    pub(crate) fn lanes(&self, threads: usize) -> usize {
        let cores = self.cores.as_ref().map_or_else(|| cores().len(), Vec::len);
        threads.clamp(1, cores.max(1))
    }
}

fn cores() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_share_no_core() {
        let places = Places::new(true, Some(3), None);
        assert_eq!(places.server.workers, 3);
        if let (Some(server), Some(client)) = (&places.server.cores, &places.client.cores) {
            assert!(server.iter().all(|core| !client.contains(core)));
            assert_eq!(places.client.workers, client.len());
            assert_eq!(places.server.lanes(64), server.len());
        }
        let free = Places::new(false, None, None);
        assert_eq!((free.server.cores, free.client.cores), (None, None));
    }
}
