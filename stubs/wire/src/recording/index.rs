//! `cases.json`: the cases of a folder and how its server was started.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// What a folder's `cases.json` says.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Index {
    /// Where the recording is from, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    /// The server's flags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The server's environment variables.
    #[serde(
        alias = "environment",
        default,
        skip_serializing_if = "HashMap::is_empty"
    )]
    pub env: HashMap<String, String>,
    /// Cases in the order they were recorded.
    #[serde(default, deserialize_with = "cases")]
    pub cases: Vec<Case>,
}

/// One recorded exchange.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Case {
    /// What its files are named.
    #[serde(default)]
    pub name: String,
    /// `POST`
    #[serde(default)]
    pub method: String,
    /// The target.
    #[serde(default)]
    pub path: String,
    /// The answer's status; 0 if none came.
    #[serde(default, deserialize_with = "status")]
    pub status: u16,
    /// The answer is an event stream.
    #[serde(default)]
    pub stream: bool,
    /// The script that the engine played.
    #[serde(
        default,
        deserialize_with = "script",
        skip_serializing_if = "Option::is_none"
    )]
    pub script: Option<String>,
    /// What is special about it.
    #[serde(alias = "note", default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Why it is more than one plain exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<String>,
    /// What the files of the second exchange are named that took place meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aux: Option<String>,
}

impl Index {
    /// Reads a `cases.json`, its cases a list or an object by name.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

fn cases<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Case>, D::Error> {
    struct Cases;
    impl<'de> Visitor<'de> for Cases {
        type Value = Vec<Case>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of cases, or an object of cases by name")
        }

        fn visit_u64<E>(self, _count: u64) -> Result<Vec<Case>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Case>, A::Error> {
            let mut cases = Vec::new();
            while let Some(case) = list.next_element()? {
                cases.push(case);
            }
            Ok(cases)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Case>, A::Error> {
            let mut cases = Vec::new();
            while let Some((name, case)) = map.next_entry::<String, Case>()? {
                cases.push(Case { name, ..case });
            }
            Ok(cases)
        }
    }
    deserializer.deserialize_any(Cases)
}

/// A number, or a status line.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let number = value.as_u64().or_else(|| {
        let digits = value.as_str()?.split(' ').nth(1)?;
        digits.parse().ok()
    });
    Ok(number
        .and_then(|number| u16::try_from(number).ok())
        .unwrap_or(0))
}

/// A name; other corpora say the script itself.
fn script<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_index_keep_the_order() {
        let list = br#"{"flags":["-a"],"env":{"X":"1"},"cases":[{"name":"b","status":200,"script":"s"},{"name":"a"}]}"#;
        let object =
            br#"{"environment":{"X":"1"},"cases":{"b":{"status":"HTTP/1.1 404 Not Found","script":{"s":"text"},"aux":"b.aux"},"a":{}}}"#;
        let names = |index: &Index| -> Vec<String> {
            index.cases.iter().map(|case| case.name.clone()).collect()
        };
        let (list, object) = (Index::parse(list).unwrap(), Index::parse(object).unwrap());
        assert_eq!(
            (names(&list), names(&object)),
            (vec!["b".into(), "a".into()], vec!["b".into(), "a".into()])
        );
        assert_eq!((list.cases[0].status, object.cases[0].status), (200, 404));
        assert_eq!(list.cases[0].script.as_deref(), Some("s"));
        assert_eq!(object.cases[0].aux.as_deref(), Some("b.aux"));
        assert_eq!((&list.env["X"], list.env.len()), (&object.env["X"], 1));
        assert_eq!(
            Index::parse(br#"{"cases":14,"config":"x"}"#).unwrap().cases,
            []
        );
    }
}
