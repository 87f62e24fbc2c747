//! Compares the trees and writers of this module with those of serde_json.

use super::*;
use proptest::prelude::*;

/// Converts text to a tree and back, with this module and with serde_json.
fn rewrite_by_both(text: &str) -> (Option<[String; 2]>, Option<[String; 2]>) {
    let ours = parse(text)
        .ok()
        .map(|tree| [tree.to_string(), tree.to_text_pretty()]);
    let theirs = serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .map(|tree| {
            [
                tree.to_string(),
                serde_json::to_string_pretty(&tree).unwrap(),
            ]
        });
    (ours, theirs)
}

#[test]
fn agrees_with_serde_json() {
    for text in [
        "null",
        " [ ] ",
        r#"{"a":{},"b":[[],{}],"c":[1,{"d":null}]}"#,
        "[0,-0,0.10,1.50,1e5,1E+05,-1.5e-7,18446744073709551615,18446744073709551616,\
         -9223372036854775809]",
        r#""\u0000\b\f\n\r\t\u001f\"\\\/\u00e9\ud83d\ude42""#,
        r#"{"é\"":true}"#,
        r#"{"$serde_json::private::Number":"1.50"}"#,
        r#"[{"$serde_json::private::Number":"1}]"}]"#,
        r#"{"$serde_json::private::Number":"1e5"}"#,
        r#"{"$serde_json::private::Number":"1E-05"}"#,
        r#"{"$serde_json::private::Number":1}"#,
        r#"{"$serde_json::private::Number":"1","b":2}"#,
        "",
        "nul",
        "[1,]",
        "01",
        "1.",
        "+1",
        "NaN",
        "{\"a\"}",
        "{1:2}",
        "\"\u{1}\"",
        r#""\ud800""#,
        "1 2",
        &"[".repeat(200),
    ] {
        let (ours, theirs) = rewrite_by_both(text);
        assert_eq!(ours, theirs, "{text}");
    }
}

#[test]
fn escapes_what_serde_json_escapes() {
    let every: String = (0..=0x2ff).filter_map(char::from_u32).collect();
    assert_eq!(to_text(&every), serde_json::to_string(&every).unwrap());
}

#[test]
fn whole_numbers_are_plain() {
    for whole in [
        0,
        9,
        10,
        99,
        100,
        u64::from(u32::MAX),
        u64::MAX - 1,
        u64::MAX,
    ] {
        assert_eq!(to_text(&whole), whole.to_string());
        assert_eq!(read::<u64>(&whole.to_string()), Ok(whole));
    }
    for whole in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(to_text(&whole), whole.to_string());
        assert_eq!(read::<i64>(&whole.to_string()), Ok(whole));
    }
    assert!(read::<i64>("9223372036854775808").is_err());
    assert!(read::<u64>("-1").is_err());
    assert!(read::<u32>("4294967296").is_err());
}

#[test]
fn a_name_that_is_there_twice_means_its_last_value() {
    let Ok(JsonValue::Object(mut map)) = parse(r#"{"a":1,"b":2,"a":3,"c":4}"#) else {
        panic!("an object");
    };
    assert_eq!(map.get("a").and_then(JsonValue::as_u64), Some(3));
    assert_eq!(map.shift_remove("a"), Some(JsonValue::from(3)));
    assert!(!map.contains_key("a"));
    map.insert("c", "d");
    map.insert("e", 5);
    assert_eq!(map.swap_remove("b"), Some(JsonValue::from(2)));
    assert_eq!(JsonValue::Object(map).to_string(), r#"{"e":5,"c":"d"}"#);
}

#[derive(Debug, PartialEq, Default)]
struct TestPoint {
    x: u32,
    kind: String,
    note: Option<bool>,
    flag: bool,
}
record!(TestPoint { x, kind as "type" or default, note or nothing, flag or nothing });

#[test]
fn records_say_what_is_wrong() {
    let point = TestPoint {
        x: 1,
        ..TestPoint::default()
    };
    for good in [
        r#"{"x":1}"#,
        r#"{"flag":false,"later":{},"note":null,"type":"","x":1}"#,
    ] {
        assert_eq!(read::<TestPoint>(good).as_ref(), Ok(&point));
    }
    assert_eq!(to_text(&point), r#"{"x":1,"type":""}"#);
    for (bad, message) in [
        ("[]", "`` must be an object"),
        ("{}", "the field `x` is missing"),
        (
            r#"{"x":true}"#,
            "`x` must be a whole number from 0 to 2^32 - 1",
        ),
        (r#"{"x":1,"x":1}"#, "the field `x` is there twice"),
        (r#"{"x":1,"flag":null}"#, "`flag` must be true or false"),
        (
            r#"{"x":1"#,
            "EOF while parsing an object at line 1 column 6",
        ),
    ] {
        let wrong = read::<TestPoint>(bad).expect_err(bad);
        assert_eq!(wrong.to_string(), message);
    }
}

fn text_strategy() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        proptest::collection::vec(0..0x80_u8, 0..20)
            .prop_map(|bytes| bytes.into_iter().map(char::from).collect())
    ]
}

fn tree_strategy() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        text_strategy().prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            proptest::collection::vec((text_strategy(), inner), 0..6)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_tree_is_the_same_text(tree in tree_strategy()) {
        let (ours, theirs) = rewrite_by_both(&tree.to_string());
        prop_assert_eq!(ours, theirs);
    }
}
