//! SGLang's native streams: what each frame says of the answer so far.

use std::sync::Arc;

use plan::PrefixCache;
use plan::pace::Pace;
use plan::reply::{Body, Reply};
use plan::source::ScriptFile;
use plan::stub::Stub;
use proptest::prelude::*;
use serde_json::{Value, json};
use wire::dialect::Dialect;
use wire::http1::{BodyDecoder, Framing};
use wire::sse;

use crate::support::{all, ask, tokenizer};

/// A stub whose requests go the long way.
fn stub(text: &str, incremental: bool) -> Stub {
    let bpe = tokenizer("bpe");
    let script = json!({"s": {"choices": [{"text": text}]}}).to_string();
    let mut stub = Stub::echo(Arc::clone(&bpe));
    stub.engine.source = Box::new(ScriptFile::from_json(&script, &bpe).unwrap());
    stub.engine.pace = "steady:ttft=1ms,itl=1ms".parse::<Pace>().unwrap();
    stub.engine.honors_limits = true;
    stub.engine.prefix_cache = Some(PrefixCache::radix());
    stub.dialect = Dialect::SGLANG;
    stub.streaming.incremental = incremental;
    stub
}

/// The objects of a reply, `[DONE]` left out.
fn frames(reply: Reply) -> Vec<Value> {
    let mut frames = Vec::new();
    let mut add = |json: &[u8]| frames.extend(serde_json::from_slice::<Value>(json));
    match reply.body {
        Body::Stream(mut timeline) => {
            let bytes = all(&mut timeline);
            let mut decoder = BodyDecoder::new(Framing::Chunked);
            let mut events = sse::Decoder::default();
            let mut feed = |part: &[u8]| events.feed(part, &mut add);
            decoder.feed(&bytes, &mut feed).unwrap();
        }
        Body::Whole(whole) => add(&whole.bytes),
        other => panic!("{other:?}"),
    }
    frames
}

fn ids(frame: &Value) -> Vec<u64> {
    let ids = frame["output_ids"].as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn frames_grow_into_the_whole_answer(
        text in "[a-cé🎉\"\\\\ \n.]{0,40}",
        max_new_tokens in 0_u32..30,
        stop in prop::option::of("[a-c.]{1,3}"),
        (interval, n) in (1_u32..5, 1_usize..3),
        logprobs in any::<bool>(),
    ) {
        let body = |stream: bool| {
            let sampling = json!({"max_new_tokens": max_new_tokens, "stop": stop, "n": n});
            json!({"text": "?", "sampling_params": sampling, "stream": stream,
                   "return_logprob": logprobs, "top_logprobs_num": 2})
        };
        let run = |stream: bool, incremental: bool| {
            let mut stub = stub(&text, incremental);
            stub.streaming.stream_interval = interval;
            frames(ask(&stub, "/generate", &body(stream)))
        };
        let (grown, parts) = (run(true, false), run(true, true));
        let whole = match &run(false, false)[..] {
            [Value::Array(all)] => all.clone(),
            one => one.to_vec(),
        };
        prop_assert_eq!((whole.len(), grown.len()), (n, parts.len()));
        for (index, whole) in whole.iter().enumerate() {
            let is_own = |frame: &&Value| n == 1 || frame["index"] == index;
            let (mut said, mut said_ids) = (String::new(), Vec::new());
            let own = grown.iter().zip(&parts).filter(|(frame, _)| is_own(frame));
            let mut last = &Value::Null;
            for (frame, part) in own {
                said += part["text"].as_str().unwrap();
                said_ids.extend(ids(part));
                prop_assert_eq!(frame["text"].as_str().unwrap(), &*said);
                prop_assert_eq!(ids(frame), said_ids.clone());
                let meta = &frame["meta_info"];
                prop_assert_eq!(meta["completion_tokens"].as_u64(), Some(said_ids.len() as u64));
                if logprobs {
                    let listed = meta["output_token_logprobs"].as_array().unwrap().len();
                    prop_assert_eq!(listed, said_ids.len());
                }
                prop_assert!(last["meta_info"]["finish_reason"].is_null());
                last = frame;
            }
            prop_assert_eq!(&last["text"], &whole["text"]);
            prop_assert_eq!(&last["output_ids"], &whole["output_ids"]);
            let reason = |frame: &Value| frame["meta_info"]["finish_reason"].clone();
            prop_assert_eq!(reason(last), reason(whole));
        }
    }
}
