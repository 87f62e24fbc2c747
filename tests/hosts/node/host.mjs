// A host of the component for JavaScript: storage in memory, the other imports, and calls of
// exports.
//
// Values are plain here: a record is an object with the names of the WIT, a variant an object with
// its case, and an option that is none is left out. `toWit` and `plain` lead to the binding and
// back.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const PAGE_BYTES = 1 << 20;
const GET_BYTES = 4 << 20;
const LOST = 'the store cannot be reached: away';
const UNKNOWN = 'nobody knows whether the commit was written: away';

/** An error of an import: the binding takes what is thrown and is no Error for the error case. */
const refused = (tag, message) => ({ tag, val: { code: tag, message } });

/** A failure of the host's own in the middle of an import. */
export class Thrown extends Error {}

/** Parameters that are variants: the binding cannot be asked for its types. */
const VARIANTS = new Set(['proof', 'outcome', 'what', 'estimate', 'bill', 'filter', 'expected']);

const camel = name => name.replace(/-(.)/g, (_, letter) => letter.toUpperCase());
const kebab = name => name.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`);

/** A plain value as the binding wants it. It takes numbers and text for a 64-bit integer. */
function toWit(value) {
  if (Array.isArray(value)) return value.map(toWit);
  if (value === null || typeof value !== 'object') return value ?? undefined;
  const fields = Object.entries(value).map(([name, field]) => [camel(name), toWit(field)]);
  return Object.fromEntries(fields);
}

function argument(name, value) {
  if (!VARIANTS.has(name) || typeof value === 'string') return toWit(value);
  const [[tag, payload]] = Object.entries(value);
  return { tag, val: toWit(payload) };
}

/** A value of the binding as JSON has it. */
export function plain(value) {
  if (typeof value === 'bigint') {
    return Number.isSafeInteger(Number(value)) ? Number(value) : `${value}`;
  }
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== 'object') return value;
  if ('tag' in value) return { [value.tag]: value.val === undefined ? null : plain(value.val) };
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return Object.fromEntries(fields.map(([name, field]) => [kebab(name), plain(field)]));
}

/** JSON as text with the names in order, the same in each of the hosts. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical)}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const names = Object.keys(value).sort();
  return `{${names.map(name => `${JSON.stringify(name)}:${canonical(value[name])}`)}}`;
}

const size = text => Buffer.byteLength(text);
/** Text in JavaScript compares by UTF-16, which is not the order of its UTF-8 bytes. */
const compare = (one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other));

/** The rows that fit a page: at least one, if there is one. */
function page(rows, limit) {
  let bytes = 0;
  const end = rows.findIndex((row, at) => {
    bytes += size(row.value);
    return at === limit || (at > 0 && bytes > PAGE_BYTES);
  });
  return end < 0 ? rows : rows.slice(0, end);
}

/** Records by collection and name, and logs by log and partition, in memory. */
export class Storage {
  #records = new Map();
  #logs = new Map();

  #of(collection, records = this.#records) {
    if (!records.has(collection)) records.set(collection, new Map());
    return records.get(collection);
  }

  get(keys) {
    const items = keys.map(key => this.#of(key.collection).get(key.name)).filter(item => item);
    const bytes = items.reduce((sum, item) => sum + size(item.value), 0);
    if (bytes > GET_BYTES) throw refused('too-large', 'these values are too many for one answer');
    return items;
  }

  scan(collection, start, end, limit, reverse) {
    const inside = name => compare(start, name) <= 0 && (end === '' || compare(name, end) < 0);
    const names = [...this.#of(collection).keys()].filter(inside).sort(compare);
    const rows = (reverse ? names.reverse() : names).map(name => this.#of(collection).get(name));
    const items = page(rows, limit);
    // `start` is given and `end` is not, so forwards it is the next row that is named.
    const next = reverse ? items.at(-1) : rows[items.length];
    return { items, damaged: [], cursor: items.length < rows.length ? next.key.name : undefined };
  }

  readLog(log, partition, start, limit, reverse) {
    const lines = [...(this.#logs.get(`${log}\0${partition}`) ?? [])];
    const wanted = lines.filter(([at]) => (reverse ? start === 0n || at <= start : at >= start));
    const rows = wanted.map(([position, value]) => ({ position, value }));
    return page(reverse ? rows.reverse() : rows, limit);
  }

  #holds({ key, expect }) {
    const item = this.#of(key.collection).get(key.name);
    if (expect.tag === 'version') return item?.version === expect.val;
    return expect.tag === 'any' || item === undefined;
  }

  commit(ops) {
    const conditions = ops.filter(op => op.tag === 'check' || op.tag === 'put').map(op => op.val);
    if (!conditions.every(op => this.#holds(op))) return false;
    const copy = maps => new Map([...maps].map(([name, map]) => [name, new Map(map)]));
    const [records, logs] = [copy(this.#records), copy(this.#logs)];
    for (const { tag, val } of ops) {
      const lines = logs.get(`${val.log}\0${val.partition}`) ?? new Map();
      if (tag === 'put') {
        const items = this.#of(val.key.collection, records);
        const version = (items.get(val.key.name)?.version ?? 0n) + 1n;
        items.set(val.key.name, { key: val.key, version, value: val.value });
      } else if (tag === 'delete') {
        this.#of(val.collection, records).delete(val.name);
      } else if (tag === 'append') {
        const last = [...lines.keys()].at(-1) ?? 0n;
        if (val.at !== last + 1n) throw refused('corrupt', `${val.log} ends at ${last}`);
        logs.set(`${val.log}\0${val.partition}`, lines.set(val.at, val.value));
      } else if (tag === 'trim') {
        for (const at of lines.keys()) if (at < val.below) lines.delete(at);
      }
    }
    [this.#records, this.#logs] = [records, logs];
    return true;
  }
}

/** The imports over one store and one clock, and an instance until an import throws. */
export class Host {
  storage = new Storage();
  library = {};
  faults = {};
  replies = [];
  tools = {};
  now = { seconds: 0, nanos: 0 };
  #drawn = 0;
  #modules = new Map();
  #root;
  #instantiate;

  /** Loads what the binding made of the component, in this folder. */
  static async load(folder) {
    // Each instance else looks some thirty times for this function of later engines, in vain.
    WebAssembly.promising ??= call => call;
    const host = new Host();
    const { instantiate } = await import(pathToFileURL(join(folder, 'threadkeep.js')));
    const module = path => {
      if (!host.#modules.has(path)) {
        host.#modules.set(path, new WebAssembly.Module(readFileSync(join(folder, path))));
      }
      return host.#modules.get(path);
    };
    const core = (code, given) => new WebAssembly.Instance(code, given);
    host.#instantiate = () => instantiate(module, host.#imports(), core);
    return host;
  }

  #imports() {
    const { storage } = this;
    const served = {
      storage: {
        get: keys => storage.get(keys),
        scan: (...given) => storage.scan(...given),
        readLog: (...given) => storage.readLog(...given),
        commit: ops => storage.commit(ops),
      },
      clock: { now: () => toWit(this.now) },
      random: { bytes: count => this.#random(count) },
      library: {
        get: (kind, names) => this.#documents(kind, names),
        names: kind => Object.keys(this.library[kind] ?? {}),
      },
      llm: { complete: request => this.#complete(request) },
      tools: { call: calls => calls.map(call => this.#callTool(call)) },
    };
    const imports = {};
    for (const [space, functions] of Object.entries(served)) {
      const wrapped = {};
      for (const [name, call] of Object.entries(functions)) {
        wrapped[name] = this.#serve(`${space}.${kebab(name)}`, call);
      }
      imports[`threadkeep:threads/${space}`] = wrapped;
    }
    return imports;
  }

  /** The import of this name. An Error that it throws ends the call and costs the instance. */
  #serve(name, call) {
    return (...given) => {
      const fault = this.faults[name];
      delete this.faults[name];
      if (fault === 'throw') throw new Thrown(name);
      const lost = this.faults.lost && name.startsWith('storage.');
      if (lost) throw refused('unavailable', LOST);
      const answer = call(...given);
      if (fault === 'late') throw new Thrown(name);
      if (fault === undefined) return answer;
      this.faults[fault] = true;
      throw refused('outcome-unknown', UNKNOWN);
    };
  }

  /** Prints what the model is sent, and answers the next reply. */
  #complete(request) {
    console.log(canonical({ asked: plain(request) }));
    if (this.replies.length === 0) throw new Thrown('llm.complete');
    const [[tag, reply]] = Object.entries(this.replies.shift());
    if (tag === 'failure') throw toWit(reply);
    return toWit(reply);
  }

  #callTool({ version, index, name }) {
    return { version, index, ...toWit(this.tools[name]) };
  }

  /** Counts; the fault `random` is what it answers in its place. */
  #random(count) {
    this.#drawn += 1;
    return this.faults.random ?? this.#drawn.toString(16).padStart(2 * count, '0');
  }

  #documents(kind, names) {
    const documents = new Map(Object.entries(this.library[kind] ?? {}));
    const wanted = names.length > 0 ? names : [...documents.keys()];
    return wanted.map(name => JSON.stringify(documents.get(name)));
  }

  /** Calls an export with plain arguments, prints what it answers, and returns that. */
  call(name, given) {
    const [space, called] = name.split('.');
    this.#root ??= this.#instantiate();
    const values = Object.entries(given).map(([key, value]) => argument(key, value));
    let line;
    try {
      line = { call: name, ok: plain(this.#root[space][camel(called)](...values)) };
    } catch (error) {
      if (error instanceof Thrown) {
        this.#root = undefined;
        line = { call: name, thrown: error.message };
      } else if (Object.hasOwn(error, 'payload')) {
        line = { call: name, err: plain(error.payload) };
      } else throw error;
    }
    this.faults = {};
    console.log(canonical(line));
    return line;
  }
}
