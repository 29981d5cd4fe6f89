//! Frames of SGLang's `/generate`: what each is for, and how they add up.

use super::json::Json;

/// How the kinds of such frames end.
const FRAME: &str = "frame";

/// What a frame is for, and its sample; `None` if it is a chunk of another route.
pub(super) fn kind(json: &Json) -> Option<(String, Option<i128>)> {
    let meta = json.get("meta_info")?;
    let is_end = meta
        .get("finish_reason")
        .is_some_and(|reason| *reason != Json::Null);
    let is_first = meta.get("response_sent_to_client_ts").is_some();
    let kind = match (is_end, is_first) {
        (true, _) => "last frame",
        (_, true) => "first frame",
        _ => FRAME,
    };
    let index = json.get("index").and_then(Json::integer);
    Some((kind.to_owned(), Some(index.unwrap_or(0))))
}

/// The kind is that of such a frame.
pub(super) fn is_frame(kind: &str) -> bool {
    kind.ends_with(FRAME)
}

/// The frame comes as often as the text has it.
pub(super) fn is_text(kind: &str) -> bool {
    kind == FRAME
}

/// What held for recorded frames of a sample and does not hold here, in words.
pub(super) fn difference(recorded: &[&Json], actual: &[&Json]) -> Option<String> {
    let (wanted, found) = (sums(recorded), sums(actual));
    let mut rules = RULES.into_iter().zip(wanted.into_iter().zip(found));
    let broken = rules.find(|(_, (wanted, found))| *wanted && !found)?;
    Some(broken.0.to_owned())
}

/// What may hold for the frames of a sample, in words for when it does not.
const RULES: [&str; 4] = [
    "the text of a frame does not begin with that of the frame before",
    "`output_ids` of a frame do not begin with those of the frame before",
    "`output_ids` are not as many as `completion_tokens`",
    "`output_ids` up to a frame are not as many as its `completion_tokens`",
];

/// Which of the rules hold.
fn sums(frames: &[&Json]) -> [bool; RULES.len()] {
    let texts: Vec<&str> = frames
        .iter()
        .filter_map(|frame| frame.get("text")?.text())
        .collect();
    let ids: Vec<&[Json]> = frames
        .iter()
        .filter_map(|frame| Some(frame.get("output_ids")?.items()))
        .collect();
    let counts = frames.iter().map(|frame| {
        let count = frame.get("meta_info")?.get("completion_tokens");
        usize::try_from(count?.integer()?).ok()
    });
    let counts: Vec<usize> = counts.map(Option::unwrap_or_default).collect();
    let so_far = ids.iter().scan(0, |sum, ids| {
        *sum += ids.len();
        Some(*sum)
    });
    [
        texts.windows(2).all(|pair| pair[1].starts_with(pair[0])),
        ids.windows(2).all(|pair| pair[1].starts_with(pair[0])),
        ids.iter().map(|ids| ids.len()).eq(counts.iter().copied()),
        so_far.eq(counts.iter().copied()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(frames: &[(&str, &str, u32)]) -> Vec<Json> {
        let frame = |(text, ids, count): &(&str, &str, u32)| {
            format!(
                r#"{{"text":"{text}","output_ids":{ids},"meta_info":{{"finish_reason":null,"completion_tokens":{count}}}}}"#
            )
        };
        let frames = frames.iter().map(frame);
        frames.map(|text| Json::parse(&text).unwrap()).collect()
    }

    fn told(recorded: &[Json], actual: &[Json]) -> Option<String> {
        let all = |frames: &'_ [Json]| -> Vec<Json> { frames.to_vec() };
        let (recorded, actual) = (all(recorded), all(actual));
        difference(
            &recorded.iter().collect::<Vec<_>>(),
            &actual.iter().collect::<Vec<_>>(),
        )
    }

    #[test]
    fn what_adds_up_in_the_recording_must_add_up() {
        let whole = frames(&[("a", "[1]", 1), ("ab", "[1,2]", 2)]);
        let parts = frames(&[("a", "[1]", 1), ("b", "[2]", 2)]);
        let longer = frames(&[
            ("x", "[7]", 1),
            ("xyz", "[7,8,9]", 3),
            ("xyz", "[7,8,9,0]", 4),
        ]);
        assert_eq!(told(&whole, &longer), None);
        assert_eq!(told(&parts, &parts), None);
        let said = told(&whole, &parts).unwrap();
        assert!(
            said.starts_with("the text of a frame does not begin"),
            "{said}"
        );
        let said = told(&parts, &whole).unwrap();
        assert!(said.starts_with("`output_ids` up to a frame"), "{said}");
        let short = frames(&[("a", "[1]", 1), ("ab", "[1]", 2)]);
        let said = told(&whole, &short).unwrap();
        assert_eq!(said, "`output_ids` are not as many as `completion_tokens`");
    }

    #[test]
    fn frames_are_told_apart() {
        let kind = |text: &str| kind(&Json::parse(text).unwrap());
        let named = |name: &str, index| Some((name.to_owned(), Some(index)));
        let first =
            r#"{"meta_info":{"finish_reason":null,"response_sent_to_client_ts":1.5},"index":1}"#;
        assert_eq!(kind(first), named("first frame", 1));
        assert_eq!(
            kind(r#"{"meta_info":{"finish_reason":null}}"#),
            named("frame", 0)
        );
        let last = r#"{"meta_info":{"finish_reason":{"type":"stop"}}}"#;
        assert_eq!(kind(last), named("last frame", 0));
        assert_eq!(kind(r#"{"choices":[]}"#), None);
    }
}
