//! The tool calls of a reply, put together from their pieces.
//!
//! OpenAI numbers calls from 0 and gives each piece the number. Other servers number from 1, number
//! every call 0, give each piece another number, send no number, no id or neither, repeat the name
//! in every piece, or send a whole call at once. Two rules hold for all of them: a piece with
//! another id and a name begins another call, and so does a piece with a name if the arguments so
//! far are whole.

use crate::models::wire::origin::CALL_FIELDS;
use serde_json::{Map, Value};

/// A call that is being put together.
#[derive(Debug, Default)]
pub(super) struct PartialCall {
    /// Index of its block in the reply.
    pub block: usize,
    index: Option<u64>,
    /// The id that the server gave it; empty if it gave none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text that the model wrote.
    pub arguments: String,
    /// Fields that must be sent back with it.
    pub fields: Map<String, Value>,
    /// Number of the chunk that its newest piece came in.
    chunk: u64,
    scan: ObjectScan,
}

/// Follows the braces of arguments piece by piece, to tell if they are a whole object so far.
#[derive(Debug, Default)]
struct ObjectScan {
    depth: u64,
    begun: bool,
    in_text: bool,
    escaped: bool,
}

impl ObjectScan {
    fn add(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_text,
                b'"' => self.in_text = !self.in_text,
                b'{' | b'[' if !self.in_text => {
                    self.depth += 1;
                    self.begun = true;
                }
                b'}' | b']' if !self.in_text => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.begun && self.depth == 0
    }
}

/// A piece of a call.
#[derive(Debug, Default)]
pub(super) struct CallPiece {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    fields: Map<String, Value>,
}

impl CallPiece {
    /// Parses an entry of `tool_calls`.
    pub fn read(call: &Value) -> Self {
        let function = &call["function"];
        let fields = CALL_FIELDS.iter().filter_map(|field| {
            let value = call.get(*field).filter(|value| value.is_object())?;
            Some(((*field).to_owned(), value.clone()))
        });
        Self {
            index: crate::models::wire::parse_count(&call["index"]),
            id: id_text(&call["id"]),
            name: function["name"].as_str().unwrap_or_default().to_owned(),
            arguments: arguments_text(&function["arguments"]),
            fields: fields.collect(),
        }
    }

    /// Parses a `function_call`, which older servers send for their only call.
    pub fn read_function(function: &Value) -> Self {
        Self {
            name: function["name"].as_str().unwrap_or_default().to_owned(),
            arguments: arguments_text(&function["arguments"]),
            ..Self::default()
        }
    }

    /// Converts a call back into one piece.
    pub fn from_call(call: PartialCall) -> Self {
        Self {
            index: call.index,
            id: call.id,
            name: call.name,
            arguments: call.arguments,
            fields: call.fields,
        }
    }

    /// Returns true if the piece has a part of the arguments. A name is no progress: some servers
    /// repeat it.
    pub fn has_arguments(&self) -> bool {
        !self.arguments.is_empty()
    }

    /// Returns the bytes that the piece adds to a reply.
    pub fn byte_count(&self) -> usize {
        let fields = self.fields.values().map(|value| value.to_string().len());
        self.id.len() + self.name.len() + self.arguments.len() + fields.sum::<usize>()
    }
}

/// Returns an id as text: some servers send a number.
fn id_text(id: &Value) -> String {
    match id {
        Value::String(id) => id.clone(),
        Value::Number(id) => id.to_string(),
        _ => String::new(),
    }
}

/// Returns arguments as text: some servers send the object itself.
fn arguments_text(arguments: &Value) -> String {
    match arguments {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        object => object.to_string(),
    }
}

/// The calls of a reply, in order.
#[derive(Debug, Default)]
pub(super) struct CallAssembler {
    pub calls: Vec<PartialCall>,
}

impl CallAssembler {
    /// Returns the index of the call that a piece continues; `None` if it begins another one.
    pub fn find_call(&self, piece: &CallPiece, chunk: u64) -> Option<usize> {
        let same_id = |call: &PartialCall| !piece.id.is_empty() && call.id == piece.id;
        let same_index = |call: &PartialCall| piece.index.is_some() && call.index == piece.index;
        let newest = |is: &dyn Fn(&PartialCall) -> bool| self.calls.iter().rposition(is);
        // A piece with neither id nor name continues a call, whatever its number.
        if piece.id.is_empty() && piece.name.is_empty() {
            return newest(&same_index).or_else(|| self.calls.len().checked_sub(1));
        }
        let at = newest(&|call| same_id(call) && same_index(call))
            .or_else(|| newest(&same_id))
            .or_else(|| match piece.index {
                Some(_) => newest(&same_index),
                None => self.calls.len().checked_sub(1),
            })?;
        (!begins_another(&self.calls[at], piece, chunk)).then_some(at)
    }

    /// Adds a piece to the call at this index.
    pub fn extend_call(&mut self, at: usize, piece: CallPiece, chunk: u64) {
        let Some(call) = self.calls.get_mut(at) else {
            return;
        };
        call.chunk = chunk;
        call.index = call.index.or(piece.index);
        if call.id.is_empty() {
            call.id = piece.id;
        }
        // Some servers repeat the name in every piece; a few send it in pieces.
        if call.name != piece.name {
            call.name.push_str(&piece.name);
        }
        call.fields.extend(piece.fields);
        // Some gateways begin with an empty object and send the arguments after it.
        if call.arguments.trim() == "{}" && piece.arguments.trim_start().starts_with('{') {
            call.arguments.clear();
            call.scan = ObjectScan::default();
        }
        call.scan.add(&piece.arguments);
        call.arguments.push_str(&piece.arguments);
    }

    /// Begins a call that is this block of the reply; returns its index.
    pub fn begin_call(&mut self, block: usize, piece: &CallPiece) -> usize {
        self.calls.push(PartialCall {
            block,
            index: piece.index,
            ..PartialCall::default()
        });
        self.calls.len() - 1
    }
}

/// Returns true if a piece that seems to belong to a call begins another one.
fn begins_another(call: &PartialCall, piece: &CallPiece, chunk: u64) -> bool {
    if piece.name.is_empty() {
        return false;
    }
    let has_ids = !piece.id.is_empty() && !call.id.is_empty();
    if has_ids && piece.id != call.id {
        return true;
    }
    if piece.index.is_none() && call.chunk == chunk && !has_ids {
        return true;
    }
    let begun = call.arguments.trim();
    let more = piece.arguments.trim();
    let is_placeholder = begun == "{}" && more != "{}" && piece.name == call.name;
    call.scan.is_whole() && !more.is_empty() && !is_placeholder
}
