//! Patches of core against another implementation of RFC 6902: for random documents and random
//! patch lists both make the same document, or both refuse.

use serde_json::{Value, json};
use threadkeep_core::json;
use threadkeep_core::state::{PatchSize, apply_patch};

const CASES: u64 = 10_000;

/// A small generator of random numbers, by its seed.
struct RandomDice(u64);

impl RandomDice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len() as u64) as usize]
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.roll(if depth == 0 { 5 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.roll(2) == 0),
            2 | 3 => json!(self.roll(4)),
            4 => json!(self.pick(&["", "x", "a/b"])),
            5 | 6 => (0..self.roll(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let mut map = serde_json::Map::new();
                for _ in 0..self.roll(4) {
                    let name = self.pick(&["a", "b", "0", "1", "a/b", "m~n", ""]);
                    map.insert(name.to_owned(), self.value(depth - 1));
                }
                Value::Object(map)
            }
        }
    }

    /// A pointer: mostly into the document, now and then beside it.
    fn pointer(&mut self, document: &Value) -> String {
        let (mut pointer, mut place) = (String::new(), document);
        loop {
            let wild = self.roll(8) == 0;
            let token = match place {
                _ if wild => self
                    .pick(&["a", "b", "c", "0", "1", "-", "01", "9", "~1", ""])
                    .to_owned(),
                Value::Object(map) if !map.is_empty() => {
                    let at = self.roll(map.len() as u64) as usize;
                    let name = map.keys().nth(at).cloned().unwrap_or_default();
                    name.replace('~', "~0").replace('/', "~1")
                }
                Value::Array(items) if !items.is_empty() => {
                    self.roll(items.len() as u64 + 1).to_string()
                }
                _ => return pointer,
            };
            if self.roll(4) == 0 {
                return pointer;
            }
            pointer.push('/');
            pointer.push_str(&token);
            match document.pointer(&pointer) {
                Some(next) => place = next,
                None => return pointer,
            }
        }
    }

    fn step(&mut self, document: &Value) -> Value {
        let op = self.pick(&[
            "add", "add", "remove", "replace", "move", "copy", "test", "put",
        ]);
        let path = self.pointer(document);
        match op {
            "remove" => json!({"op": op, "path": path}),
            "move" | "copy" => json!({"op": op, "from": self.pointer(document), "path": path}),
            "test" if self.roll(3) > 0 => {
                let there = document.pointer(&path).cloned().unwrap_or_default();
                json!({"op": op, "path": path, "value": there})
            }
            _ if self.roll(20) == 0 => json!({"op": op, "path": path}),
            _ => json!({"op": op, "path": path, "value": self.value(2)}),
        }
    }
}

fn apply_other(document: &Value, patch: &Value) -> Option<Value> {
    let mut document = document.clone();
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).ok()?;
    // The document is thrown away after a refusal, so nothing has to be undone.
    json_patch::patch_unsafe(&mut document, &patch).ok()?;
    Some(document)
}

fn apply_own(document: &Value, patch: &Value) -> Option<Value> {
    let text = document.to_string();
    let mut document = json::parse(&text).unwrap().into_owned();
    let patch = patch.to_string();
    let mut size = PatchSize::new(document.to_string().len());
    apply_patch(&mut document, &json::parse(&patch).unwrap(), &mut size).ok()?;
    assert_eq!(size.document_bytes(), document.to_string().len(), "{patch}");
    Some(serde_json::from_str(&document.to_string()).unwrap())
}

#[test]
fn random_patches_apply_as_another_implementation_applies_them() {
    let (mut applied, mut steps) = (0, 0);
    for case in 1..=CASES {
        let mut dice = RandomDice(case.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let document = dice.value(3);
        let mut list = Vec::new();
        let mut seen = document.clone();
        for _ in 0..=dice.roll(5) {
            let step = dice.step(&seen);
            // The next pointer is drawn from what the patch has made so far.
            seen = apply_other(&seen, &json!([step])).unwrap_or(seen);
            list.push(step);
        }
        let patch = Value::Array(list);
        let other = apply_other(&document, &patch);
        let own = apply_own(&document, &patch);
        assert_eq!(own, other, "case {case}: {document} {patch}");
        applied += u64::from(own.is_some());
        steps += patch.as_array().map_or(0, Vec::len);
    }
    assert!(applied > CASES / 5, "only {applied} of {CASES} applied");
    assert!(applied < CASES * 4 / 5, "{applied} of {CASES} applied");
    println!("{CASES} patches with {steps} operations: {applied} applied");
}
