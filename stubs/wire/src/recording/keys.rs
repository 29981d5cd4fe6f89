//! Pages of which only the keys are compared, reduced to them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The keys of a JSON object or the families of a metrics page; any other text stays.
pub(super) fn keys(page: &str) -> String {
    if page.starts_with("# ") {
        let mut families: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("# TYPE "))
            .collect();
        families.sort_unstable();
        return families.join("\n");
    }
    serde_json::from_str::<Keys>(page).map_or_else(|_| page.to_owned(), |keys| keys.0)
}

/// A JSON value whose scalars are all `null`, with the first element of each array.
struct Keys(String);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Shape).map(Self)
    }
}

struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, _value: bool) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_f64<E>(self, _value: f64) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_i64<E>(self, _value: i64) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_u64<E>(self, _value: u64) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_str<E>(self, _value: &str) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<String, A::Error> {
        let first = list.next_element::<Keys>()?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(format!(
            "[{}]",
            first.map_or_else(String::new, |keys| keys.0)
        ))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut members = Vec::new();
        while let Some((key, Keys(value))) = map.next_entry::<String, Keys>()? {
            members.push(format!("{}:{value}", serde_json::Value::String(key)));
        }
        Ok(format!("{{{}}}", members.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_in_order_and_values_go() {
        let page = r#"{"b":1,"a":{"z":"x","y":[{"k":1.5,"l":null},2],"e":[]}}"#;
        let expected = r#"{"b":null,"a":{"z":null,"y":[{"k":null,"l":null}],"e":[]}}"#;
        assert_eq!(keys(page), expected);
        assert_eq!(keys(expected), expected);
        assert_eq!(keys("no page"), "no page");
    }

    #[test]
    fn families_of_a_metrics_page_are_a_set() {
        let page = "# HELP b x\n# TYPE b gauge\nb{c=\"d\"} 1\n# TYPE a counter\na 5\n";
        assert_eq!(keys(page), "# TYPE a counter\n# TYPE b gauge");
        assert_eq!(keys(&keys(page)), keys(page));
    }
}
