//! Parses JSON. An error names the field, its value and the fix.
//!
//! `serde_json` alone reports a line and a column, which do not help the author of a pod.
//! `serde_path_to_error` reports the path of the field. It parses again, and only after a plain
//! parse has failed, so valid JSON costs no more.

use hami_limits::InvalidValue;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// Parses `json`. `what` names the value in errors.
pub fn parse<T: DeserializeOwned>(what: &str, json: &[u8]) -> Result<T, InvalidValue> {
    serde_json::from_slice(json).map_err(|error| refusal::<T>(what, json, &error))
}

#[cold]
fn refusal<T: DeserializeOwned>(
    what: &str,
    json: &[u8],
    plain: &serde_json::Error,
) -> InvalidValue {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let (path, message) = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => (Some(error.path().clone()), error.inner().to_string()),
        // The value itself is valid, so something follows it.
        Ok(_) => (None, plain.to_string()),
    };
    let message = message.split(" at line ").next().unwrap_or_default();
    let found = path.as_ref().zip(serde_json::from_slice(json).ok());
    let value = found.and_then(|(path, whole): (&Path, Value)| at(&whole, path));
    let field = match path.map(|path| path.to_string()) {
        Some(path) if path.starts_with('[') => format!("{what}{path}"),
        Some(path) if path != "." => format!("{what}.{path}"),
        _ => what.to_owned(),
    };
    let value =
        value.unwrap_or_else(|| String::from_utf8_lossy(&json[..json.len().min(256)]).into());
    InvalidValue { field, value, fix: format!("write the documented format: {message}") }
}

fn at(whole: &Value, path: &Path) -> Option<String> {
    let mut value = whole;
    for segment in path {
        value = match segment {
            Segment::Seq { index } => value.get(index)?,
            Segment::Map { key } => value.get(key)?,
            Segment::Enum { .. } | Segment::Unknown => break,
        };
    }
    Some(match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::wire::{Node, PodRequest};

    #[test]
    fn the_field_the_value_and_the_fix_are_named() {
        let json = br#"{"pod": {"uid": "a", "namespace": "b", "name": "c"},
            "containers": [{"container": "x", "kind": "app", "cards": "two", "memory": "whole"}]}"#;
        let error = parse::<PodRequest>("request", json).unwrap_err();
        assert_eq!(error.field, "request.containers[0].cards");
        assert_eq!(error.value, "two");
        assert!(error.fix.contains("expected u32"), "{}", error.fix);
    }

    #[test]
    fn unknown_fields_and_what_follows_are_errors() {
        let error = parse::<Node>("node", br#"{"name": "n", "cards": [], "gpus": 1}"#).unwrap_err();
        assert_eq!(error.field, "node.gpus");
        assert_eq!(error.value, "1");
        let error = parse::<Node>("node", br#"{"name": "n", "cards": []} x"#).unwrap_err();
        assert_eq!(error.field, "node");
        assert!(parse::<Node>("node", b"\xff\xfe").is_err());
        assert!(parse::<Node>("node", "[".repeat(100_000).as_bytes()).is_err());
    }
}
