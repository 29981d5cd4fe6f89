//! Random ids, moments and measured numbers of a text, replaced.

use super::rules::{Rules, hex_digits};

/// Replaces what differs between runs; remembers the ids that it saw.
pub(super) struct Mask<'r> {
    rules: &'r Rules,
    seen: Vec<String>,
}

impl<'r> Mask<'r> {
    pub(super) fn new(rules: &'r Rules) -> Self {
        let seen = Vec::new();
        Self { rules, seen }
    }

    /// A text with ids, times and hashes replaced.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut word = false;
        while let Some(character) = rest.chars().next() {
            if let Some((shown, length)) = self.front(rest, word) {
                out.push_str(&shown);
                rest = &rest[length..];
                word = false;
                continue;
            }
            out.push(character);
            word = character.is_ascii_alphanumeric();
            rest = &rest[character.len_utf8()..];
        }
        out
    }

    /// What replaces the front of `rest`, and how much of it.
    fn front(&mut self, rest: &str, within_word: bool) -> Option<(String, usize)> {
        match rest.as_bytes()[0] {
            b'"' => self.member(rest),
            _ if within_word => None,
            _ => fingerprint(rest, self.rules.fingerprint).or_else(|| {
                let (prefix, digits) = self.rules.random_id(rest)?;
                let length = prefix + digits;
                let shown = format!("{}{}", &rest[..prefix], self.id(&rest[..length]));
                Some((shown, length))
            }),
        }
    }

    /// The same for a text that begins with a quoted key.
    fn member(&mut self, rest: &str) -> Option<(String, usize)> {
        let name = &rest[1..=rest[1..].find('"')?];
        let start = name.len() + "\"\":".len();
        let value = rest[start - 1..].strip_prefix(':')?;
        let key = &rest[..start];
        let rules = self.rules;
        let is_moment = rules.moments.contains(&name);
        if is_moment || rules.measured.iter().any(|end| name.ends_with(end)) {
            let digits = number(value);
            if digits > 0 {
                return Some((format!("{key}0"), start + digits));
            }
        }
        if is_moment && rules.are_moments_texts && value.starts_with("\"2") {
            let length = string(value)?;
            return Some((format!("{key}\"TIME\""), start + length));
        }
        if rules.bare_ids.contains(&name) && value.starts_with('"') && hex_digits(&value[1..]) == 32
        {
            let shown = format!("{key}\"{}", self.id(&value[1..=32]));
            return Some((shown, start + 1 + 32));
        }
        if rules.are_validations_dropped && name == "message" && value.starts_with('"') {
            let length = string(value)?;
            let is_validation = value[..length].contains(" validation error");
            return is_validation.then(|| (format!("{key}\"VALIDATION\""), start + length));
        }
        if rules.measured_objects.contains(&name) && value.starts_with('{') {
            let object = &value[..=value.find('}')?];
            let shown = format!("{key}{{{}", without_numbers(&object[1..]));
            return Some((shown, start + object.len()));
        }
        None
    }

    fn id(&mut self, id: &str) -> String {
        if !self.rules.are_ids_numbered {
            return "ID".to_owned();
        }
        let known = self.seen.iter().position(|seen| seen == id);
        let number = known.unwrap_or_else(|| {
            self.seen.push(id.to_owned());
            self.seen.len() - 1
        });
        format!("ID{number}")
    }
}

/// A version and its hash, as `vllm-0.33.0-2bce7987`.
fn fingerprint(rest: &str, prefix: Option<&str>) -> Option<(String, usize)> {
    let prefix = prefix?;
    let behind = rest.strip_prefix(prefix)?;
    let version = behind
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b'.');
    let length = prefix.len() + version.count();
    let hash = rest[length..].strip_prefix('-')?;
    (hex_digits(hash) == 8).then(|| (format!("{}-HASH", &rest[..length]), length + 9))
}

/// Bytes of the number at the front of a text.
fn number(text: &str) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    text.bytes().take_while(is_part).count()
}

/// Bytes of the JSON string at the front of a text, quotes included.
fn string(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })?;
    Some(end + 2)
}

fn without_numbers(mut object: &str) -> String {
    let mut out = String::new();
    while let Some(colon) = object.find(':') {
        out.push_str(&object[..=colon]);
        object = &object[colon + 1..];
        let digits = number(object);
        if digits > 0 {
            out.push('0');
        }
        object = &object[digits..];
    }
    out + object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str, rules: &Rules) -> String {
        Mask::new(rules).text(text)
    }

    #[test]
    fn what_differs_between_runs_of_vllm_is_replaced() {
        let id = "0123456789abcdef";
        for (text, expected) in [
            (
                format!("\"id\":\"chatcmpl-{id}\""),
                "\"id\":\"chatcmpl-ID\"",
            ),
            (format!("\"chatcmpl-tool-{id}\""), "\"chatcmpl-tool-ID\""),
            (format!("\"resp_{id}{id}\""), "\"resp_ID\""),
            (format!("\"farfc_{id}\""), &format!("\"farfc_{id}\"")),
            (
                format!("\"chatcmpl-{id}0\""),
                &format!("\"chatcmpl-{id}0\""),
            ),
            ("\"chatcmpl-mine\"".into(), "\"chatcmpl-mine\""),
            ("\"created\":1796028656,".into(), "\"created\":0,"),
            ("\"created_at\":12.5}".into(), "\"created_at\":0}"),
            ("\"created\":null".into(), "\"created\":null"),
            ("\"created\":\"2026\"".into(), "\"created\":\"2026\""),
            ("\"e2e_latency\":1.5".into(), "\"e2e_latency\":1.5"),
            (
                format!("\"id\":\"{id}{id}\""),
                &format!("\"id\":\"{id}{id}\""),
            ),
            ("\"vllm-0.33.0-2bce7987\"".into(), "\"vllm-0.33.0-HASH\""),
            (
                format!("\"signature\":\"{id}{id}\""),
                "\"signature\":\"ID\"",
            ),
            (
                "\"metrics\":{\"a_ms\":1.5e-3,\"b\":null}".into(),
                "\"metrics\":{\"a_ms\":0,\"b\":null}",
            ),
            ("date: in a body, café".into(), "date: in a body, café"),
        ] {
            assert_eq!(masked(&text, &Rules::VLLM), expected);
        }
    }

    #[test]
    fn what_differs_between_runs_of_sglang_is_replaced() {
        let id = "1891d0489c0a4bbc9a0c5362efd51cb2";
        for (text, expected) in [
            (format!("\"id\":\"{id}\",\"id\":\"{id}\""), "\"id\":\"ID0\",\"id\":\"ID0\""),
            (format!("\"rid\":\"{id}_0\""), "\"rid\":\"ID0_0\""),
            (format!("\"text\":\"{id}\""), &format!("\"text\":\"{id}\"")),
            ("\"id\":\"abort-me-1\"".into(), "\"id\":\"abort-me-1\""),
            (format!("\"id\":\"cmpl-{id}\""), "\"id\":\"cmpl-ID0\""),
            (format!("\"item_id\":\"msg_{id}\",\"msg_{}\"", "0".repeat(32)), "\"item_id\":\"msg_ID0\",\"msg_ID1\""),
            ("\"call_c1f22bfa9b5945e58a4287a5\"".into(), "\"call_ID0\""),
            ("\"call-0ab1c2d3-0ab1-0ab1-0ab1-0ab1c2d30ab1\"".into(), "\"call-ID0\""),
            ("\"call-0ab1c2d3-0ab1-0ab1-0ab1-0ab1c2d30ab\"".into(), "\"call-0ab1c2d3-0ab1-0ab1-0ab1-0ab1c2d30ab\""),
            ("\"fc_d40481a7\",\"fc_718a3ae9\",\"fc_d40481a7\"".into(), "\"fc_ID0\",\"fc_ID1\",\"fc_ID0\""),
            ("\"created\":1796026755,\"created\":null".into(), "\"created\":0,\"created\":null"),
            ("\"created_at\":\"2026-11-30T08:20:15.905Z\",\"response\":\"2\"".into(), "\"created_at\":\"TIME\",\"response\":\"2\""),
            ("\"e2e_latency\":0.366743692,\"response_sent_to_client_ts\":1796026742.84}".into(), "\"e2e_latency\":0,\"response_sent_to_client_ts\":0}"),
            ("\"queue_time\":3.3e-05,\"storage_prefetch_wait\":0.0".into(), "\"queue_time\":0,\"storage_prefetch_wait\":0.0"),
            ("\"total_duration\":182148039,\"load_duration\":null".into(), "\"total_duration\":0,\"load_duration\":null"),
            ("\"cached_tokens\":8,\"completion_tokens\":11".into(), "\"cached_tokens\":8,\"completion_tokens\":11"),
            (
                r#"{"object":"error","message":"1 validation error:\n  {'a': \"b\"}","type":"Bad Request"}"#.into(),
                r#"{"object":"error","message":"VALIDATION","type":"Bad Request"}"#,
            ),
            (r#""message":"The request queue is full.""#.into(), r#""message":"The request queue is full.""#),
        ] {
            assert_eq!(masked(&text, &Rules::SGLANG), expected);
        }
    }
}
