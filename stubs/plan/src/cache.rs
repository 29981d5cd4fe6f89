//! Prefix caches: how many tokens of a prompt an engine would have found in one.

mod blocks;
mod radix;

use std::sync::{Mutex, MutexGuard};

use wire::usage::CachedTokens;

use blocks::Blocks;
use radix::Radix;

/// Prompts that were seen, as an engine keeps them.
#[derive(Debug)]
pub struct PrefixCache {
    /// Locked for a look-up and an insertion; only servers that tell of their cache have one.
    model: Mutex<Model>,
}

#[derive(Debug)]
enum Model {
    Blocks(Blocks),
    Radix(Radix),
}

impl PrefixCache {
    /// An empty cache of whole blocks of so many tokens, as vLLM has it.
    pub fn blocks(block: usize) -> Self {
        Self::new(Model::Blocks(Blocks::new(block)))
    }

    /// An empty cache of single tokens that keeps answers too, as SGLang has it.
    pub fn radix() -> Self {
        Self::new(Model::Radix(Radix::default()))
    }

    fn new(model: Model) -> Self {
        Self {
            model: Mutex::new(model),
        }
    }

    /// Looks a prompt up and takes it up. The last token is never taken from the cache.
    pub fn prompt(&self, ids: &[u32]) -> CachedTokens {
        match &mut *self.locked() {
            Model::Blocks(blocks) => blocks.prompt(ids),
            Model::Radix(radix) => {
                let found = radix.found(ids, ids.len());
                radix.insert(ids);
                found
            }
        }
    }

    /// Looks up prompts that are computed together and takes them up, so that none finds another; of
    /// each no more than the first `most` tokens are taken from the cache.
    pub fn batch(&self, prompts: &[Vec<u32>], most: usize) -> Vec<CachedTokens> {
        match &mut *self.locked() {
            Model::Blocks(blocks) => prompts.iter().map(|ids| blocks.prompt(ids)).collect(),
            Model::Radix(radix) => {
                let found = prompts.iter().map(|ids| radix.found(ids, most)).collect();
                for ids in prompts {
                    radix.insert(ids);
                }
                found
            }
        }
    }

    /// Takes up an answer whose prompt was looked up.
    pub fn answered(&self, prompt: &[u32], answer: &[u32]) {
        if let Model::Radix(radix) = &mut *self.locked() {
            // The last token has been sampled, but not computed.
            let computed = &answer[..answer.len().saturating_sub(1)];
            radix.insert(&[prompt, computed].concat());
        }
    }

    /// Forgets everything.
    pub fn reset(&self) {
        match &mut *self.locked() {
            Model::Blocks(blocks) => blocks.reset(),
            Model::Radix(radix) => *radix = Radix::default(),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Model> {
        self.model.lock().expect("nobody panics with the lock")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;
    use vocab::Tokenizer;
    use wire::json::Json;
    use wire::request::{Endpoint, Request};

    use super::*;
    use crate::corpus::{self, Case};
    use crate::prompt;
    use crate::stub::Stub;

    /// Cases before which the cache was not emptied, with what ran before them.
    const WARM: [(&str, &str, &str); 5] = [
        ("default", "gen-basic-repeat", "gen-basic"),
        ("default", "gen-batch", "gen-logprob-flat"),
        ("default", "gen-logprob-flat", "gen-logprob-token-ids"),
        ("default", "gen-logprob-stream", "gen-logprob-top2-text"),
        ("metrics", "gen-basic-repeat", "cmpl-stream-usage"),
    ];

    /// A batch whose second prompt came too late to be computed with the first.
    const LATE: (&str, &str) = ("default", "gen-batch-stream");

    fn prompts(case: &Case, stub: &Stub) -> Vec<Vec<u32>> {
        let endpoint = match &*case.path {
            "/generate" => return case.prompts(&stub.engine.tokenizer.vocab),
            "/v1/chat/completions" => Endpoint::Chat,
            "/v1/completions" => Endpoint::Completions,
            _ => return Vec::new(),
        };
        let Ok(Json::Object(members)) = Json::parse(&case.bytes) else {
            return Vec::new();
        };
        let request = match endpoint {
            Endpoint::Chat => Request::flat(members),
            _ => Request::from_checked(endpoint, members),
        };
        let counted = prompt::counted(stub, &request);
        counted.map_or(Vec::new(), |counted| counted.ids(stub))
    }

    /// What each prompt's samples find.
    fn ask(cache: &PrefixCache, case: &Case, tokenizer: &Arc<Tokenizer>) -> Vec<u64> {
        let prompts = prompts(case, &Stub::echo(Arc::clone(tokenizer)));
        let samples = case.samples();
        let first = cache.batch(&prompts, usize::MAX);
        let found = match samples {
            1 => first,
            _ => cache.batch(&prompts, usize::MAX),
        };
        for (prompt, answer) in prompts.iter().zip(case.generated(&tokenizer.vocab)) {
            cache.answered(prompt, &answer.2);
        }
        let each = found.iter().map(|found| found.cached);
        each.flat_map(|cached| vec![cached; samples]).collect()
    }

    /// What a case's answers say, by the number of their choice.
    fn recorded(case: &Case) -> Vec<(usize, u64)> {
        let cached = |(index, answer): (usize, &Value)| {
            let native = answer["meta_info"]["cached_tokens"].as_u64();
            let usage = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
            let details = &answer["meta_info"]["cached_tokens_details"];
            if let Some(device) = details["device"].as_u64() {
                assert_eq!((Some(device), Some(0)), (native, details["host"].as_u64()));
            }
            Some((index, native.or_else(|| usage.as_u64())?))
        };
        case.numbered().filter_map(cached).collect()
    }

    #[test]
    fn every_recorded_case_of_sglang_finds_what_it_found() {
        let tokenizer = Arc::new(corpus::tokenizer());
        let cases: Vec<Case> = corpus::cases().collect();
        let mut counts = 0;
        for case in &cases {
            let recorded = recorded(case);
            let place = (&*case.configuration, &*case.name);
            if recorded.is_empty() || place == LATE {
                continue;
            }
            let cache = PrefixCache::radix();
            if let Some((.., before)) = WARM.iter().find(|warm| (warm.0, warm.1) == place) {
                let is_before =
                    |case: &&Case| place.0 == case.configuration && case.name == *before;
                ask(&cache, cases.iter().find(is_before).unwrap(), &tokenizer);
            }
            let found = ask(&cache, case, &tokenizer);
            for (index, cached) in recorded {
                assert_eq!(found[index], cached, "{place:?}");
                counts += 1;
            }
        }
        assert!(counts > 200, "{counts}");
    }

    #[test]
    fn an_answer_is_found_by_the_next_turn_but_for_its_end() {
        let cache = PrefixCache::radix();
        cache.prompt(&[1, 2, 3]);
        cache.answered(&[1, 2, 3], &[4, 5, 6]);
        assert_eq!(cache.prompt(&[1, 2, 3, 4, 5, 6, 7]).cached, 5);
        cache.reset();
        assert_eq!(cache.prompt(&[1, 2, 3, 4, 5, 6, 7]).cached, 0);
    }
}
