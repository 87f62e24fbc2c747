// Plays a scenario and prints a line of JSON for each call of the component.
//
// `node play.mjs FOLDER SCENARIO`, with the folder that `jco transpile --instantiation sync` has
// filled; tests/hosts/README.md says what a line of a scenario is.
import { readFileSync } from 'node:fs';
import { Host, Storage, canonical } from './host.mjs';

const [folder, scenario] = process.argv.slice(2);
const host = await Host.load(folder);
const kept = {};

/** Puts in what was kept (`$name`), and JSON as text (`{"$json": ...}`). */
function fill(value) {
  if (typeof value === 'string') return value.startsWith('$') ? kept[value.slice(1)] : value;
  if (Array.isArray(value)) return value.map(fill);
  if (value === null || typeof value !== 'object') return value;
  if ('$json' in value) return JSON.stringify(fill(value.$json));
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, fill(field)]));
}

/** Adds to what is held of a thread what a request has, and prints what a model is sent. */
function extend(held, { version, request }) {
  const { since, system, tools, messages } = request;
  if (since === 0) Object.assign(held, { system, tools, messages: [] });
  for (let cursor = since > held.version ? null : undefined; cursor !== undefined; ) {
    const given = { thread: held.thread, after: held.version, until: since, cursor };
    const page = host.call('transcript.messages', given).ok;
    held.messages.push(...page.messages);
    cursor = page.cursor;
  }
  held.messages.push(...messages);
  held.version = version;
  console.log(canonical({ model: held, since }));
}

function perform(step, held, script) {
  if (step.kind === 'call-llm') {
    extend(held, step);
    return script.replies.shift();
  }
  if (step.kind === 'call-tools') {
    const outcome = ({ version, index, name }) => ({ version, index, ...script.tools[name] });
    return { outcomes: step.calls.map(outcome) };
  }
  host.now = step.until;
  return { waited: null };
}

/** Begins a run and performs its steps, in whichever thread a step is. */
function run(name, given, script) {
  const handle = host.call(name, given).ok;
  let step = handle?.step ?? { kind: 'finished' };
  let held = {};
  while (step.kind !== 'finished') {
    const { thread, version } = step;
    const { token } = handle;
    if (held.thread !== thread) held = { thread, version: 0, messages: [] };
    const outcome = perform(step, held, script);
    const have = held.version;
    step = host.call('runner.submit', { thread, token, version, outcome, have }).ok;
  }
}

/** Gets a thread going that `ready` has named, by the calls that it named. */
function begin(calls, thread, holder, script) {
  for (const name of calls) {
    if (name === 'sweep') host.call('runner.sweep', { thread, cursor: null });
    else if (name === 'claim') {
      run('runner.claim', { thread, holder, proof: { none: null } }, script);
    } else run(`runner.${name}`, { thread, input: null, holder, key: holder, about: null }, script);
  }
}

/** Performs a thread and all that it spawns, until nothing of it is left to be done. */
function drive({ thread, input, holder, ...script }) {
  const first = { thread, input, holder: `${holder}/0`, key: holder, about: null };
  run('runner.start', first, script);
  let [runs, named, cursor] = [0, false, null];
  do {
    // From the first page again, as long as a list names somebody.
    if (cursor === null) named = false;
    const page = host.call('runner.ready', { limit: 10, cursor, under: thread }).ok;
    for (const entry of page.threads) {
      runs += 1;
      named = true;
      begin(entry.calls, entry.thread, `${holder}/${runs}`, script);
    }
    cursor = page.cursor ?? null;
  } while (named || cursor !== null);
}

/** The names in pages, as a store gives them from either end. */
function pages({ names, limit }) {
  const storage = new Storage();
  const key = name => ({ collection: 'blob', name });
  const put = name => ({ key: key(name), expect: { tag: 'absent' }, value: name });
  storage.commit(names.map(name => ({ tag: 'put', val: put(name) })));
  const answer = { forwards: [], backwards: [] };
  for (const [way, found] of Object.entries(answer)) {
    for (let cursor = ''; cursor !== undefined; ) {
      const [start, end] = way === 'forwards' ? [cursor, ''] : ['', cursor];
      const page = storage.scan('blob', start, end, limit, way === 'backwards');
      found.push(page.items.map(item => item.key.name));
      cursor = page.cursor;
    }
  }
  return answer;
}

for (const text of readFileSync(scenario, 'utf8').split('\n').filter(Boolean)) {
  const line = JSON.parse(text);
  Object.assign(host.library, line.library);
  host.now = line.clock ?? host.now;
  if (line.call) {
    host.faults = { ...line.faults };
    host.replies = fill(line.replies ?? []);
    host.tools = fill(line.tools ?? {});
    const answer = host.call(line.call, fill(line.with));
    for (const [name, path] of Object.entries(line.keep ?? {})) {
      kept[name] = path.split('.').reduce((value, part) => value[part], answer);
    }
  }
  if (line.drive) drive(fill(line.drive));
  if (line.pages) console.log(canonical(pages(line.pages)));
}
